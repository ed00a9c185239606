"""Whose doing it is that a setting is not as the profile wants it. Pure.

Only what was changed since hbatune was there is drift, and the site's to say what to do about.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from hbatune.agent.events import Event
from hbatune.agent.orders import Order, Origin
from hbatune.agent.ramps import Level, level
from hbatune.facts.model import Machine
from hbatune.facts.ramps import Ramp
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.plan.rows import Row
from hbatune.settings.table import Cause, setting

DEPTH = "queue_depth"


def meant(machine: Machine, order: Order) -> frozenset[str] | None:
    """Return the ids that the order's events are about, None for everything."""
    if order.names is None:
        return None
    return frozenset(id for event in order.events for id in _meant(machine, event))


def origins(order: Order, machine: Machine, new: Collection[str]) -> Callable[[Row], Origin]:
    """Return what says why a row is not as the profile wants it; ``new`` are ids."""
    causes: dict[str, set[Cause]] = {}
    for event in order.events:
        if event.cause is not None:
            for id in _meant(machine, event):
                causes.setdefault(id, set()).add(event.cause)

    def origin(row: Row) -> Origin:
        if row.id in new:
            return Origin.NEW
        if setting(row.setting).reset_by & causes.get(row.id, set()):
            return Origin.RESET
        if (row.id, row.setting) in order.due | order.waiting:
            return Origin.UNSET
        return Origin.DRIFT

    return origin


def lowered(rows: Iterable[Row]) -> frozenset[str]:
    """Return the ids of those whose queue depth is lower than wanted."""
    return frozenset(row.id for row in rows if row.setting == DEPTH and _depths(row, below=True))


def levels_of(
    rows: Iterable[Row],
    ramps: Mapping[str, Ramp],
    order: Order,
    *,
    chosen: Collection[str] | None,
    new: Collection[str],
) -> dict[str, Level]:
    """Return by id how the depths stand that a full queue lowers, of what was ``chosen``."""
    found = {}
    for row in rows:
        ramp = ramps.get(row.id) if row.setting == DEPTH else None
        depths = _depths(row)
        if ramp is None or depths is None or not (chosen is None or row.id in chosen):
            continue
        before = None if row.id in new else order.levels.get(row.id)
        found[row.id] = level(*depths, ramp.errors, before)
    return found


def is_ramping(row: Row, levels: Mapping[str, Level]) -> bool:
    """Whether the row is a queue depth that the kernel has lowered and raises again."""
    return row.setting == DEPTH and row.id in levels and levels[row.id].ramping


def _depths(row: Row, *, below: bool = False) -> tuple[int, int] | None:
    """Return the depth that is and the one that is to be, None where there are none."""
    current, value = row.current, row.value
    if not (isinstance(current, int) and isinstance(value, int)):
        return None
    return None if below and current >= value else (current, value)


def _meant(machine: Machine, event: Event) -> frozenset[str]:
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
