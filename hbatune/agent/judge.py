"""Decide which wrong values a pass repairs, and detect queue depths that the kernel ramps.

The decision depends on the cause of a wrong value: new device, reset, ramp, a changed share of an
array's limit, or drift. Only a change after hbatune set the value is drift, and the configuration
decides how to handle drift.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import ChangeOrigin, DepthLevel, Handled, Order, SettingChange
from hbatune.facts.attributes import ERROR_COUNTER, parse_error_count, parse_integer
from hbatune.facts.families import family_named
from hbatune.facts.model import Machine
from hbatune.facts.survey import survey_requests
from hbatune.facts.targets import UnknownTargetError, find_named_targets
from hbatune.operations.reconcile import PassFacts, PassResult, PassScope
from hbatune.plan.joint_limits import QUEUE_FULL_THRESHOLD
from hbatune.plan.rows import DONE_OUTCOMES, Outcome, Row, RowKey, State
from hbatune.policy.config import DriftReaction
from hbatune.settings.table import ASYNC_DEPTH, QUEUE_DEPTH, Cause, Value, find_setting
from hbatune.text.limit_text import describe_limit

_COUNTER = 1 << 32
"""The counters wrap to 0 at this value (drivers/scsi/scsi_sysfs.c: iocounterbits)."""
_MAX_LUNS = 2
"""LUNs of a drive behind a driver that restores depths: a drive with two actuators has two."""
_PERIOD = "device/queue_ramp_up_period"
"""Milliseconds; it exists if the driver lets queue_depth be set (drivers/scsi/scsi_sysfs.c)."""


class Ramp(Struct, frozen=True):
    """The errors of all LUNs of the target, and the seconds in which a depth rises by one.

    The kernel lowers and raises all LUNs of a target together (drivers/scsi/scsi_error.c:
    scsi_handle_queue_full). The seconds are read only for a depth below the profile value.
    """

    errors: int
    step_seconds: float | None


def find_ramps(facts: PassFacts) -> dict[str, Ramp]:
    """Return, by id, the ramps of the LUNs whose driver lowers their depth on a full queue."""
    rows, lowered = [row for row in facts.rows if row.setting == QUEUE_DEPTH], set[str]()
    if not rows:
        return {}
    for row in rows:
        depths = _get_depths(row)
        if depths is not None and depths[0] < depths[1]:
            lowered.add(row.id)
    disks = (*facts.machine.endpoints, *facts.siblings)
    luns = [lun for lun in disks if lun.address and family_named(lun.family).depth_ramps]
    wanted = {}
    for lun in luns:
        wanted[lun.sysfs] = (ERROR_COUNTER, _PERIOD) if lun.id in lowered else (ERROR_COUNTER,)
    deadline = facts.config.act.deadline_seconds
    survey = survey_requests(wanted, deadline=deadline, worker_pool=facts.worker_pool)
    # Summed by target: one LUN's full queue lowers all of them (scsi_handle_queue_full).
    errors: dict[str, int] = defaultdict(int)
    for lun in luns:
        errors[lun.scsi_target] += parse_error_count(survey[lun.sysfs]) or 0
    ramps = {}
    for lun in luns:
        period = parse_integer(survey[lun.sysfs], _PERIOD)
        seconds = period / 1000 if isinstance(period, int) else None
        ramps[lun.id] = Ramp(errors[lun.scsi_target], seconds)
    return ramps


def compute_depth_level(
    depth: int, wanted: int, errors: int, previous: DepthLevel | None
) -> DepthLevel:
    """Return the level of a LUN with this ``depth`` and this number of ``errors``.

    Drivers that track full queues lower the depth of all LUNs of the target by one after more than
    ten TASK SET FULL at the same depth (drivers/scsi/scsi.c: scsi_track_queue_full). lpfc lowers it
    by more. During I/O the kernel raises it by one every ``queue_ramp_up_period``
    (drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up). ``ioerr_cnt`` counts each TASK SET FULL
    and every other result except good (drivers/scsi/scsi_lib.c: scsi_complete), for example the few
    polls of smartd.

    ``previous`` is the level at the previous pass, or None at the first one, which reports no
    cause. If a depth falls without errors, an administrator or another tool lowered it, even during
    a ramp. Errors are counted over two passes, since the previous pass may have counted some of the
    errors that lowered the depth.
    """
    if previous is None:
        return DepthLevel(depth, errors, errors)
    full = (errors - previous.earlier) % _COUNTER >= QUEUE_FULL_THRESHOLD
    if depth >= wanted:
        ramping = False
    elif depth == previous.depth:
        ramping = previous.ramping
    else:
        # A depth that rises but is still below the profile value counts as a ramp.
        ramping = full if depth < previous.depth else True
    return DepthLevel(depth, errors, previous.errors, ramping)


def is_ramping(row: Row, levels: Mapping[str, DepthLevel]) -> bool:
    """Return whether the row is a queue depth that the kernel has lowered and is raising."""
    return row.setting == QUEUE_DEPTH and row.id in levels and levels[row.id].ramping


def _get_depths(row: Row) -> tuple[int, int] | None:
    """Return the current depth and the profile value, or None if they are not numbers."""
    current, value = row.current, row.value
    return (current, value) if isinstance(current, int) and isinstance(value, int) else None


class Judge:
    """Decides which settings a pass may write. Its call comes first, with the facts of the pass."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._handled: dict[RowKey, Handled] = {}

    def __call__(self, facts: PassFacts) -> PassScope:
        """Return the scope of the pass and the functions that select skipped settings."""
        order, self._facts = self._order, facts
        self.new = facts.new
        self.chosen: frozenset[str] | None = None  # the ids of the events, or everything
        ids_by_event = {event: _find_event_ids(facts.machine, event) for event in order.events}
        if order.names is not None:
            self.chosen = frozenset().union(*ids_by_event.values())
        self._causes: dict[str, set[Cause]] = {}
        for event, ids in ids_by_event.items():
            if event.cause is not None:
                for id in ids:
                    self._causes.setdefault(id, set()).add(event.cause)
        self._rescaled = set()
        for row in facts.rows:
            if row.state is State.DRIFT and ASYNC_DEPTH in find_setting(row.setting).resets:
                self._rescaled.add((row.id, ASYNC_DEPTH))
        self._ramps = find_ramps(facts)
        self.levels: dict[str, DepthLevel] = {}
        self.resettable: dict[str, tuple[Value, ...]] = {}
        for row in facts.rows:
            if row.setting == QUEUE_DEPTH:
                self._note_depth(row)
        # An event affects other devices too: if a LUN appears, the other LUNs' share shrinks.
        scope = None if self.chosen is None else self.chosen | {id for id, _ in facts.reshared}
        return PassScope(scope, self._choose_skipped, self._is_ignored)

    def change(self, row: Row, reconciled: PassResult) -> SettingChange:
        """Return how a row with a wrong value was handled."""
        assert row.value is not None
        result = reconciled.done.get(row.key, row)
        written = Handled.WRITTEN if result.outcome in DONE_OUTCOMES else Handled.FAILED
        handled = self._handled.get(row.key, written)
        step_seconds = self._ramps[row.id].step_seconds if handled is Handled.RAMPING else None
        is_hanging = result.outcome in (Outcome.BLOCKED, Outcome.STUCK)
        return SettingChange(
            target=row.target,
            id=row.id,
            setting=row.setting,
            before=row.current,
            value=row.value,
            rule=row.rule,
            handled=handled,
            outcome=result.outcome,
            errno=result.errno,
            origin=self._find_origin(row),
            step_seconds=step_seconds,
            reason=describe_limit(result.limit) or None if is_hanging else None,
        )

    def _note_depth(self, row: Row) -> None:
        """Note the level of a queue depth, and the values to which its driver may reset it."""
        is_reset = False
        if row.state in (State.OK, State.DRIFT):
            is_reset = row.state is State.DRIFT and self._find_origin(row) is ChangeOrigin.RESET
            driver_value = self._facts.drivers_own.get(row.key)
            if driver_value is not None and row.value != driver_value:
                self.resettable[row.target] = list_reset_values(row, driver_value)
        ramp, depths = self._ramps.get(row.id), _get_depths(row)
        if ramp is None or depths is None or not (self.chosen is None or row.id in self.chosen):
            return
        # At the last pass, the id may have belonged to another disk with other counters.
        previous = None if row.id in self.new else self._order.levels.get(row.id)
        level = compute_depth_level(*depths, ramp.errors, previous)
        # Without a ramp, although the commands that the reset has ended count as errors.
        self.levels[row.id] = replace(level, ramping=False) if is_reset else level

    def _find_origin(self, row: Row) -> ChangeOrigin:
        """Return the origin of a row's wrong value.

        A driver restores its own value after a reset, which raises an event, and after a firmware
        report, which does not. In the second case only the value shows it. A depth that the kernel
        raises again after full queues passes the driver's value, and only an event distinguishes
        this from a reset.
        """
        order, facts, key = self._order, self._facts, row.key
        # This comes first: a new device has no former value that could be reset or changed.
        if row.id in facts.new:
            return ChangeOrigin.NEW
        causes = self._causes.get(row.id, set())
        if find_setting(row.setting).reset_by & causes:
            return ChangeOrigin.RESET
        tried = key in order.due or key in order.waiting
        if key in facts.reshared and not tried:
            return ChangeOrigin.SHARE
        # A driver has reset only values that differ from the values that hbatune has set.
        driver_value = facts.drivers_own.get(key) if key in facts.unlike_set else None
        if driver_value is not None:
            has_drivers_value = row.current in list_reset_values(row, driver_value)
            evidence = has_drivers_value + (Cause.RESET in causes)
            if evidence > is_ramping(row, order.levels):
                return ChangeOrigin.RESET
        if tried:
            return ChangeOrigin.UNSET
        # The kernel has rescaled it together with a changed nr_requests.
        return ChangeOrigin.RESET if key in self._rescaled else ChangeOrigin.DRIFT

    def _is_ignored(self, row: Row) -> bool:
        """Return whether a row in the scope is neither written nor reported."""
        if self._choose_policy(row) is DriftReaction.IGNORE:
            return True
        is_named = self.chosen is None or row.id in self.chosen
        return not is_named and self._find_origin(row) is not ChangeOrigin.SHARE

    def _choose_skipped(self, drift: Iterable[Row]) -> Collection[RowKey]:
        """Return the settings that must not be written, and note how they are handled."""
        order, self._handled = self._order, {}
        skipped: set[RowKey] = set()
        for row in drift:
            key, origin, policy = row.key, self._find_origin(row), self._choose_policy(row)
            if policy is DriftReaction.IGNORE:
                skipped.add(key)
            # The order matters: a run's switching explains any value, and a ramp is assumed for a
            # low depth before an administrator's change.
            if row.id in self._facts.held:
                self._handled[key] = Handled.HELD
            elif origin is not ChangeOrigin.NEW and is_ramping(row, self.levels):
                self._handled[key] = Handled.RAMPING
            elif key in order.left or (origin is ChangeOrigin.DRIFT and key in order.fought):
                self._handled[key] = Handled.LEFT
            elif origin is ChangeOrigin.UNSET and key in order.waiting:
                self._handled[key] = Handled.WAITING
            elif policy is DriftReaction.REPORT:
                self._handled[key] = Handled.REPORTED
        return skipped | self._handled.keys()

    def _choose_policy(self, row: Row) -> DriftReaction:
        """Return how to handle a row. The configuration only decides about drift."""
        if self._find_origin(row) is not ChangeOrigin.DRIFT:
            return DriftReaction.REPAIR
        daemon = self._facts.config.daemon
        return daemon.drift_of.get(row.setting, daemon.drift)


def list_reset_values(row: Row, driver_value: Value) -> tuple[Value, ...]:
    """Return the wrong values of a row which show that its driver has restored its own value.

    A driver lowers a queue depth without its ceiling, so the kernel then raises it with the first
    command of each LUN of the target (drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up).
    """
    if not (isinstance(driver_value, int) and isinstance(row.value, int)):
        return (driver_value,)
    if driver_value > row.value or not find_setting(row.setting).ramps:
        return (driver_value,)
    return tuple(range(driver_value, min(driver_value + _MAX_LUNS + 1, row.value)))


def _find_event_ids(machine: Machine, event: DeviceEvent) -> frozenset[str]:
    """Return the ids that an event affects, or an empty set for a missing device."""
    try:
        ids = find_named_targets(machine, [event.name])
    except UnknownTargetError:
        return frozenset()
    if event.cause is not Cause.CONNECTED:
        return ids
    # The head above the controller's path takes its limits from that path.
    targets = {endpoint.target for endpoint in machine.endpoints if endpoint.id in ids}
    return ids | {disk.id for disk in machine.endpoints if targets.intersection(disk.paths)}
