"""One pass: look, plan, write what differs and may be written, and say what came of it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from hbatune.act import claims, hands_off, interrupts, journal, lock, paths, seen
from hbatune.act.apply import Means, UnfinishedError, apply
from hbatune.act.lock import Lock
from hbatune.act.rollback import rollback
from hbatune.agent.attribution import DEPTH, is_ramping, levels_of, lowered, meant, origins
from hbatune.agent.damping import Key
from hbatune.agent.orders import Change, Handled, Order, Origin, Reason, Report
from hbatune.agent.ramps import Level
from hbatune.errors import HbatuneError, LockedError, UsageError
from hbatune.facts.machine import gather, without_attributes
from hbatune.facts.model import Machine
from hbatune.facts.ramps import Ramp, ramps
from hbatune.operations.situation import Situation, configuration, look
from hbatune.plan.memory import require_affordable, without_requests
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.config import Config, Drift
from hbatune.policy.model import Profile
from hbatune.probe import history
from hbatune.settings.table import BASES
from hbatune.watch.knees import knees
from hbatune.workers import Crew

PATIENCE = 0.5
"""Seconds to wait for writers that an interrupted run left."""
_DONE = frozenset({Outcome.KEPT, Outcome.WRITTEN})

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Report).decode


def run(order: Order, config: Config, profile: Profile) -> bytes:
    """Make the pass and return its report, encoded (``decode``). Nothing is raised."""
    try:
        return _encode(_pass(order, config, profile))
    except LockedError:
        return _encode(Report(profile=profile.name, locked=True))
    except HbatuneError as error:
        return _encode(Report(profile=profile.name, error=error.message, hint=error.hint))
    except OSError as error:
        return _encode(Report(profile=profile.name, error=str(error)))


def _pass(order: Order, config: Config, profile: Profile) -> Report:
    with Lock(paths.LOCK), Crew() as crew:
        if hands_off.load().whole or _superseded(profile):
            return Report(profile=profile.name, locked=True)
        stuck = claims.settle(paths.CLAIMS, patience=PATIENCE)
        situation = look(config, profile, stuck=stuck, crew=crew)
        machine = situation.machine
        chosen = meant(machine, order)
        new = seen.unseen(paths.SEEN, machine)
        origin = origins(order, machine, new)
        about = _policy(origin, config)
        held = lock.held(paths.HOLDS)
        # Only who asks for it has a profile's former settings put back: a rules file that is
        # missing for a moment is no reason.
        reconcile = order.reason is Reason.RELOAD
        whole = situation.plan(reconcile=reconcile)
        paces = _paces(machine, whole.rows, config, crew)
        levels = levels_of(whole.rows, paces, order, chosen=chosen, new=new)

        def left_alone(rows: Iterable[Row]) -> dict[Key, Handled | None]:
            ignored = {_key(row): None for row in rows if about(row) is Drift.IGNORE}
            return {**dict(_untouched(rows, order, held, levels, origin, about)), **ignored}

        untouched = left_alone(whole.drift)
        plan, handled = whole, untouched
        if any(name in BASES for _, name in untouched):
            # That stays as it is, and what hangs on it is planned for it.
            plan = situation.plan(
                reconcile=reconcile, untouched=lambda id, setting: (id, setting) in untouched
            )
            handled = left_alone(plan.drift)
        drift = [
            row
            for row in plan.drift
            if (chosen is None or row.id in chosen)
            and not situation.hands_off.covers(row.id)
            and handled.get(_key(row), Handled.WRITTEN) is not None
        ]
        todo = [row for row in drift if _key(row) not in handled]
        done, problem = _written(situation, plan, todo, crew)
        problem = _tell_irqbalance(machine, plan.rows, handled, done) or problem
        changed = {_key(row): row for row in drift}
        # What a write of another setting has reset is written again, and is a change, too.
        changed |= {key: row for key, row in done.items() if row.outcome is not Outcome.KEPT}
        changes = tuple(_change(row, handled, done, origin(row), paces) for row in changed.values())
        unfinished = {each.id for each in changes if each.outcome is Outcome.CONFLICT} | held
        seen.remember(paths.SEEN, machine, chosen, unfinished=unfinished)
    return Report(
        profile=profile.name,
        endpoints=len(machine.endpoints),
        changes=changes,
        unreadable=sum(row.state is State.UNREADABLE for row in plan.rows),
        looked=() if chosen is None else _endpoints(machine, chosen),
        new=_endpoints(machine, new if chosen is None else new & chosen),
        error=problem,
        machine=without_attributes(machine),
        levels=levels,
        depths={
            row.id: row.value
            for row in plan.rows
            if row.setting == DEPTH and isinstance(row.value, int)
        },
        knees=_knees(),
    )


def _knees() -> dict[str, int]:
    """Return the knees that probes have found; a history that cannot be read has none."""
    try:
        return knees(history.load(paths.HISTORY).records)
    except HbatuneError:
        return {}


def put_back(config: Config) -> bytes:
    """Put back all that the journal holds. Nothing is raised."""
    try:
        with Lock(paths.LOCK), Crew() as crew:
            stuck = claims.settle(paths.CLAIMS, patience=PATIENCE)
            machine = gather((), deadline=config.act.deadline_seconds, crew=crew)
            filed, _ = journal.load_for(paths.JOURNAL, machine)
            rows = rollback(machine, filed, _means(config, crew), stuck=stuck)
            interrupts.leave(())
    except (HbatuneError, OSError) as error:
        return _encode(Report(error=str(error)))
    lost = sum(not row.done for row in rows)
    return _encode(Report(error=f"{lost} values could not be put back" if lost else None))


def _means(config: Config, crew: Crew) -> Means:
    act = config.act
    return Means(paths.JOURNAL, paths.CLAIMS, act.workers, act.deadline_seconds, crew=crew)


def _endpoints(machine: Machine, ids: Collection[str]) -> tuple[str, ...]:
    return tuple(each.id for each in machine.endpoints if each.id in ids)


def _superseded(profile: Profile) -> bool:
    """Whether another profile has become the active one since the pass was ordered, or none.

    Nobody else changes it now: an apply and a rollback hold the lock.
    """
    try:
        return configuration().profile != profile.name
    except UsageError:
        return False  # the last good configuration stays


def _policy(origin: Callable[[Row], Origin], config: Config) -> Callable[[Row], Drift]:
    """Return what to do about each row: only what was changed since is the site's to say."""

    def about(row: Row) -> Drift:
        drifted = origin(row) is Origin.DRIFT
        return config.daemon.about(row.setting) if drifted else Drift.REPAIR

    return about


def _key(row: Row) -> Key:
    return row.id, row.setting


def _paces(machine: Machine, rows: Iterable[Row], config: Config, crew: Crew) -> dict[str, Ramp]:
    """Return by id what tells whether the kernel has lowered a depth that is to be set."""
    if not any(row.setting == DEPTH for row in rows):
        return {}
    deadline = config.act.deadline_seconds
    return ramps(machine.endpoints, lowered(rows), deadline=deadline, crew=crew)


def _untouched(
    drift: Iterable[Row],
    order: Order,
    held: Collection[str],
    levels: Mapping[str, Level],
    origin: Callable[[Row], Origin],
    about: Callable[[Row], Drift],
) -> Iterator[tuple[Key, Handled]]:
    """Yield what is not to be touched, and why not."""
    for row in drift:
        key, why = (row.id, row.setting), origin(row)
        if row.id in held:
            yield key, Handled.HELD
        elif why is not Origin.NEW and is_ramping(row, levels):
            yield key, Handled.RAMPING
        elif key in order.left or (why is Origin.DRIFT and key in order.fought):
            yield key, Handled.LEFT
        elif why is Origin.UNSET and key in order.waiting:
            yield key, Handled.WAITING
        elif about(row) is Drift.REPORT:
            yield key, Handled.REPORTED


def _written(
    situation: Situation, plan: Plan, todo: Collection[Row], crew: Crew
) -> tuple[Mapping[Key, Row], str | None]:
    """Write these rows; return them with their outcomes, by id and setting, and what went wrong.

    Rows whose requests would take too much memory are left out.
    """
    if not todo:
        return {}, None
    problem = None
    ids = {row.id for row in todo}
    right = (row for row in plan.rows if row.id in ids and row.state is State.OK)
    chosen = msgspec.structs.replace(plan, rows=(*todo, *right))
    try:
        require_affordable(chosen)
    except UsageError as error:
        problem, chosen = error.message, without_requests(chosen)
    means = _means(situation.config, crew)
    filed, _ = journal.load_for(paths.JOURNAL, situation.machine)
    try:
        rows = apply(situation.machine, chosen, filed, means)
    except UnfinishedError as error:
        problem, rows = error.message, error.rows
    interrupts.remember_immovable(paths.LOCKED, plan, rows)
    return {_key(row): row for row in rows}, problem


def _change(
    row: Row,
    handled: Mapping[Key, Handled | None],
    done: Mapping[Key, Row],
    origin: Origin,
    paces: Mapping[str, Ramp],
) -> Change:
    assert row.value is not None
    key = (row.id, row.setting)
    after = done.get(key, row)
    kept = handled.get(key)
    if kept is None:
        kept = Handled.WRITTEN if after.outcome in _DONE else Handled.FAILED
    return Change(
        target=row.target,
        id=row.id,
        setting=row.setting,
        before=row.current,
        value=row.value,
        rule=row.rule,
        handled=kept,
        outcome=after.outcome,
        errno=after.errno,
        origin=origin,
        step_seconds=paces[row.id].step_seconds if kept is Handled.RAMPING else None,
    )


def _tell_irqbalance(
    machine: Machine,
    rows: Iterable[Row],
    handled: Mapping[Key, Handled | None],
    done: Mapping[Key, Row],
) -> str | None:
    """Have irqbalance leave what is placed now, and nothing else. Return why it could not.

    What was left as it is has not been placed; of what is held, nothing changes.
    """
    held = {id for (id, _), why in handled.items() if why is Handled.HELD}
    now = (done.get((row.id, row.setting), row) for row in rows)
    placed = [row for row in now if (row.id, row.setting) not in handled]
    try:
        wanted = interrupts.to_leave(machine, placed, {each.id for each in machine.vectors} - held)
        if wanted != interrupts.placed():
            interrupts.leave(wanted)
    except OSError as error:
        return f"irqbalance could not be told which interrupts to leave: {error.strerror}"
    return None
