"""Makes a machine as its profile wants it again: one pass of the daemon, from lock to journal.

What is to be left alone, and why, is the caller's to judge; how it is written is as for `apply`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import claims, hands_off, journal, lock, seen
from hbatune.errors import UsageError
from hbatune.facts.model import Machine
from hbatune.operations.apply import write
from hbatune.operations.context import Context, Phase
from hbatune.operations.irqbalance import keep_placed
from hbatune.operations.notes import Task, TaskFailed
from hbatune.operations.situation import Situation, configuration, look
from hbatune.plan.memory import require_affordable, without_requests
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.config import Config
from hbatune.policy.model import Profile
from hbatune.settings.table import BASES
from hbatune.workers import Crew

Key = tuple[str, str]
"""The id of a target and the name of a setting."""


class PassFacts(Struct, frozen=True):
    """What a pass has found before it writes anything.

    ``rows`` are the whole plan's. By id, ``new`` are the targets that no earlier run has seen, and
    ``held`` those that a run is measuring with.
    """

    machine: Machine
    rows: tuple[Row, ...]
    new: frozenset[str]
    held: frozenset[str]
    config: Config
    crew: Crew


class Judgement(Struct, frozen=True):
    """What a pass is about: the ids that were ``chosen``, None for everything.

    ``left_alone`` returns what is not to be touched of rows that drift, and ``ignored`` says of one
    of them that it is not even to be reported.
    """

    chosen: Collection[str] | None
    left_alone: Callable[[Iterable[Row]], Collection[Key]]
    ignored: Callable[[Row], bool] = lambda row: False


class Reconciled(Struct, frozen=True):
    """What a pass came to.

    ``drift`` are the rows it was about that were not as wanted, less the ignored, as they were
    found; ``done`` those that were written, with their outcomes, by id and setting. Both hold what
    a write of another setting has reset.
    """

    machine: Machine
    rows: tuple[Row, ...]
    drift: Mapping[Key, Row]
    done: Mapping[Key, Row]


def reconcile(
    context: Context,
    config: Config,
    profile: Profile,
    judge: Callable[[PassFacts], Judgement],
    *,
    put_back: bool = False,
) -> Reconciled | None:
    """Make one pass under the lock; None where nothing is to be set with this profile any more.

    With ``put_back``, what the profile does not want any more goes back to its baseline. What goes
    wrong while others are written is a note. LockedError, and JournalError where the baselines
    cannot be made durable: nothing is written then.
    """
    paths = context.paths
    with context.lock(), Crew() as crew:
        if hands_off.load().whole or _superseded(profile):
            return None
        stuck = claims.settle(paths.claims, patience=context.patience)
        situation = look(config, profile, stuck=stuck, crew=crew, paths=paths)
        machine = situation.machine
        new = frozenset(seen.unseen(paths.seen, machine))
        held = frozenset(lock.held(paths.holds))
        whole = situation.plan(reconcile=put_back)
        judgement = judge(PassFacts(machine, whole.rows, new, held, config, crew))
        plan, untouched = _plan(situation, whole, judgement, put_back=put_back)
        drift = [row for row in plan.drift if _concerns(row, situation, judgement)]
        todo = [row for row in drift if _key(row) not in untouched]
        done = _write(context, situation, plan, todo, untouched, held, crew)
        changed = {_key(row): row for row in drift}
        # What a write of another setting has reset is written again, and is a change, too.
        changed |= {key: row for key, row in done.items() if row.outcome is not Outcome.KEPT}
        # What the write has shown to be nobody's to set has not drifted.
        changed = {key: row for key, row in changed.items() if row.state is not State.FIXED}
        unfinished = {row.id for row in done.values() if row.outcome is Outcome.CONFLICT} | held
        seen.remember(paths.seen, machine, judgement.chosen, unfinished=unfinished)
    return Reconciled(machine, plan.rows, changed, done)


def _superseded(profile: Profile) -> bool:
    """Whether another profile has become the active one since the pass was ordered, or none.

    It does not change now: an apply and a rollback hold the lock.
    """
    try:
        return configuration().profile != profile.name
    except UsageError:
        return False  # the last good configuration stays


def _plan(
    situation: Situation, whole: Plan, judgement: Judgement, *, put_back: bool
) -> tuple[Plan, Collection[Key]]:
    """Return the plan for what may be written, and what of it is left alone."""
    untouched = judgement.left_alone(whole.drift)
    if not any(name in BASES for _, name in untouched):
        return whole, untouched
    # That stays as it is, and what hangs on it is planned for it.
    plan = situation.plan(
        reconcile=put_back, untouched=lambda id, setting: (id, setting) in untouched
    )
    return plan, judgement.left_alone(plan.drift)


def _concerns(row: Row, situation: Situation, judgement: Judgement) -> bool:
    """Whether the pass is about a row that drifts."""
    chosen = judgement.chosen is None or row.id in judgement.chosen
    return chosen and not situation.hands_off.covers(row.id) and not judgement.ignored(row)


def _write(
    context: Context,
    situation: Situation,
    plan: Plan,
    todo: Collection[Row],
    untouched: Collection[Key],
    held: Collection[str],
    crew: Crew,
) -> Mapping[Key, Row]:
    """Write these rows; return them with their outcomes, by id and setting.

    Rows whose requests would take too much memory are left out.
    """
    machine, written = situation.machine, {_key(row) for row in todo}
    # What was left as it is has not been placed. Of what is held, or not looked at in this pass,
    # nothing changes for irqbalance.
    speaking = [row for row in plan.rows if _key(row) not in untouched]
    silent = {row.id for row in speaking if row.state is State.DRIFT and _key(row) not in written}
    ids = {each.id for each in machine.vectors} - silent - set(held)
    if not todo:
        keep_placed(context, machine, speaking, ids)
        return {}
    drifting = {row.id for row in todo}
    right = (row for row in plan.rows if row.id in drifting and row.state is State.OK)
    wanted = replace(plan, rows=(*todo, *right))
    try:
        require_affordable(wanted)
    except UsageError as error:
        context.reporter.note(TaskFailed(Task.FIT_MEMORY, error))
        wanted = without_requests(wanted)
    filed, _ = journal.load_for(context.paths.journal, machine)
    with context.writing(Phase.WRITING, len(drifting), situation.config.act, crew) as means:
        done = write(context, situation, wanted, filed, means, rows=speaking, ids=ids)
    return {_key(row): row for row in done.rows}


def _key(row: Row) -> Key:
    return row.id, row.setting
