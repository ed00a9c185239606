"""Finds the cause of a wrong value: new device, reset, ramp or drift. Pure.

Only a change since hbatune set the value is drift, and the site decides how drift is handled.
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
"""Number of TASK SET FULL answers after which a depth is lowered: more than ten."""
_COUNTER = 1 << 32
"""The counters wrap to 0 at this value (drivers/scsi/scsi_sysfs.c: iocounterbits)."""


def event_targets(machine: Machine, order: Order) -> frozenset[str] | None:
    """Return the ids that the order's events concern, None for everything."""
    if order.names is None:
        return None
    return frozenset(id for event in order.events for id in _meant(machine, event))


def change_origins(
    order: Order, machine: Machine, new: Collection[str]
) -> Callable[[Row], ChangeOrigin]:
    """Return a function that gives the origin of a row's wrong value; ``new`` are ids."""
    causes: dict[str, set[Cause]] = {}
    for event in order.events:
        if event.cause is not None:
            for id in _meant(machine, event):
                causes.setdefault(id, set()).add(event.cause)

    def origin(row: Row) -> ChangeOrigin:
        # First of the four: a new device has no former value that could have been reset or changed.
        if row.id in new:
            return ChangeOrigin.NEW
        if setting(row.setting).reset_by & causes.get(row.id, set()):
            return ChangeOrigin.RESET
        if (row.id, row.setting) in order.due | order.waiting:
            return ChangeOrigin.UNSET
        return ChangeOrigin.DRIFT

    return origin


def lowered_depths(rows: Iterable[Row]) -> frozenset[str]:
    """Return the ids of the rows whose queue depth is lower than wanted."""
    return frozenset(row.id for row in rows if row.setting == DEPTH and _depths(row, below=True))


def depth_levels(
    rows: Iterable[Row],
    ramps: Mapping[str, Ramp],
    order: Order,
    *,
    chosen: Collection[str] | None,
    new: Collection[str],
) -> dict[str, DepthLevel]:
    """Return by id the levels of ``chosen`` queue depths that the kernel lowers on a full queue."""
    found = {}
    for row in rows:
        ramp = ramps.get(row.id) if row.setting == DEPTH else None
        depths = _depths(row)
        if ramp is None or depths is None or not (chosen is None or row.id in chosen):
            continue
        # The id may have been another disk's at the last look, with counters of its own.
        before = None if row.id in new else order.levels.get(row.id)
        found[row.id] = depth_level(*depths, ramp.errors, before)
    return found


def depth_level(depth: int, wanted: int, errors: int, before: DepthLevel | None) -> DepthLevel:
    """Return the level after a look at a LUN with this ``depth``, and so many ``errors`` counted.

    Drivers that track full queues lower the depth of all LUNs of the target by one after more than
    ten TASK SET FULL at the same depth (drivers/scsi/scsi.c: scsi_track_queue_full), lpfc by more
    at once, and with the device's I/O it comes back by one every ``queue_ramp_up_period``
    (drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up). Each of those answers counts in
    ``ioerr_cnt`` (drivers/scsi/scsi_lib.c: scsi_complete); a few other commands do, too, such as
    the polls of smartd.

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
    return row.setting == DEPTH and row.id in levels and levels[row.id].ramping


def _depths(row: Row, *, below: bool = False) -> tuple[int, int] | None:
    """Return the current and the wanted depth, None where the row has no such numbers."""
    current, value = row.current, row.value
    if not (isinstance(current, int) and isinstance(value, int)):
        return None
    return None if below and current >= value else (current, value)


def _meant(machine: Machine, event: DeviceEvent) -> frozenset[str]:
    """Return the ids that an event concerns; none for a device that is gone again.

    When an NVMe controller is connected, the head above its path takes its limits from that path,
    so the head is included.
    """
    try:
        found = named(machine, [event.name])
    except UnknownTargetError:
        return frozenset()
    if event.cause is not Cause.CONNECTED:
        return found
    there = {each.target for each in machine.endpoints if each.id in found}
    return found | {each.id for each in machine.endpoints if there.intersection(each.paths)}
