"""What the cores involved spend while a run is going on: in interrupts, and in all.

fio counts the time of its own threads; that of interrupts is nobody's, and the larger part of it
on a fast drive. It is counted over a stretch in which I/O is in flight for certain: from a moment
after the warm-up to the end of the runtime, as fio itself takes a while to start.
"""

import time
from collections.abc import Callable

from msgspec import Struct

from hbatune.facts.meters import CpuTime, cpu_time
from hbatune.probe.model import Workload

START = 0.25
"""Seconds that fio takes to start, or a quarter of a runtime that is shorter than a second."""

Wait = Callable[[float], int | None]
"""Waits so many seconds at most for a process to end, and returns its status if it does."""


class Cost(Struct, frozen=True):
    """CPU seconds spent in interrupts per second, and the share of time (0 to 1) not idle."""

    interrupts: float
    busy: float


class Meter:
    """Counts the time of some CPUs, of all where none is named, during one run."""

    def __init__(
        self,
        workload: Workload,
        cpus: tuple[int, ...] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        start = min(START, workload.runtime / 4)
        self._pauses = (workload.ramp + start, workload.runtime - start)
        self._cpus = cpus
        self._clock = clock
        self._marks: list[tuple[float, CpuTime]] = []

    def during(self, wait: Wait, seconds: float) -> int | None:
        """Wait as ``wait`` does, and count on the way."""
        for pause in self._pauses:
            status = wait(pause)
            if status is not None:
                return status
            spent = cpu_time(self._cpus)
            self._marks += [(self._clock(), spent)] if spent else []
        return wait(seconds - sum(self._pauses))

    @property
    def cost(self) -> Cost | None:
        """What was spent; None where the run ended too early, or nothing could be read."""
        if len(self._marks) < 2:
            return None
        (began, first), (ended, last) = self._marks
        spent = last.since(first)
        if spent.total <= 0 or ended <= began:
            return None
        return Cost(spent.interrupts / (ended - began), 1 - spent.idle / spent.total)
