"""Whether the kernel has lowered a queue depth on a full queue, and raises it again."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from hbatune.agent.orders import DepthLevel, Order
from hbatune.facts.ramps import Ramp
from hbatune.plan.decisions import FULLS
from hbatune.plan.rows import Row
from hbatune.settings.table import QUEUE_DEPTH

_COUNTER = 1 << 32
"""The counters wrap to 0 at this value (drivers/scsi/scsi_sysfs.c: iocounterbits)."""


def lowered_depths(rows: Iterable[Row]) -> frozenset[str]:
    """Return the ids of the rows whose queue depth is lower than wanted."""
    return frozenset(
        row.id for row in rows if row.setting == QUEUE_DEPTH and _depths(row, below=True)
    )


def depth_levels(
    rows: Iterable[Row],
    ramps: Mapping[str, Ramp],
    order: Order,
    *,
    chosen: Collection[str] | None,
    new: Collection[str],
    reset: Collection[str] = (),
) -> dict[str, DepthLevel]:
    """Return by id the levels of ``chosen`` queue depths that the kernel lowers on a full queue.

    Those that were ``reset`` do not ramp, although the commands that a reset has ended count as
    errors.
    """
    found = {}
    for row in rows:
        ramp = ramps.get(row.id) if row.setting == QUEUE_DEPTH else None
        depths = _depths(row)
        if ramp is None or depths is None or not (chosen is None or row.id in chosen):
            continue
        # The id may have been another disk's at the last look, with counters of its own.
        before = None if row.id in new else order.levels.get(row.id)
        level = depth_level(*depths, ramp.errors, before)
        found[row.id] = replace(level, ramping=False) if row.id in reset else level
    return found


def depth_level(depth: int, wanted: int, errors: int, before: DepthLevel | None) -> DepthLevel:
    """Return the level after a look at a LUN with this ``depth``, and so many ``errors`` counted.

    Drivers that track full queues lower the depth of all LUNs of the target by one after more than
    ten TASK SET FULL at the same depth (drivers/scsi/scsi.c: scsi_track_queue_full), lpfc by more
    at once, and with the device's I/O it comes back by one every ``queue_ramp_up_period``
    (drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up). Each of those answers counts in
    ``ioerr_cnt``, as does every command with a result other than good (drivers/scsi/scsi_lib.c:
    scsi_complete): also the polls of smartd, which are few.

    ``before`` is the level at the previous look, None at the first one, which has no cause to
    report. A depth that falls without errors was lowered by an administrator or another tool, even
    if it had been ramping. Errors are counted over two looks: some of those that lowered the depth
    may have been counted at the previous one.
    """
    if before is None:
        return DepthLevel(depth, errors, errors)
    full = (errors - before.earlier) % _COUNTER >= FULLS
    if depth >= wanted:
        ramping = False
    elif depth == before.depth:
        ramping = before.ramping
    else:
        # A depth that rises below the wanted one is taken for the kernel's ramp.
        ramping = full if depth < before.depth else True
    return DepthLevel(depth, errors, before.errors, ramping)


def is_ramping(row: Row, levels: Mapping[str, DepthLevel]) -> bool:
    """Whether the row is a queue depth that the kernel has lowered and raises again."""
    return row.setting == QUEUE_DEPTH and row.id in levels and levels[row.id].ramping


def _depths(row: Row, *, below: bool = False) -> tuple[int, int] | None:
    """Return the current and the wanted depth, None where the row has no such numbers."""
    current, value = row.current, row.value
    if not (isinstance(current, int) and isinstance(value, int)):
        return None
    return None if below and current >= value else (current, value)
