"""Whether the kernel has lowered a queue depth on a full queue, and raises it again.

Which drift a pass may repair, and which it leaves alone.

What it may repair depends on the cause of a wrong value: new device, reset, ramp, another share of
an array's limit, or drift. Only a change since hbatune set the value is drift, and the site decides
how drift is handled.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import ChangeOrigin, DepthLevel, Handled, Order, SettingChange, SettingKey
from hbatune.facts.model import Machine
from hbatune.facts.ramps import Ramp, ramps
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.operations.reconcile import Judgement, PassFacts, Reconciled
from hbatune.plan.make import QUEUE_FULL_THRESHOLD
from hbatune.plan.rows import DONE, Row, State
from hbatune.policy.config import Drift
from hbatune.settings.table import QUEUE_DEPTH, Cause, Value, setting

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
    full = (errors - before.earlier) % _COUNTER >= QUEUE_FULL_THRESHOLD
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
    there = {endpoint.target for endpoint in machine.endpoints if endpoint.id in found}
    return found | {
        endpoint.id for endpoint in machine.endpoints if there.intersection(endpoint.paths)
    }
