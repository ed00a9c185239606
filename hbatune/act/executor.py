"""What every writer needs: the files that it keeps, its workers, and how long a write may take.

Runs many chains at once, with the care that parallel writing needs.

One LUN of each adapter goes first and alone. After that its LUNs go in parallel, but the paths of
one map one at a time. A LUN whose write does not return costs its own rows; from then on its
adapter is taken one LUN at a time, and after the third such LUN it is left alone.

How many go at once follows what the kernel takes. While writes return within a second and leave a
CPU idle, the crew grows, and processes for more are forked while it sleeps. Where an adapter's
kernel answers EBUSY, since it locks the tag set for each change, fewer of its LUNs are written at
once, down to one.
"""

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from hbatune.act import journal
from hbatune.act.chain import Chain, Reply, WriteResult, decode
from hbatune.act.journal import Journal
from hbatune.act.rollback_record import UNGUARDED, RollbackGuard
from hbatune.facts.sampler import CpuTime, cpu_time
from hbatune.plan.rows import DONE, Outcome
from hbatune.settings.setting import Attributes
from hbatune.workers import Died, Finished, Pool, Process, Replied, Stuck, Unstarted, WorkerPool


class Means(Struct, frozen=True):
    """The means to write: files, number of workers, and the deadline of each write in seconds.

    The workers are taken from the ``worker_pool``, where there is one. ``save`` makes the journal
    durable, and keeps room for its later saves if that is asked for; without it, ``journal`` is
    written. ``read`` are attributes, by sysfs directory, that were read a moment ago: baselines
    that are among them are not read once more. Of ``unmarked`` disks, by kernel name, nothing is
    saved in udev's database. Before each write the ``guard`` looks for a rollback.
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
        """Make the journal durable; JournalError where that fails.

        Returns what may be given as ``over`` when it is saved again under the same lock.
        """
        if self.save is None:
            return journal.save(self.journal, recorded, keep_room=keep_room, over=over)
        self.save(recorded, keep_room)
        return None


STUCK_LIMIT = 3
"""Stuck LUNs of one adapter after which it is left alone: each holds a worker in the kernel."""

USUAL = 16
"""Workers that a crew begins with; one that is configured smaller does not grow."""
MOST = 64
CALM = 4
"""Chains without EBUSY after which one more LUN of the adapter is tried at once: a collision costs
a pause, and writes that exclude each other gain nothing by standing in line."""
IDLE_WINDOW_S = 0.1
"""Seconds over which is seen whether a CPU is idle, some ticks of the kernel's."""
PROMPT = 1.0
"""Seconds within which each write has to return for a crew to be larger than it began."""

WORKER_EXITED = "the process that wrote it died; the next look shows whether the value had landed"
FAILED = "the process that was to write it failed; the next run shows whether the value was set"
UNSTARTED = "no process could be started to write it; raise TasksMax= or ulimit and try again"

Key = tuple[str, str]


class Report(Struct):
    """The result of every step, by endpoint id and setting, and the writers that are stuck."""

    results: dict[Key, WriteResult] = field(default_factory=dict)
    stuck: dict[Key, Process] = field(default_factory=dict)


def most_workers(workers: int) -> int:
    """Return how many workers a crew may grow to, of which so many are configured."""
    return max(workers, MOST) if workers >= USUAL else workers


class _Lane(Struct):
    """The chains of one adapter that wait, and the state of those that were started.

    ``width`` is how many may run at once, ``busy`` are those running that met EBUSY, ``calm`` is
    how many have ended without it since.
    """

    waiting: deque[Chain]
    running: int = 0
    tried: bool = False
    stuck: int = 0
    width: int = MOST
    busy: set[str] = field(default_factory=set)
    calm: int = 0

    @property
    def open(self) -> bool:
        """Whether another chain may start now."""
        if not self.waiting or self.stuck >= STUCK_LIMIT:
            return False
        # Alone until a first LUN has ended, and again from the first stuck one on.
        return self.running == 0 or (self.tried and self.stuck == 0 and self.running < self.width)

    def ended(self, chain: Chain) -> None:
        """Fit the width to what a chain that has ended met: two that collide are one too many."""
        if chain.id in self.busy:
            self.busy.remove(chain.id)
            self.width = max(1, min(self.width, self.running + 1) // 2)
            self.calm = 0
        else:
            self.calm += 1
            if self.calm % CALM == 0:
                self.width = min(self.width + 1, MOST)


class _Crew(Struct):
    """How many chains may run at once, of all adapters; ``since`` is when each was heard last.

    ``counted`` are those running that have made it grow.
    """

    first: int
    most: int
    size: int
    since: dict[str, float] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)

    @property
    def grows(self) -> bool:
        """Whether writes have returned soon, so that more are likely to run at once."""
        return self.first < self.size < self.most

    def heard(self, chain: Chain, now: float, *, may_grow: bool) -> None:
        """Grow by one for a chain of which a write has returned soon, if it may."""
        if now - self.since.get(chain.id, now) > PROMPT:
            self.size = self.first
            self.counted.add(chain.id)
        elif may_grow and chain.id not in self.counted:
            self.size = min(self.size + 1, self.most)
            self.counted.add(chain.id)
        self.since[chain.id] = now

    def ended(self, chain: Chain) -> None:
        """Forget a chain."""
        self.since.pop(chain.id, None)
        self.counted.discard(chain.id)

    def stuck(self) -> None:
        """Never grow again: a write that does not return may be the first of many."""
        self.size = self.most = self.first

    def room(self, now: float) -> bool:
        """Whether another chain may start now."""
        if len(self.since) >= self.first and now - min(self.since.values()) > PROMPT:
            self.size = self.first
        return len(self.since) < self.size


class IdleCpus:
    """Tells whether the machine has a CPU to spare: without one, more writers only cost forks.

    The time that a writer itself spends asleep does not tell, since it may be asleep until another
    one has had a CPU.
    """

    def __init__(
        self,
        read: Callable[[], CpuTime | None] = cpu_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._clock = read, clock
        self._asked, self._answer = float("-inf"), False
        self._last: CpuTime | None = None

    def found(self) -> bool:
        """Return whether lately a CPU was idle for half of the time, or two for a quarter."""
        now = self._clock()
        if now - self._asked >= IDLE_WINDOW_S:  # on a large machine the kernel takes a ms to tell
            self._asked, before, self._last = now, self._last, self._read()
            self._answer = False
            if before is not None and self._last is not None:
                taken, count = self._last.since(before), os.cpu_count() or 1
                self._answer = 0 < taken.total <= 2 * taken.idle * count
        return self._answer


class Executor:
    """Runs chains in a pool of workers and gives every step exactly one result.

    ``stop`` is called between events: once it returns True, no further chain is started, and those
    under way are waited for. ``progress`` is called with each chain that has ended. ``workers`` is
    how many may write at once to begin with, the pool's size how many it may become while
    ``has_idle_cpu``.
    """

    def __init__(
        self,
        pool: Pool[Chain, bytes],
        *,
        workers: int = USUAL,
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
            self._start()
        while self._pool.running:
            for event in self._pool.wait():
                if isinstance(event, Replied):
                    self._hear(event.task, decode(event.reply))
                elif isinstance(event, Finished):
                    self._end(event.task)
                else:
                    self._lose(event)
            if not self._stop():
                self._start()
        for lane in self._lanes.values():
            # Left behind by a stop, or by an adapter with too many stuck LUNs: no step may be left
            # without a result.
            for chain in lane.waiting:
                self._cancel(chain)
        return self._report

    def _start(self) -> None:
        for chain in self._startable():
            lane = self._lanes[chain.adapter]
            lane.running += 1
            if chain.map is not None:
                self._maps.add(chain.map)
            self._crew.since[chain.id] = self._clock()
            self._pool.start(chain)
        # Forked while those that were started sleep in their writes, which takes the longer time.
        waiting = sum(len(lane.waiting) for lane in self._lanes.values())
        ahead = USUAL if self._crew.grows else self._crew.first - self._pool.running
        self._pool.prepare(min(waiting, ahead))

    def _startable(self) -> Iterator[Chain]:
        """Yield chains that may start, the adapters in turn, until no worker is free."""
        progress = True
        while progress:
            progress = False
            for lane in self._lanes.values():
                if not self._pool.free or not self._crew.room(self._clock()):
                    return
                if lane.open and (chain := self._next(lane)) is not None:
                    progress = True
                    yield chain

    def _next(self, lane: _Lane) -> Chain | None:
        for _ in range(len(lane.waiting)):
            chain = lane.waiting.popleft()
            if chain.map is None or chain.map not in self._maps:
                return chain
            # To the end of the queue: another path of its map is being written, and the others need
            # not wait.
            lane.waiting.append(chain)
        return None

    def _hear(self, chain: Chain, reply: Reply) -> None:
        if reply.busy:
            self._lanes[chain.adapter].busy.add(chain.id)
        waiting = any(lane.waiting for lane in self._lanes.values())
        may_grow = waiting and not reply.busy and self._has_idle_cpu()
        self._crew.heard(chain, self._clock(), may_grow=may_grow)
        self._take(chain, reply.result)

    def _take(self, chain: Chain, result: WriteResult) -> None:
        self._report.results[chain.id, result.setting] = result

    def _end(self, chain: Chain) -> None:
        lane = self._lanes[chain.adapter]
        lane.running -= 1
        lane.tried = True
        lane.ended(chain)
        self._crew.ended(chain)
        if chain.map is not None:
            self._maps.discard(chain.map)
        self._progress(chain)

    def _lose(self, event: Stuck[Chain] | Died[Chain] | Unstarted[Chain]) -> None:
        """Give the unanswered step the outcome of its worker, and cancel the steps after it.

        A stuck worker was sent SIGKILL, so that it can do no further step once the kernel releases
        it; its write may still land. A worker that died is gone: its write has landed or never
        will, and the next look shows which. One that failed has answered for its step itself.
        Without a worker nothing was written.
        """
        chain = event.task
        if isinstance(event, Stuck):
            self._lanes[chain.adapter].stuck += 1
            self._crew.stuck()
        self._end(chain)
        names = (step.setting for step in chain.steps)
        at = next((name for name in names if (chain.id, name) not in self._report.results), None)
        results = (self._report.results.get((chain.id, step.setting)) for step in chain.steps)
        has_answered = any(result and result.outcome not in DONE for result in results)
        if at is not None and not (isinstance(event, Died) and event.failed and has_answered):
            self._take(chain, _unanswered(at, event))
            if isinstance(event, Stuck):
                self._report.stuck[chain.id, at] = event.process
        self._cancel(chain)

    def _cancel(self, chain: Chain) -> None:
        for step in chain.steps:
            if (chain.id, step.setting) not in self._report.results:
                self._take(chain, WriteResult(step.setting, Outcome.CANCELLED))


def _unanswered(name: str, event: Stuck[Chain] | Died[Chain] | Unstarted[Chain]) -> WriteResult:
    """Return the result of a step that its worker did not report."""
    match event:
        case Stuck():
            return WriteResult(name, Outcome.STUCK, errno.ETIMEDOUT)
        case Died():
            said = FAILED if event.failed else WORKER_EXITED
            return WriteResult(name, Outcome.REFUSED, errno.ECHILD, said=said)
        case Unstarted():
            return WriteResult(name, Outcome.REFUSED, event.errno, said=UNSTARTED)
