"""One pass of the daemon: which drift it may repair, which it leaves, and its report.

What it may repair depends on the cause of a wrong value: new device, reset, ramp or drift. Only a
change since hbatune set the value is drift, and the site decides how drift is handled.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from hbatune.act import paths
from hbatune.act.lock import Lock
from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import (
    ChangeOrigin,
    DepthLevel,
    Handled,
    Order,
    PassReason,
    PassReport,
    SettingChange,
    SettingKey,
)
from hbatune.errors import HbatuneError, LockedError
from hbatune.facts.machine import without_attributes
from hbatune.facts.model import Machine
from hbatune.facts.ramps import Ramp, ramps
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.operations import rollback
from hbatune.operations.context import Context, SilentReporter
from hbatune.operations.notes import Note, TaskFailed
from hbatune.operations.reconcile import Judgement, PassFacts, Reconciled, reconcile
from hbatune.plan.rows import DONE, Row, State
from hbatune.policy.config import Config, Drift
from hbatune.policy.model import Profile
from hbatune.probe import history
from hbatune.probe.history import latest_knees
from hbatune.settings.table import Cause, Value, setting
from hbatune.workers import WorkerPool

PATIENCE = 0.5
"""Seconds to wait for writers that an interrupted run left."""

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(PassReport).decode

DEPTH = "queue_depth"
FULLS = 11
"""Number of TASK SET FULL answers after which a depth is lowered: more than ten."""
_COUNTER = 1 << 32
"""The counters wrap to 0 at this value (drivers/scsi/scsi_sysfs.c: iocounterbits)."""


def run(order: Order, config: Config, profile: Profile) -> bytes:
    """Make the pass and return its report, encoded (``decode``). Nothing is raised."""
    try:
        return _encode(_pass(order, config, profile))
    except LockedError:
        return _encode(PassReport(profile=profile.name, locked=True))
    except HbatuneError as error:
        return _encode(PassReport(profile=profile.name, error=error.message, hint=error.hint))
    except OSError as error:
        return _encode(PassReport(profile=profile.name, error=str(error)))


def put_back(config: Config) -> bytes:
    """Put back everything in the journal. Nothing is raised."""
    problems = _Problems()
    try:
        rows = rollback.put_back(_context(problems), config)
    except (HbatuneError, OSError) as error:
        return _encode(PassReport(error=str(error)))
    lost = sum(not row.done for row in rows)
    problem = f"could not be put back: {lost} of {len(rows)} values" if lost else problems.last
    return _encode(PassReport(error=problem))


class _Problems(SilentReporter):
    """A reporter that keeps the last failure: a pass has one line for it."""

    def __init__(self) -> None:
        self.last: str | None = None

    def note(self, note: Note) -> None:
        """Keep the note's error where a task has failed."""
        if isinstance(note, TaskFailed):
            self.last = note.error.message


def _context(problems: _Problems) -> Context:
    """Return the daemon's context: it waits for no lock, and tells irqbalance of changes only."""
    return Context(lock=lambda: Lock(paths.LOCK), reporter=problems, patience=PATIENCE, warns=False)


def _pass(order: Order, config: Config, profile: Profile) -> PassReport:
    problems, judge = _Problems(), _Judge(order)
    # Only a requested reload puts back settings that the profile no longer wants: a rules file that
    # is missing for a moment must not.
    put_back = order.reason is PassReason.RELOAD
    made = reconcile(_context(problems), config, profile, judge, put_back=put_back)
    if made is None:
        # Superseded: the daemon repeats the order with the configuration and record then in force.
        return PassReport(profile=profile.name, locked=True)
    chosen, new, machine = judge.chosen, judge.new, made.machine
    return PassReport(
        profile=profile.name,
        endpoints=len(machine.endpoints),
        changes=tuple(judge.change(row, made) for row in made.drift.values()),
        unreadable=sum(row.state is State.UNREADABLE for row in made.rows),
        looked=() if chosen is None else _endpoints(machine, chosen),
        new=_endpoints(machine, new if chosen is None else new & chosen),
        error=problems.last,
        # The monitor needs no attributes, and the daemon stays small without them.
        machine=without_attributes(machine),
        levels=judge.levels,
        resettable=judge.resettable,
        depths={
            row.id: row.value
            for row in made.rows
            if row.setting == DEPTH and isinstance(row.value, int)
        },
        knees=_knees(),
        unmatched=made.unmatched,
    )


class _Judge:
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
        self._origin = change_origins(order, seen.machine, seen.new, seen.drivers_own)
        self._paces = _paces(seen.machine, seen.rows, seen.config, seen.worker_pool)
        chosen, new = self.chosen, self.new
        reset = frozenset(
            row.id
            for row in seen.rows
            if row.setting == DEPTH
            and row.state is State.DRIFT
            and self._origin(row) is ChangeOrigin.RESET
        )
        self.levels = depth_levels(
            seen.rows, self._paces, order, chosen=chosen, new=new, reset=reset
        )
        self.resettable = {
            row.target: own
            for row in seen.rows
            if row.setting == DEPTH
            and row.state in (State.OK, State.DRIFT)
            and isinstance(own := seen.drivers_own.get((row.id, DEPTH)), int)
            and row.value != own
        }
        return Judgement(chosen, self._left_alone, lambda row: self._policy(row) is Drift.IGNORE)

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


def _knees() -> dict[str, int]:
    """Return the knees that probes have found; none from a history that cannot be read."""
    try:
        return latest_knees(history.load(paths.HISTORY).records)
    except HbatuneError:
        return {}


def _endpoints(machine: Machine, ids: Collection[str]) -> tuple[str, ...]:
    return tuple(each.id for each in machine.endpoints if each.id in ids)


def _paces(
    machine: Machine, rows: Iterable[Row], config: Config, worker_pool: WorkerPool
) -> dict[str, Ramp]:
    """Return by id the facts that tell whether the kernel has lowered a wanted queue depth."""
    if not any(row.setting == DEPTH for row in rows):
        return {}
    deadline = config.act.deadline_seconds
    return ramps(
        machine.endpoints, lowered_depths(rows), deadline=deadline, worker_pool=worker_pool
    )


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
) -> Callable[[Row], ChangeOrigin]:
    """Return a function that gives the origin of a row's wrong value; ``new`` are ids.

    ``drivers_own`` are the values to which a driver puts settings back by itself. It does so after
    a reset, of which there is an event, and at its firmware's word, of which there is none: then
    the value itself is the evidence. A depth that the kernel raises again passes the driver's own
    value on its way, and only an event tells that from a reset.
    """
    causes: dict[str, set[Cause]] = {}
    for event in order.events:
        if event.cause is not None:
            for id in _meant(machine, event):
                causes.setdefault(id, set()).add(event.cause)

    def origin(row: Row) -> ChangeOrigin:
        # First of the four: a new device has no former value that could have been reset or changed.
        if row.id in new:
            return ChangeOrigin.NEW
        happened = causes.get(row.id, set())
        if setting(row.setting).reset_by & happened:
            return ChangeOrigin.RESET
        own = drivers_own.get((row.id, row.setting))
        if own is not None:
            evidence = (row.current == own) + (Cause.RESET in happened)
            if evidence > is_ramping(row, order.levels):
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
    reset: Collection[str] = (),
) -> dict[str, DepthLevel]:
    """Return by id the levels of ``chosen`` queue depths that the kernel lowers on a full queue.

    Those that were ``reset`` do not ramp, although the commands that a reset has ended count as
    errors.
    """
    found = {}
    for row in rows:
        ramp = ramps.get(row.id) if row.setting == DEPTH else None
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
