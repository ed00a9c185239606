"""Whether the kernel has lowered a queue depth because the device reported a full queue. Pure.

Drivers that track full queues lower the depth of all LUNs of the target by one after more than ten
TASK SET FULL at the same depth (drivers/scsi/scsi.c: scsi_track_queue_full), lpfc by more at once,
and with the device's I/O it comes back by one every ``queue_ramp_up_period``
(drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up). Each of those answers counts in
``ioerr_cnt`` (drivers/scsi/scsi_lib.c: scsi_complete); a few others do, too: the polls of smartd.
"""

from msgspec import Struct

FULLS = 11
"""TASK SET FULL that lower a depth once."""
_COUNTER = 1 << 32
"""Where the counters begin again at 0 (drivers/scsi/scsi_sysfs.c: iocounterbits)."""


class Level(Struct, frozen=True):
    """A queue depth, and the errors of its target's LUNs at this look and at the one before.

    ``ramping`` is whether the kernel had lowered it.
    """

    depth: int
    errors: int
    earlier: int
    ramping: bool = False


def level(depth: int, wanted: int, errors: int, before: Level | None) -> Level:
    """Return the level after a look at a LUN with this ``depth``, and so many ``errors`` counted.

    ``before`` is the level at the look before, None at the first one, which knows of no cause.
    A depth that falls without errors was lowered by others, whatever it had been before. Errors
    are counted over two looks: some of those that lowered it may have been there at the last one.
    """
    if before is None:
        return Level(depth, errors, errors)
    full = (errors - before.earlier) % _COUNTER >= FULLS
    if depth >= wanted:
        ramping = False
    elif depth == before.depth:
        ramping = before.ramping
    else:
        ramping = full if depth < before.depth else True
    return Level(depth, errors, before.errors, ramping)
