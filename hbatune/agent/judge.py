"""Which drift a pass may repair, and which it leaves alone.

What it may repair depends on the cause of a wrong value: new device, reset, ramp, another share of
an array's limit, or drift. Only a change since hbatune set the value is drift, and the site decides
how drift is handled.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import ChangeOrigin, Handled, Order, SettingChange, SettingKey
from hbatune.agent.ramping import depth_levels, is_ramping, lowered_depths
from hbatune.facts.model import Machine
from hbatune.facts.ramps import Ramp, ramps
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.operations.reconcile import Judgement, PassFacts, Reconciled
from hbatune.plan.rows import DONE, Row, State
from hbatune.policy.config import Drift
from hbatune.settings.table import QUEUE_DEPTH, Cause, Value, setting


class Judge:
    """Decides what a pass may touch, from its order and the site's policy.

    Called with the facts of the pass; the other methods use them from then on.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._handled: Mapping[SettingKey, Handled] = {}

    def __call__(self, seen: PassFacts) -> Judgement:
        """Return the scope of the pass and the settings that it leaves alone."""
        order, self._seen = self._order, seen
        self.new = seen.new
        self.chosen = event_targets(seen.machine, order)
        # What is as hbatune has set it, or was never set, no driver has put back.
        put_back = {key: seen.drivers_own[key] for key in seen.unlike_set & seen.drivers_own.keys()}
        self._origin = change_origins(order, seen.machine, seen.new, put_back, seen.reshared)
        self._paces = _paces(seen)
        chosen, new = self.chosen, self.new
        reset = frozenset(
            row.id
            for row in seen.rows
            if row.setting == QUEUE_DEPTH
            and row.state is State.DRIFT
            and self._origin(row) is ChangeOrigin.RESET
        )
        self.levels = depth_levels(
            seen.rows, self._paces, order, chosen=chosen, new=new, reset=reset
        )
        self.resettable = {
            row.target: own
            for row in seen.rows
            if row.setting == QUEUE_DEPTH
            and row.state in (State.OK, State.DRIFT)
            and isinstance(own := seen.drivers_own.get((row.id, QUEUE_DEPTH)), int)
            and row.value != own
        }
        # An event concerns more than it names: where a LUN comes, others have a smaller share.
        scope = None if chosen is None else chosen | {id for id, _ in seen.reshared}
        return Judgement(scope, self._left_alone, self._ignored)

    def change(self, row: Row, made: Reconciled) -> SettingChange:
        """Return how a row that was not as wanted was handled."""
        assert row.value is not None
        key = (row.id, row.setting)
        after = made.done.get(key, row)
        handled = self._handled.get(key)
        if handled is None:
            handled = Handled.WRITTEN if after.outcome in DONE else Handled.FAILED
        ramping = handled is Handled.RAMPING
        return SettingChange(
            target=row.target,
            id=row.id,
            setting=row.setting,
            before=row.current,
            value=row.value,
            rule=row.rule,
            handled=handled,
            outcome=after.outcome,
            errno=after.errno,
            origin=self._origin(row),
            step_seconds=self._paces[row.id].step_seconds if ramping else None,
        )

    def _ignored(self, row: Row) -> bool:
        """Whether a row in the scope is not even reported."""
        if self._policy(row) is Drift.IGNORE:
            return True
        named = self.chosen is None or row.id in self.chosen
        return not named and self._origin(row) is not ChangeOrigin.SHARE

    def _left_alone(self, drift: Iterable[Row]) -> Collection[SettingKey]:
        rows = list(drift)
        self._handled = dict(self._untouched(rows))
        ignored = {(row.id, row.setting) for row in rows if self._policy(row) is Drift.IGNORE}
        return self._handled.keys() | ignored

    def _untouched(self, drift: Iterable[Row]) -> Iterator[tuple[SettingKey, Handled]]:
        """Yield the settings that must not be touched, with the reason."""
        order = self._order
        for row in drift:
            key, why = (row.id, row.setting), self._origin(row)
            # In this order: a run's own switching explains any value, and a ramp explains a low
            # depth before an administrator is assumed.
            if row.id in self._seen.held:
                yield key, Handled.HELD
            elif why is not ChangeOrigin.NEW and is_ramping(row, self.levels):
                yield key, Handled.RAMPING
            elif key in order.left or (why is ChangeOrigin.DRIFT and key in order.fought):
                yield key, Handled.LEFT
            elif why is ChangeOrigin.UNSET and key in order.waiting:
                yield key, Handled.WAITING
            elif self._policy(row) is Drift.REPORT:
                yield key, Handled.REPORTED

    def _policy(self, row: Row) -> Drift:
        """Return how to handle a row: the site decides on drift, not on resets or new devices."""
        if self._origin(row) is not ChangeOrigin.DRIFT:
            return Drift.REPAIR
        return self._seen.config.daemon.about(row.setting)


def event_targets(machine: Machine, order: Order) -> frozenset[str] | None:
    """Return the ids that the order's events concern, None for everything."""
    if order.names is None:
        return None
    return frozenset(id for event in order.events for id in _meant(machine, event))


def change_origins(
    order: Order,
    machine: Machine,
    new: Collection[str],
    drivers_own: Mapping[SettingKey, Value] = MappingProxyType({}),
    reshared: Collection[SettingKey] = (),
) -> Callable[[Row], ChangeOrigin]:
    """Return a function that gives the origin of a row's wrong value; ``new`` are ids.

    ``drivers_own`` are the values to which a driver puts back what was set. It does so after a
    reset, of which there is an event, and at its firmware's word, of which there is none: then
    the value itself is the evidence. A depth that the kernel raises again passes the driver's own
    value on its way, and only an event tells that from a reset. ``reshared`` are the depths that
    have been the LUN's share of its array's limit (``PassFacts``).
    """
    causes: dict[str, set[Cause]] = {}
    for event in order.events:
        if event.cause is not None:
            for id in _meant(machine, event):
                causes.setdefault(id, set()).add(event.cause)

    def origin(row: Row) -> ChangeOrigin:
        # Before the others: a new device has no former value that could have been reset or changed.
        if row.id in new:
            return ChangeOrigin.NEW
        happened = causes.get(row.id, set())
        if setting(row.setting).reset_by & happened:
            return ChangeOrigin.RESET
        key = (row.id, row.setting)
        tried = key in order.due or key in order.waiting
        if key in reshared and not tried:
            return ChangeOrigin.SHARE
        own = drivers_own.get(key)
        if own is not None:
            evidence = (row.current == own) + (Cause.RESET in happened)
            if evidence > is_ramping(row, order.levels):
                return ChangeOrigin.RESET
        return ChangeOrigin.UNSET if tried else ChangeOrigin.DRIFT

    return origin


def _paces(seen: PassFacts) -> dict[str, Ramp]:
    """Return by id the facts that tell whether the kernel has lowered a wanted queue depth."""
    if not any(row.setting == QUEUE_DEPTH for row in seen.rows):
        return {}
    return ramps(
        (*seen.machine.endpoints, *seen.siblings),
        lowered_depths(seen.rows),
        deadline=seen.config.act.deadline_seconds,
        worker_pool=seen.worker_pool,
    )


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
