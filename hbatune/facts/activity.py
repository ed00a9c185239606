"""What a block device is doing now, from the two files that answer even while its queue is stuck.

``queue/*`` is not read here: behind a write that waits for I/O such a read would hang as well.
"""

import errno
from pathlib import Path

from msgspec import Struct

from hbatune.facts.model import Missing, Reason

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
