"""Run many chains in parallel, with the precautions that parallel writing requires.

The first LUN of each adapter is written before its others. After that its LUNs are written in
parallel, but the paths of one map one at a time. If the kernel locks the adapter for some settings,
these are written one LUN at a time, and the next two LUNs start during its writes. EBUSY proves
such a kernel, and the file of async_depth, which only kernels with this lock have
(block/blk-sysfs.c).

A LUN whose write does not return costs its own rows, and the settings for which it locks the
adapter. After the first such LUN its adapter's LUNs are written one at a time, and after the third
the adapter is skipped.
"""

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.act import journal, rollback_record
from hbatune.act.chain import LOCKING_LUNS, Chain, WriteResult, decode_reply
from hbatune.act.journal import Journal
from hbatune.facts.sampler import CpuTime, read_cpu_time
from hbatune.plan.rows import DONE_OUTCOMES, Outcome
from hbatune.settings import limits, table
from hbatune.settings.setting import Attributes
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
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
    guard: rollback_record.RollbackGuard = rollback_record.UNGUARDED

    def save_journal(self, recorded: Journal, *, keep_room: bool = False) -> None:
        """Make the journal durable, or raise JournalError."""
        if self.save is None:
            journal.save(self.journal, recorded, keep_room=keep_room)
        else:
            self.save(recorded, keep_room)


STUCK_LIMIT = 3
"""Stuck LUNs of one adapter after which it is skipped: each holds a worker in the kernel."""

INITIAL_WORKERS = 16
"""Initial size of a crew. A crew that is configured smaller does not grow."""
MAX_WORKERS = 64
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

    ``stuck`` are the disks whose writes have not returned. ``busy`` is whether the kernel locks the
    adapter for a write (``Setting.locks_adapter``). Its LUNs then take turns by ``turn``.
    ``locking`` are, by id of the running chains, their settings that still have to be written under
    this lock. Chains without such a setting wait as ``lockless``.
    """

    turn: str
    waiting: deque[Chain] = field(default_factory=deque)
    lockless: deque[Chain] = field(default_factory=deque)
    running: int = 0
    tried: bool = False
    busy: bool = False
    stuck: list[str] = field(default_factory=list)
    locking: dict[str, set[str]] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether another chain may start now, if no other condition prevents it."""
        if not (self.waiting or self.lockless) or len(self.stuck) >= STUCK_LIMIT:
            return False
        # One at a time until a first LUN has ended, and again after the first stuck one.
        return self.running == 0 or (self.tried and not self.stuck)

    def start(self, chain: Chain) -> Chain:
        """Count the chain as running; return it with the stuck disk that may lock its adapter."""
        self.running += 1
        if settings := _list_locking_settings(chain):
            self.locking[chain.id] = settings
        behind = self.stuck[0] if self.stuck else None
        # The stuck write has the turn, and keeps it.
        turn = self.turn if self.busy and behind is None else None
        return replace(chain, behind=behind, turn=turn)

    def pass_turn(self, chain: Chain, setting: str) -> None:
        """Note that a running chain has ended its write of this setting."""
        settings = self.locking.get(chain.id, set())
        settings.discard(setting)
        if not settings:
            self.locking.pop(chain.id, None)

    def end(self, chain: Chain) -> None:
        """Count the chain as ended, however it ended."""
        self.running -= 1
        self.tried = True
        self.locking.pop(chain.id, None)


def _list_locking_settings(chain: Chain) -> set[str]:
    return {step.setting for step in chain.steps if table.find_setting(step.setting).locks_adapter}


class _Crew(Struct):
    """The number of concurrent chains. It grows while writes return promptly and a CPU is idle."""

    first: int
    most: int
    size: int
    since: dict[str, float] = field(default_factory=dict)  # the time of each chain's latest reply
    counted: set[str] = field(default_factory=set)  # running chains that have made it grow

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

    def __init__(self) -> None:
        self._asked, self._answer = float("-inf"), False
        self._last: CpuTime | None = None

    def found(self) -> bool:
        """Return whether recently one CPU was idle half of the time, or two CPUs a quarter."""
        timestamp = time.monotonic()
        if timestamp - self._asked >= IDLE_WINDOW_S:  # on a large machine each read takes a ms
            self._asked, before, self._last = timestamp, self._last, read_cpu_time()
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
        chains = list(chains)
        for chain in chains:
            lane = self._lanes.setdefault(chain.adapter, _Lane(chain.sysfs))
            (lane.waiting if _list_locking_settings(chain) else lane.lockless).append(chain)
            lane.busy |= os.path.exists(f"{chain.sysfs}/{limits.ASYNC_DEPTH_FILE}")
        if not self._stop():
            self._start_chains()
        while self._pool.running:
            for event in self._pool.wait():
                if isinstance(event, Replied):
                    chain, (result, is_busy) = event.task, decode_reply(event.reply)
                    lane = self._lanes[chain.adapter]
                    lane.busy |= is_busy
                    if result is None:
                        continue
                    lane.pass_turn(chain, result.setting)
                    may_grow = self._count_startable() > 0 and not is_busy and self._has_idle_cpu()
                    self._crew.heard(chain, self._clock(), may_grow=may_grow)
                    self._report.results[chain.id, result.setting] = result
                elif isinstance(event, Finished):
                    self._end_chain(event.task)
                else:
                    self._handle_failure(event)
            if not self._stop():
                self._start_chains()
        for lane in self._lanes.values():
            # Skipped because of a stop, or of an adapter with too many stuck LUNs: every step needs
            # a result.
            for chain in (*lane.waiting, *lane.lockless):
                self._cancel_rest(chain)
        for chain in chains:
            self._explain_lock(chain)
        return self._report

    def _start_chains(self) -> None:
        for chain in self._select_startable():
            if chain.map is not None:
                self._maps.add(chain.map)
            self._crew.since[chain.id] = self._clock()
            self._pool.start(self._lanes[chain.adapter].start(chain))
        # Forked while the started chains sleep in their writes, which takes longer.
        waiting, crew = self._count_startable(), self._crew
        grows = crew.first < crew.size < crew.most  # writes have returned promptly
        wanted = INITIAL_WORKERS if grows else crew.first - self._pool.running
        self._pool.prepare(min(waiting, wanted))

    def _count_startable(self) -> int:
        """Return the number of waiting chains that need not wait for the turn of another."""
        count = 0
        for lane in self._lanes.values():
            count += min(len(lane.waiting), LOCKING_LUNS) if lane.busy else len(lane.waiting)
            count += len(lane.lockless)
        return count

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
        is_locked = lane.busy and len(lane.locking) >= LOCKING_LUNS
        for chains in (lane.lockless,) if is_locked else (lane.waiting, lane.lockless):
            for _ in range(len(chains)):
                chain = chains.popleft()
                if chain.map not in self._maps:
                    return chain
                # To the end: another path of its map is being written, and others need not wait.
                chains.append(chain)
        return None

    def _end_chain(self, chain: Chain) -> None:
        self._lanes[chain.adapter].end(chain)
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
            self._lanes[chain.adapter].stuck.append(chain.target)
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

    def _explain_lock(self, chain: Chain) -> None:
        """Explain a stuck write that holds the adapter, and block the writes that it refused."""
        lane, results = self._lanes[chain.adapter], self._report.results
        if not lane.stuck or not lane.busy:
            return
        blocked = LimitReason(Limit.SIBLING_STUCK, (lane.stuck[0],))
        is_refused = False
        for step in chain.steps:
            result = results[chain.id, step.setting]
            if not table.find_setting(step.setting).locks_adapter:
                continue
            is_refused |= (result.outcome, result.errno) == (Outcome.REFUSED, errno.EBUSY)
            if result.outcome is Outcome.STUCK:
                said = describe_limit(LimitReason(Limit.ADAPTER_WAITS))
                results[chain.id, step.setting] = replace(result, said=said)
            elif is_refused and result.outcome in (Outcome.REFUSED, Outcome.CANCELLED):
                said = describe_limit(blocked)
                untried = WriteResult(step.setting, Outcome.BLOCKED, found=result.found, said=said)
                results[chain.id, step.setting] = untried

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
