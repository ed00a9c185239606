"""Meters read before and after a probe: a disk's activity and temperature, and the CPUs' time.

``queue/*`` is not read here: behind a write that waits for I/O such a read would hang as well.
"""

import errno
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hbatune.facts.model import Missing, Reason

_STAT = "/proc/stat"
_SENSORS = ("device/hwmon*/temp1_input", "device/hwmon/hwmon*/temp1_input")
"""Of NVMe below the controller (drivers/nvme/host/hwmon.c), of SCSI by the module drivetemp."""
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})


class Activity(Struct, frozen=True):
    """A block device's counters at one moment.

    ``reads`` and ``writes`` completed since boot, ``io_ticks_ms`` the time with I/O in flight,
    ``in_flight`` the I/Os in flight now. With ``queue/iostats`` at 0 all of them stand still
    (block/blk-mq.c: blk_do_io_stat).
    """

    reads: int
    writes: int
    io_ticks_ms: int
    in_flight: int


def activity(sysfs: Path | str) -> Activity | Missing:
    """Read the activity of the block device whose sysfs directory is ``sysfs``.

    Documentation/block/stat.rst: fields 1, 5 and 10 of ``stat``; ``inflight`` has reads and writes.
    """
    directory = Path(sysfs)
    try:
        stat = (directory / "stat").read_text(encoding="ascii").split()
        in_flight = (directory / "inflight").read_text(encoding="ascii").split()
        reads, writes = (int(count) for count in in_flight)
        return Activity(int(stat[0]), int(stat[4]), int(stat[9]), reads + writes)
    except OSError as error:
        reason = Reason.VANISHED if error.errno in _GONE else Reason.UNREADABLE
        return Missing(reason, errno=error.errno)
    except (ValueError, IndexError) as error:
        return Missing(Reason.UNPARSABLE, text=str(error))


class CpuTime(Struct, frozen=True):
    """Seconds of some CPUs since boot: in all, with nothing to run, in hard and soft interrupts."""

    total: float
    idle: float
    interrupts: float

    def since(self, earlier: "CpuTime") -> "CpuTime":
        """Return the time passed since ``earlier``."""
        return CpuTime(
            self.total - earlier.total,
            self.idle - earlier.idle,
            self.interrupts - earlier.interrupts,
        )


def cpu_time(cpus: Collection[int] = ()) -> CpuTime | None:
    """Return the time of these CPUs, or of all if none is given; None if it cannot be read.

    proc(5): per CPU user, nice, system, idle, iowait, irq, softirq and steal; guests are in user.
    """
    try:
        with open(_STAT, encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
        wanted = {f"cpu{cpu}" for cpu in cpus} or {"cpu"}
        times = [[int(each) for each in row[1:9]] for row in rows if row[0] in wanted]
    except (OSError, ValueError):
        return None
    if len(times) != len(wanted):  # one is offline: the sum would lack its time
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    _, _, _, idle, iowait, hard, soft, _ = (
        sum(column) / ticks for column in zip(*times, strict=True)
    )
    return CpuTime(sum(map(sum, times)) / ticks, idle + iowait, hard + soft)


def temperature(sysfs: Path | str) -> float | None:
    """Return °C of the drive whose block device's directory is ``sysfs``, None without a sensor.

    Documentation/hwmon/sysfs-interface.rst: temp1_input is in thousandths of a degree. The read
    sends a command to the drive: not for one that hangs.
    """
    for pattern in _SENSORS:
        for path in sorted(Path(sysfs).glob(pattern)):
            with suppress(OSError, ValueError):
                return int(path.read_text(encoding="ascii")) / 1000
    return None
