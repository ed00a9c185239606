"""One pass: look, plan, write what differs and may be written, and say what came of it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from hbatune.act import claims, hold, irqbalance, journal, locked, paths
from hbatune.act.apply import Means, apply
from hbatune.act.lock import Lock
from hbatune.act.rollback import rollback
from hbatune.agent.damping import Key
from hbatune.agent.orders import Change, Handled, Order, Reason, Report
from hbatune.errors import HbatuneError, LockedError, UsageError
from hbatune.facts.machine import gather, without_attributes
from hbatune.facts.model import Machine, Role
from hbatune.facts.targets import UnknownTargetError, named, targets
from hbatune.policy.config import Config, Drift
from hbatune.policy.model import Profile
from hbatune.probe import history
from hbatune.rows import Outcome, Plan, Row, State
from hbatune.situation import Situation, configuration, look
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
        if _superseded(profile):
            return Report(profile=profile.name, locked=True)
        stuck = claims.settle(paths.CLAIMS, patience=PATIENCE)
        situation = look(config, profile, stuck=stuck, crew=crew)
        machine = situation.machine
        chosen = _ids(machine, order.names)
        plan = situation.plan()
        about = _policy(order, config)
        drift = [
            row
            for row in plan.drift
            if (chosen is None or row.id in chosen) and about(row) is not Drift.IGNORE
        ]
        handled = dict(_untouched(drift, order, hold.held(paths.HOLDS), about))
        todo = [row for row in drift if (row.id, row.setting) not in handled]
        done = _written(situation, plan, todo, crew) if todo else {}
        problem = _tell_irqbalance(machine, plan.rows)
    return Report(
        profile=profile.name,
        endpoints=len(machine.endpoints),
        changes=tuple(_change(row, handled, done) for row in drift),
        unreadable=sum(row.state is State.UNREADABLE for row in plan.rows),
        appeared=() if chosen is None else _endpoints(machine, chosen),
        error=problem,
        machine=without_attributes(machine),
        ids=frozenset(targets(machine)),
        depths={
            row.id: row.value
            for row in plan.rows
            if row.setting == "queue_depth" and isinstance(row.value, int)
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
            filed, _ = journal.load(paths.JOURNAL, machine.boot_id)
            rows = rollback(machine, filed, _means(config, crew), stuck=stuck)
            irqbalance.leave(())
    except (HbatuneError, OSError) as error:
        return _encode(Report(error=str(error)))
    lost = sum(not row.done for row in rows)
    return _encode(Report(error=f"{lost} values could not be put back" if lost else None))


def _means(config: Config, crew: Crew) -> Means:
    act = config.act
    return Means(paths.JOURNAL, paths.CLAIMS, act.workers, act.deadline_seconds, crew=crew)


def _ids(machine: Machine, names: Collection[str] | None) -> frozenset[str] | None:
    """Return what the names mean, None for everything; what is gone again means nothing."""
    if names is None:
        return None
    found: set[str] = set()
    for name in names:
        try:
            found |= named(machine, [name])
        except UnknownTargetError:
            continue
    return frozenset(found)


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


def _policy(order: Order, config: Config) -> Callable[[Row], Drift]:
    """Return what to do about each row: what is new has not drifted, it was never tuned."""
    known = order.known

    def about(row: Row) -> Drift:
        new = order.reason is Reason.EVENT or (known is not None and row.id not in known)
        return Drift.REPAIR if new else config.daemon.about(row.setting)

    return about


def _untouched(
    drift: Iterable[Row], order: Order, held: Collection[str], about: Callable[[Row], Drift]
) -> Iterator[tuple[Key, Handled]]:
    """Yield what is not to be touched, and why not."""
    for row in drift:
        key = (row.id, row.setting)
        if row.id in held:
            yield key, Handled.HELD
        elif key in order.left:
            yield key, Handled.LEFT
        elif key in order.failing:
            yield key, Handled.GIVEN_UP
        elif about(row) is Drift.REPORT:
            yield key, Handled.REPORTED


def _written(
    situation: Situation, plan: Plan, todo: Collection[Row], crew: Crew
) -> Mapping[Key, Row]:
    """Write these rows and return them with their outcomes, by id and setting."""
    means = _means(situation.config, crew)
    filed, _ = journal.load(paths.JOURNAL, situation.machine.boot_id)
    rows = apply(situation.machine, msgspec.structs.replace(plan, rows=tuple(todo)), filed, means)
    locked.remember(paths.LOCKED, plan, rows)
    return {(row.id, row.setting): row for row in rows}


def _change(row: Row, handled: Mapping[Key, Handled], done: Mapping[Key, Row]) -> Change:
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
    )


def _tell_irqbalance(machine: Machine, rows: Iterable[Row]) -> str | None:
    """Have irqbalance leave what was placed: at boot nobody else does. Return why it could not."""
    ids = {row.id for row in rows if row.setting == "irq_affinity"}
    placed = {each.irq for each in machine.vectors if each.id in ids and each.role is Role.DATA}
    try:
        if placed - irqbalance.placed():
            irqbalance.leave(placed | irqbalance.placed())
    except OSError as error:
        return f"irqbalance could not be told which interrupts to leave: {error.strerror}"
    return None
