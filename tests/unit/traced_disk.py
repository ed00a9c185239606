"""A disk with limits, simulated: the events that its requests make in a trace."""

import heapq
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from hbatune.act.block_trace import BlockEvent

BEGIN_US = 1_000_000_000
"""The time of the first I/O."""


class SimulatedDisk(Struct, frozen=True, kw_only=True):
    """Threads with one I/O each, and the numbers of requests and commands that a disk accepts.

    The drive takes ``service_us`` for a command. A request waits ``held_us`` in the scheduler.
    """

    threads: int = 16
    requests: int = 256
    commands: int = 256
    service_us: int = 1000
    held_us: int = 0
    operation: str = "RS"

    def trace(self, ios: int = 400) -> list[BlockEvent]:
        """Return the events of the first I/Os."""
        return list(self._run(ios))

    def _run(self, ios: int) -> Iterator[BlockEvent]:
        """Yield the events in order. Each I/O has its own sector, and time passes with each."""
        waiting, inserted = deque[int](), deque[int]()
        allocated = issued = started = 0
        steps = [(BEGIN_US + thread, "start", 0) for thread in range(self.threads)]
        while steps:
            time, step, sector = heapq.heappop(steps)
            match step:
                case "start" if started < ios:
                    started += 1
                    waiting.append(started)
                    yield self._event("bio_queue", time, started)
                case "insert":
                    inserted.append(sector)
                case "complete":
                    allocated, issued = allocated - 1, issued - 1
                    yield self._event("rq_complete", time, sector)
                    heapq.heappush(steps, (time + 1, "start", 0))
            while waiting and allocated < self.requests:
                allocated += 1
                sector = waiting.popleft()
                yield self._event("getrq", time, sector)
                heapq.heappush(steps, (time + self.held_us, "insert", sector))
            while inserted and issued < self.commands:
                issued += 1
                sector = inserted.popleft()
                yield self._event("rq_issue", time, sector)
                heapq.heappush(steps, (time + self.service_us, "complete", sector))

    def _event(self, name: str, time_us: int, number: int) -> BlockEvent:
        return BlockEvent(f"block_{name}", time_us, ("8,0", 8 * number), self.operation, 8, None)
