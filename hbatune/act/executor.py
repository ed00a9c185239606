"""Run many chains in parallel, with the precautions that parallel writing requires.

The first LUN of each adapter is written before its others. After that its LUNs are written in
parallel, but the paths of one map one at a time. A LUN whose write does not return costs only its
own rows. After the first such LUN its adapter's LUNs are written one at a time, and after the third
the adapter is skipped.
"""

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from hbatune.act import journal
from hbatune.act.chain import Chain, WriteResult, decode_result
from hbatune.act.journal import Journal
from hbatune.act.rollback_record import UNGUARDED, RollbackGuard
from hbatune.facts.sampler import CpuTime, read_cpu_time
from hbatune.plan.rows import DONE_OUTCOMES, Outcome
from hbatune.settings.setting import Attributes, Limit, LimitReason
from hbatune.text.limit_text import describe_limit
from hbatune.workers import Died, Finished, Pool, Process, Replied, Stuck, Unstarted, WorkerPool


class Means(Struct, frozen=True):
    """The means to write: files, number of workers, and the deadline of each write in seconds.

    ``save`` makes the journal durable and, if requested, reserves space for its later saves.
    Without it, ``journal`` is written. ``read`` are attributes, by sysfs directory, that were
    read a moment ago. udev's database has nothing about ``unmarked`` disks (kernel names).
    Before each write the ``guard`` checks for a rollback.
    """

    journal: Path
    claims: Path
    spent: Path
    workers: int
    deadline: float
    stop: Callable[[], bool] = lambda: False
    progress: Callable[[Chain], None] = lambda chain: None
    worker_pool: WorkerPool | None = None
    save: Callable[[Journal, bool], None] | None = None
    read: Mapping[str, Attributes] = {}
    unmarked: frozenset[str] = frozenset()
    guard: RollbackGuard = UNGUARDED

    def save_journal(
        self, recorded: Journal, *, keep_room: bool = False, over: bytes | None = None
    ) -> bytes | None:
        """Make the journal durable, or raise JournalError; return ``over`` for the next save."""
        if self.save is None:
            return journal.save(self.journal, recorded, keep_room=keep_room, over=over)
        self.save(recorded, keep_room)
        return None


STUCK_LIMIT = 3
"""Stuck LUNs of one adapter after which it is skipped: each holds a worker in the kernel."""

INITIAL_WORKERS = 16
"""Initial size of a crew. A crew that is configured smaller does not grow."""
MAX_WORKERS = 64
CALM_CHAINS = 4
"""Chains without EBUSY after which one more LUN of the adapter is written concurrently. A collision
costs a pause, and writes that exclude each other gain nothing by waiting in parallel."""
IDLE_WINDOW_S = 0.1
"""Seconds over which idle CPU time is measured: several ticks of the kernel."""
PROMPT_WRITE_S = 1.0
"""Maximum seconds of each write while a crew is larger than its initial size."""

Key = tuple[str, str]


class Report(Struct):
    """The result of every step, by endpoint id and setting, and the writers that are stuck."""

    results: dict[Key, WriteResult] = field(default_factory=dict)
    stuck: dict[Key, Process] = field(default_factory=dict)


def compute_max_workers(workers: int) -> int:
    """Return the maximum size of a crew with this number of configured workers."""
    return max(workers, MAX_WORKERS) if workers >= INITIAL_WORKERS else workers


class _Lane(Struct):
    """The waiting chains of one adapter, and the state of the started ones.

    ``width`` is the number that may run concurrently, lower after EBUSY: newer kernels lock the tag
    set for each change. ``busy`` are the running ones that met it, and ``calm`` is the number that
    have ended without it since.
    """

    waiting: deque[Chain]
    running: int = 0
    tried: bool = False
    stuck: int = 0
    width: int = MAX_WORKERS
    busy: set[str] = field(default_factory=set)
    calm: int = 0

    @property
    def open(self) -> bool:
        """Whether another chain may start now."""
        if not self.waiting or self.stuck >= STUCK_LIMIT:
            return False
        # One at a time until a first LUN has ended, and again after the first stuck one.
        return self.running == 0 or (self.tried and self.stuck == 0 and self.running < self.width)

    def ended(self, chain: Chain) -> None:
        """Adjust the width after a chain: a collision means that one too many was running."""
        if chain.id in self.busy:
            self.busy.remove(chain.id)
            self.width = max(1, min(self.width, self.running + 1) // 2)
            self.calm = 0
        else:
            self.calm += 1
            if self.calm % CALM_CHAINS == 0:
                self.width = min(self.width + 1, MAX_WORKERS)


class _Crew(Struct):
    """The number of chains of all adapters that may run concurrently.

    It grows while writes return within a second and leave a CPU idle. ``since`` is the time of each
    chain's latest reply. ``counted`` are the running chains that have made the crew grow.
    """

    first: int
    most: int
    size: int
    since: dict[str, float] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)

    def heard(self, chain: Chain, timestamp: float, *, may_grow: bool) -> None:
        """Grow by one for a chain whose write has returned promptly, if allowed."""
        if timestamp - self.since.get(chain.id, timestamp) > PROMPT_WRITE_S:
            self.size = self.first
            self.counted.add(chain.id)
        elif may_grow and chain.id not in self.counted:
            self.size = min(self.size + 1, self.most)
            self.counted.add(chain.id)
        self.since[chain.id] = timestamp

    def room(self, timestamp: float) -> bool:
        """Return whether another chain may start now."""
        if len(self.since) >= self.first and timestamp - min(self.since.values()) > PROMPT_WRITE_S:
            self.size = self.first
        return len(self.since) < self.size


class IdleCpus:
    """Measures whether the machine has an idle CPU: without one, more writers only cost forks."""

    def __init__(
        self,
        read: Callable[[], CpuTime | None] = read_cpu_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._clock = read, clock
        self._asked, self._answer = float("-inf"), False
        self._last: CpuTime | None = None

    def found(self) -> bool:
        """Return whether recently one CPU was idle half of the time, or two CPUs a quarter."""
        timestamp = self._clock()
        if timestamp - self._asked >= IDLE_WINDOW_S:  # on a large machine each read takes a ms
            self._asked, before, self._last = timestamp, self._last, self._read()
            self._answer = False
            if before is not None and self._last is not None:
                spent, count = self._last.since(before), os.cpu_count() or 1
                self._answer = 0 < spent.total <= 2 * spent.idle * count
        return self._answer


class Executor:
    """Runs chains in a pool of workers and gives every step exactly one result.

    Once ``stop`` returns True, no further chain is started, and running chains are awaited.
    ``progress`` is called with each ended chain. ``workers`` is the initial number of parallel
    writers, and the pool's size the maximum while ``has_idle_cpu``.
    """

    def __init__(
        self,
        pool: Pool[Chain, bytes],
        *,
        workers: int = INITIAL_WORKERS,
        clock: Callable[[], float] = time.monotonic,
        has_idle_cpu: Callable[[], bool] | None = None,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[Chain], None] = lambda chain: None,
    ) -> None:
        self._pool = pool
        first = min(workers, pool.size)
        self._crew = _Crew(first, pool.size, first)
        self._clock = clock
        self._has_idle_cpu = has_idle_cpu or IdleCpus().found
        self._stop = stop
        self._progress = progress
        self._lanes: dict[str | None, _Lane] = {}
        self._maps: set[str] = set()
        self._report = Report()

    def run(self, chains: Iterable[Chain]) -> Report:
        """Run all chains and return the report; chains that could not be started are cancelled."""
        for chain in chains:
            self._lanes.setdefault(chain.adapter, _Lane(deque())).waiting.append(chain)
        if not self._stop():
            self._start_chains()
        while self._pool.running:
            for event in self._pool.wait():
                if isinstance(event, Replied):
                    chain, reply = event.task, decode_result(event.reply)
                    if reply.busy:
                        self._lanes[chain.adapter].busy.add(chain.id)
                    waiting = any(lane.waiting for lane in self._lanes.values())
                    may_grow = waiting and not reply.busy and self._has_idle_cpu()
                    self._crew.heard(chain, self._clock(), may_grow=may_grow)
                    self._report.results[chain.id, reply.result.setting] = reply.result
                elif isinstance(event, Finished):
                    self._end_chain(event.task)
                else:
                    self._handle_failure(event)
            if not self._stop():
                self._start_chains()
        for lane in self._lanes.values():
            # Skipped because of a stop, or of an adapter with too many stuck LUNs: every step needs
            # a result.
            for chain in lane.waiting:
                self._cancel_rest(chain)
        return self._report

    def _start_chains(self) -> None:
        for chain in self._select_startable():
            lane = self._lanes[chain.adapter]
            lane.running += 1
            if chain.map is not None:
                self._maps.add(chain.map)
            self._crew.since[chain.id] = self._clock()
            self._pool.start(chain)
        # Forked while the started chains sleep in their writes, which takes longer.
        waiting, crew = sum(len(lane.waiting) for lane in self._lanes.values()), self._crew
        grows = crew.first < crew.size < crew.most  # writes have returned promptly
        self._pool.prepare(
            min(waiting, INITIAL_WORKERS if grows else crew.first - self._pool.running)
        )

    def _select_startable(self) -> Iterator[Chain]:
        """Yield chains that may start, the adapters in turn, until no worker is free."""
        progress = True
        while progress:
            progress = False
            for lane in self._lanes.values():
                if not self._pool.free or not self._crew.room(self._clock()):
                    return
                if lane.open and (chain := self._take_startable(lane)) is not None:
                    progress = True
                    yield chain

    def _take_startable(self, lane: _Lane) -> Chain | None:
        for _ in range(len(lane.waiting)):
            chain = lane.waiting.popleft()
            if chain.map is None or chain.map not in self._maps:
                return chain
            # To the end of the queue: another path of its map is being written, and other chains
            # need not wait.
            lane.waiting.append(chain)
        return None

    def _end_chain(self, chain: Chain) -> None:
        lane = self._lanes[chain.adapter]
        lane.running -= 1
        lane.tried = True
        lane.ended(chain)
        self._crew.since.pop(chain.id, None)
        self._crew.counted.discard(chain.id)
        if chain.map is not None:
            self._maps.discard(chain.map)
        self._progress(chain)

    def _handle_failure(self, event: Stuck[Chain] | Died[Chain] | Unstarted[Chain]) -> None:
        """Give the unanswered step the outcome of its worker, and cancel the steps after it.

        A stuck worker was sent SIGKILL: its write may still take effect, but no further
        step. If a worker died, the next scan shows its write. A failed worker has answered
        for its step itself.
        """
        chain = event.task
        if isinstance(event, Stuck):
            self._lanes[chain.adapter].stuck += 1
            # No growth: a write that does not return may be the first of several.
            self._crew.size = self._crew.most = self._crew.first
        self._end_chain(chain)
        has_answered, unanswered = False, list[Key]()
        for key in chain.keys:
            result = self._report.results.get(key)
            if result is None:
                unanswered.append(key)
            elif result.outcome not in DONE_OUTCOMES:
                has_answered = True
        if unanswered and not (isinstance(event, Died) and event.failed and has_answered):
            key = unanswered[0]
            self._report.results[key] = _report_unanswered(key[1], event)
            if isinstance(event, Stuck):
                self._report.stuck[key] = event.process
        self._cancel_rest(chain)

    def _cancel_rest(self, chain: Chain) -> None:
        for key in chain.keys:
            self._report.results.setdefault(key, WriteResult(key[1], Outcome.CANCELLED))


def _report_unanswered(
    name: str, event: Stuck[Chain] | Died[Chain] | Unstarted[Chain]
) -> WriteResult:
    match event:
        case Stuck():
            return WriteResult(name, Outcome.STUCK, errno.ETIMEDOUT)
        case Died():
            number = errno.ECHILD
            limit = Limit.WORKER_FAILED if event.failed else Limit.WORKER_DIED
        case Unstarted():
            number, limit = event.errno, Limit.WORKER_UNSTARTED
    return WriteResult(name, Outcome.REFUSED, number, said=describe_limit(LimitReason(limit)))
