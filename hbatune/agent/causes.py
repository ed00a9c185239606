"""Why a setting is not as the profile wants it: new, reset, ramping or changed. Pure.

Only what was changed since hbatune set it is drift, and the site says what to do about drift.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import ChangeOrigin, DepthLevel, Order
from hbatune.facts.model import Machine
from hbatune.facts.ramps import Ramp
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.plan.rows import Row
from hbatune.settings.table import Cause, setting

DEPTH = "queue_depth"
FULLS = 11
"""TASK SET FULL that lower a depth once."""
_COUNTER = 1 << 32
"""Where the counters begin again at 0 (drivers/scsi/scsi_sysfs.c: iocounterbits)."""


def event_targets(machine: Machine, order: Order) -> frozenset[str] | None:
    """Return the ids that the order's events are about, None for everything."""
    if order.names is None:
        return None
    return frozenset(id for event in order.events for id in _meant(machine, event))


def change_origins(
    order: Order, machine: Machine, new: Collection[str]
) -> Callable[[Row], ChangeOrigin]:
    """Return what says why a row is not as the profile wants it; ``new`` are ids."""
    causes: dict[str, set[Cause]] = {}
    for event in order.events:
        if event.cause is not None:
            for id in _meant(machine, event):
                causes.setdefault(id, set()).add(event.cause)

    def origin(row: Row) -> ChangeOrigin:
        if row.id in new:
            return ChangeOrigin.NEW
        if setting(row.setting).reset_by & causes.get(row.id, set()):
            return ChangeOrigin.RESET
        if (row.id, row.setting) in order.due | order.waiting:
            return ChangeOrigin.UNSET
        return ChangeOrigin.DRIFT

    return origin


def lowered_depths(rows: Iterable[Row]) -> frozenset[str]:
    """Return the ids of those whose queue depth is lower than wanted."""
    return frozenset(row.id for row in rows if row.setting == DEPTH and _depths(row, below=True))


def depth_levels(
    rows: Iterable[Row],
    ramps: Mapping[str, Ramp],
    order: Order,
    *,
    chosen: Collection[str] | None,
    new: Collection[str],
) -> dict[str, DepthLevel]:
    """Return by id how the depths stand that a full queue lowers, of what was ``chosen``."""
    found = {}
    for row in rows:
        ramp = ramps.get(row.id) if row.setting == DEPTH else None
        depths = _depths(row)
        if ramp is None or depths is None or not (chosen is None or row.id in chosen):
            continue
        before = None if row.id in new else order.levels.get(row.id)
        found[row.id] = depth_level(*depths, ramp.errors, before)
    return found


def depth_level(depth: int, wanted: int, errors: int, before: DepthLevel | None) -> DepthLevel:
    """Return the level after a look at a LUN with this ``depth``, and so many ``errors`` counted.

    Drivers that track full queues lower the depth of all LUNs of the target by one after more than
    ten TASK SET FULL at the same depth (drivers/scsi/scsi.c: scsi_track_queue_full), lpfc by more
    at once, and with the device's I/O it comes back by one every ``queue_ramp_up_period``
    (drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up). Each of those answers counts in
    ``ioerr_cnt`` (drivers/scsi/scsi_lib.c: scsi_complete); a few others do, too: the polls of
    smartd.

    ``before`` is the level at the look before, None at the first one, which knows of no cause.
    A depth that falls without errors was lowered by others, whatever it had been before. Errors
    are counted over two looks: some of those that lowered it may have been there at the last one.
    """
    if before is None:
        return DepthLevel(depth, errors, errors)
    full = (errors - before.earlier) % _COUNTER >= FULLS
    if depth >= wanted:
        ramping = False
    elif depth == before.depth:
        ramping = before.ramping
    else:
        ramping = full if depth < before.depth else True
    return DepthLevel(depth, errors, before.errors, ramping)


def is_ramping(row: Row, levels: Mapping[str, DepthLevel]) -> bool:
    """Whether the row is a queue depth that the kernel has lowered and raises again."""
    return row.setting == DEPTH and row.id in levels and levels[row.id].ramping


def _depths(row: Row, *, below: bool = False) -> tuple[int, int] | None:
    """Return the depth that is and the one that is to be, None where there are none."""
    current, value = row.current, row.value
    if not (isinstance(current, int) and isinstance(value, int)):
        return None
    return None if below and current >= value else (current, value)


def _meant(machine: Machine, event: DeviceEvent) -> frozenset[str]:
    """Return the ids that an event is about; what is gone again means nothing.

    The head above a path of NVMe takes its limits from that, when its controller is connected.
    """
    try:
        found = named(machine, [event.name])
    except UnknownTargetError:
        return frozenset()
    if event.cause is not Cause.CONNECTED:
        return found
    there = {each.target for each in machine.endpoints if each.id in found}
    return found | {each.id for each in machine.endpoints if there.intersection(each.paths)}
