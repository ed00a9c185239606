"""Runs many chains at once, with the care that parallel writing needs.

One LUN of each adapter goes first and alone. After that its LUNs go in parallel, but the paths of
one map one at a time. A LUN whose write does not return costs its own rows; from then on its
adapter is taken one LUN at a time, and after the third such LUN it is left alone.
"""

import errno
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from hbatune.act.chain import Chain, WriteResult, decode
from hbatune.plan.rows import Outcome
from hbatune.workers import Died, Finished, Pool, Process, Replied, Stuck, Unstarted

STUCK_LIMIT = 3
"""Stuck LUNs of one adapter after which it is left alone: each holds a worker in the kernel."""

DIED = "the process that wrote it died; the next look shows whether the value had landed"
UNSTARTED = "no process could be started to write it"

Key = tuple[str, str]


class Report(Struct):
    """The result of every step, by endpoint id and setting, and the writers that are stuck."""

    results: dict[Key, WriteResult] = field(default_factory=dict)
    stuck: dict[Key, Process] = field(default_factory=dict)


class _Lane(Struct):
    """The chains of one adapter that wait, and the state of those that were started."""

    waiting: deque[Chain]
    running: int = 0
    tried: bool = False
    stuck: int = 0

    @property
    def open(self) -> bool:
        """Whether another chain may start now."""
        if not self.waiting or self.stuck >= STUCK_LIMIT:
            return False
        # Alone until a first LUN has ended, and again from the first stuck one on.
        return self.running == 0 or (self.tried and self.stuck == 0)


class Executor:
    """Runs chains in a pool of workers and gives every step exactly one result.

    ``stop`` is called between events: once it returns True, no further chain is started, and those
    under way are waited for. ``progress`` is called with each chain that has ended.
    """

    def __init__(
        self,
        pool: Pool[Chain, bytes],
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[Chain], None] = lambda chain: None,
    ) -> None:
        self._pool = pool
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
            # Forked while the first LUNs are being written, which take the longer time.
            self._pool.prepare(sum(len(lane.waiting) for lane in self._lanes.values()))
        while self._pool.running:
            for event in self._pool.wait():
                if isinstance(event, Replied):
                    self._take(event.task, decode(event.reply))
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
            self._pool.start(chain)

    def _startable(self) -> Iterator[Chain]:
        """Yield chains that may start, the adapters in turn, until no worker is free."""
        progress = True
        while progress:
            progress = False
            for lane in self._lanes.values():
                if not self._pool.free:
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

    def _take(self, chain: Chain, result: WriteResult) -> None:
        self._report.results[chain.id, result.setting] = result

    def _end(self, chain: Chain) -> None:
        lane = self._lanes[chain.adapter]
        lane.running -= 1
        lane.tried = True
        if chain.map is not None:
            self._maps.discard(chain.map)
        self._progress(chain)

    def _lose(self, event: Stuck[Chain] | Died[Chain] | Unstarted[Chain]) -> None:
        """Give the unanswered step the outcome of its worker, and cancel the steps after it.

        A stuck worker was sent SIGKILL, so that it can do no further step once the kernel releases
        it; its write may still land. A worker that died is gone: its write has landed or never
        will, and the next look shows which. Without a worker nothing was written.
        """
        chain = event.task
        if isinstance(event, Stuck):
            self._lanes[chain.adapter].stuck += 1
        self._end(chain)
        names = (step.setting for step in chain.steps)
        at = next((name for name in names if (chain.id, name) not in self._report.results), None)
        if at is not None:
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
            return WriteResult(name, Outcome.REFUSED, errno.ECHILD, said=DIED)
        case Unstarted():
            return WriteResult(name, Outcome.REFUSED, event.errno, said=UNSTARTED)
