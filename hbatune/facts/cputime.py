"""Where the CPUs' time has gone since boot: idle, in interrupts, or anywhere else."""

import os
from collections.abc import Collection

from msgspec import Struct

_STAT = "/proc/stat"


class CpuTime(Struct, frozen=True):
    """Seconds of some CPUs since boot: in all, with nothing to run, in hard and soft interrupts."""

    total: float
    idle: float
    interrupts: float

    def since(self, earlier: "CpuTime") -> "CpuTime":
        """Return what has gone by since ``earlier``."""
        return CpuTime(
            self.total - earlier.total,
            self.idle - earlier.idle,
            self.interrupts - earlier.interrupts,
        )


def cpu_time(cpus: Collection[int] = ()) -> CpuTime | None:
    """Return the time of these CPUs, or of all where none is named; None if it cannot be read.

    proc(5): per CPU user, nice, system, idle, iowait, irq, softirq and steal; guests are in user.
    """
    try:
        with open(_STAT, encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
        wanted = {f"cpu{cpu}" for cpu in cpus} or {"cpu"}
        times = [[int(each) for each in row[1:9]] for row in rows if row[0] in wanted]
    except (OSError, ValueError):
        return None
    if len(times) != len(wanted):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    _, _, _, idle, iowait, hard, soft, _ = (
        sum(column) / ticks for column in zip(*times, strict=True)
    )
    return CpuTime(sum(map(sum, times)) / ticks, idle + iowait, hard + soft)
