"""Brings a machine back to its profile: one pass of the daemon, from lock to journal.

The caller decides which targets are left alone, and why; writes go the way of `apply`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import files, journal, lock, marks, rollback_record
from hbatune.act.journal import Journal, JournalError, LostError
from hbatune.act.kept_journal import KeptJournal
from hbatune.act.lock import Claim
from hbatune.act.marks import with_udev_baselines
from hbatune.act.paths import Paths
from hbatune.act.rollback_record import RollbackRecords
from hbatune.errors import UsageError
from hbatune.facts.families import family_named
from hbatune.facts.model import Endpoint, Machine
from hbatune.operations.apply import mark_seen, write
from hbatune.operations.boot_files import keep_placed_interrupts
from hbatune.operations.context import Context, Phase, Task, TaskFailed
from hbatune.operations.last_look import MachineCache, look_at_part
from hbatune.operations.situation import Situation, look
from hbatune.plan.joint_limits import require_affordable, without_requests
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.budget import SHARE_OF
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile
from hbatune.settings.table import BASES, Value
from hbatune.workers import WorkerPool

Key = tuple[str, str]
"""The id of a target and the name of a setting."""


class PassFacts(Struct, frozen=True):
    """The facts of a pass before it writes anything.

    ``rows`` are all of the plan's. ``siblings`` are LUNs outside of the machine that share a SCSI
    target with one of it. By id, ``new`` are the targets that no earlier run has seen, and
    ``held`` those that a run is switching for its measurements. ``drivers_own`` are the values to
    which a driver puts settings back by itself (``Family.resets``), by id and setting, and
    ``unlike_set`` those of these settings that are not as hbatune has set them. ``reshared`` are
    the depths that still are as hbatune has set them, and are no longer the LUN's share of its
    array's limit: a path or a LUN has come or gone.
    """

    machine: Machine
    rows: tuple[Row, ...]
    new: frozenset[str]
    held: frozenset[str]
    drivers_own: Mapping[Key, Value]
    unlike_set: frozenset[Key]
    config: Config
    worker_pool: WorkerPool
    siblings: tuple[Endpoint, ...] = ()
    reshared: frozenset[Key] = frozenset()


class Judgement(Struct, frozen=True):
    """The scope of a pass: the ids that were ``chosen``, None for everything.

    ``left_alone`` returns the keys of drifting rows that must not be touched, and ``ignored`` says
    of a row that it is not even reported.
    """

    chosen: Collection[str] | None
    left_alone: Callable[[Iterable[Row]], Collection[Key]]
    ignored: Callable[[Row], bool] = lambda row: False


class Reconciled(Struct, frozen=True):
    """The result of a pass.

    ``drift`` are the rows in its scope that were not as wanted, as they were found, without ignored
    ones; ``done`` those that were written, with their outcomes. Both are by id and setting, and
    include settings that a write of another one has reset. ``machine`` is the one that was looked
    at, and ``whole`` whether that was everything.
    """

    machine: Machine
    rows: tuple[Row, ...]
    drift: Mapping[Key, Row]
    done: Mapping[Key, Row]
    whole: bool = True


def reconcile(
    context: Context,
    config: Config,
    profile: Profile,
    judge: Callable[[PassFacts], Judgement],
    last: MachineCache,
    *,
    names: Collection[str] | None = None,
    unmarked: Collection[str] = (),
    put_back: bool = False,
) -> Reconciled | None:
    """Make one pass under the lock; None where this profile is no longer to be applied.

    With the ``names`` of disks or SCSI hosts it looks at these alone, where what the ``last``
    passes have found suffices for that; ``last`` is kept up to date. Of ``unmarked`` disks, by
    kernel name, nothing is saved in udev's database. With ``put_back``, settings that the profile
    no longer wants go back to their baselines. A failure while others are written
    is a note. Raises LockedError, UnreadableRecordError, and JournalError if the baselines cannot
    be made durable: then nothing is written.
    """
    paths = context.paths
    with context.lock(), last.workers() as worker_pool:
        # Asked under the lock: a rollback may have come between the order and this pass.
        records = rollback_record.load(paths)
        if records.damaged:
            raise rollback_record.UnreadableRecordError(records.damaged)
        if records.covers_all or _superseded(profile, last):
            return None
        _recover(context, last.journal, records)
        stuck = lock.settle_claims(paths.claims, patience=context.patience)
        situation = _look(config, profile, names, last, stuck, worker_pool, paths)
        # The records are read again there, and one that cannot be read covers everything.
        if situation.rollbacks.damaged:
            raise rollback_record.UnreadableRecordError(situation.rollbacks.damaged)
        if losses := situation.journal.losses:
            context.reporter.note(TaskFailed(Task.READ_JOURNAL, LostError(losses)))
        machine = situation.machine
        new = frozenset(marks.unseen_targets(paths.seen, machine))
        held = frozenset(lock.held(paths.holds))
        whole = situation.plan(reconcile=put_back)
        recorded = _with_saved(situation, unmarked, paths)
        own = _drivers_own(situation.machine, whole, recorded)
        siblings = () if situation.rest is None else last.siblings(machine)
        shares = _reshared(situation, whole)
        facts = PassFacts(
            machine,
            whole.rows,
            new,
            held,
            own,
            _unlike_set(whole, recorded),
            config,
            worker_pool,
            siblings,
            shares,
        )
        judgement = judge(facts)
        plan, untouched = _plan(situation, whole, judgement, put_back=put_back)
        drift = [row for row in plan.drift if _concerns(row, situation, judgement)]
        todo = [row for row in drift if _key(row) not in untouched]
        done = _write(context, situation, plan, todo, untouched, held, unmarked, worker_pool, last)
        changed = {_key(row): row for row in drift}
        # A setting that another write has reset was written again, which is a change, too.
        changed |= {key: row for key, row in done.items() if row.outcome is not Outcome.KEPT}
        # A setting that the write has shown to be fixed has not drifted.
        changed = {key: row for key, row in changed.items() if row.state is not State.FIXED}
        # They stay new, so that the next pass tunes them as new and not as drift.
        unfinished = {row.id for row in done.values() if row.outcome is Outcome.CONFLICT} | held
        mark_seen(context, machine, judgement.chosen, unfinished)
        if situation.rest is None:
            _compact(context, last.journal, machine)
    if situation.rest is None:
        last.take_whole(machine, plan, situation.unmatched)
    else:
        last.take_part(machine, plan, names or ())
    return Reconciled(machine, plan.rows, changed, done, whole=situation.rest is None)


def _look(
    config: Config,
    profile: Profile,
    names: Collection[str] | None,
    last: MachineCache,
    stuck: Collection[Claim],
    worker_pool: WorkerPool,
    paths: Paths,
) -> Situation:
    """Look at the disks with these names if that is possible, or at everything."""
    if names is not None:
        part = look_at_part(
            config, profile, names, last, stuck=stuck, worker_pool=worker_pool, paths=paths
        )
        if part is not None:
            return part
    return look(config, profile, stuck=stuck, worker_pool=worker_pool, paths=paths)


def _recover(context: Context, remembered: KeptJournal, records: RollbackRecords) -> None:
    """Write the journal again from memory if it has lost values; the loss is a note."""
    if lost := remembered.recover(records):
        files = ", ".join(map(str, lost))
        error = JournalError(f"{files}: the daemon has written the journal again from memory")
        context.reporter.note(TaskFailed(Task.READ_JOURNAL, error))


def _compact(context: Context, kept: KeptJournal, machine: Machine) -> None:
    """Write the journal anew where it has a log; a failure is a note, since nothing is lost."""
    try:
        kept.refresh(lambda: machine)
        kept.compact()
    except JournalError as error:
        context.reporter.note(TaskFailed(Task.SAVE_JOURNAL, error))


def _with_saved(situation: Situation, unmarked: Collection[str], paths: Paths) -> Journal:
    """Return the journal, with the baselines that udev has of disks whose driver puts values back.

    Without such disks udev's database is not asked.
    """
    endpoints = [
        endpoint for endpoint in situation.machine.endpoints if family_named(endpoint.family).resets
    ]
    if not endpoints:
        return situation.journal
    return with_udev_baselines(situation.journal, endpoints, paths.spent, unmarked=unmarked)


def _drivers_own(machine: Machine, plan: Plan, recorded: Journal) -> Mapping[Key, Value]:
    """Return the drivers' own values of the settings that they put back by themselves.

    That is the baseline, and before hbatune has touched a setting its current value.
    """
    resets = {endpoint.id: family_named(endpoint.family).resets for endpoint in machine.endpoints}
    if not any(resets.values()):
        return {}
    baselines = {entry.key: entry.before for entry in recorded.entries}
    found = {
        _key(row): baselines.get(_key(row), row.current)
        for row in plan.rows
        if row.setting in resets.get(row.id, ())
    }
    return {key: value for key, value in found.items() if value is not None}


def _unlike_set(plan: Plan, recorded: Journal) -> frozenset[Key]:
    """Return the drifting settings that hbatune, or its udev rule, has set to another value.

    None while the journal has an interrupted run: it may have written any of the values there.
    """
    if recorded.run is not None:
        return frozenset()
    drift = {_key(row): row.current for row in plan.drift}
    return frozenset(
        entry.key
        for entry in recorded.entries
        if entry.key in drift and entry.value != drift[entry.key]
    )


def _reshared(situation: Situation, plan: Plan) -> frozenset[Key]:
    """Return the depths that are the LUN's former share of its array's limit."""
    drift = {_key(row): row.current for row in plan.drift if row.rule.startswith(SHARE_OF)}
    if not drift:
        return frozenset()
    return frozenset(
        entry.key
        for entry in situation.journal.entries
        if entry.value is not None and drift.get(entry.key) == entry.value
    )


def _superseded(profile: Profile, last: MachineCache) -> bool:
    """Whether another profile, or none, has become active since the pass was ordered.

    It cannot change during the pass: an apply and a rollback hold the lock.
    """
    now = files.signature(configuration_file())
    if now is not None and now == last.configured:
        return False
    try:
        superseded = configuration().profile != profile.name
    except UsageError:
        return False  # a mistake in the file: the last good configuration stays in force
    last.configured = None if superseded else now
    return superseded


def _plan(
    situation: Situation, whole: Plan, judgement: Judgement, *, put_back: bool
) -> tuple[Plan, Collection[Key]]:
    """Return the plan of rows that may be written, and the keys of rows that are left alone."""
    untouched = judgement.left_alone(whole.drift)
    if not any(name in BASES for _, name in untouched):
        return whole, untouched
    # Such as a scheduler that stays: nr_requests is then planned for the one in force.
    plan = situation.plan(
        reconcile=put_back, untouched=lambda id, setting: (id, setting) in untouched
    )
    return plan, judgement.left_alone(plan.drift)


def _concerns(row: Row, situation: Situation, judgement: Judgement) -> bool:
    """Whether a drifting row is in the scope of the pass."""
    chosen = judgement.chosen is None or row.id in judgement.chosen
    return chosen and not situation.rollbacks.covers(row.id) and not judgement.ignored(row)


def _write(
    context: Context,
    situation: Situation,
    plan: Plan,
    todo: Collection[Row],
    untouched: Collection[Key],
    held: Collection[str],
    unmarked: Collection[str],
    worker_pool: WorkerPool,
    last: MachineCache,
) -> Mapping[Key, Row]:
    """Write these rows; return them with their outcomes, by id and setting.

    Rows whose requests would take too much memory are left out.
    """
    machine, written = situation.machine, {_key(row) for row in todo}
    # An interrupt that was left alone has not been placed. For interrupts that are held, or that
    # this pass does not write, nothing changes for irqbalance.
    speaking = [row for row in plan.rows if _key(row) not in untouched]
    silent = {row.id for row in speaking if row.state is State.DRIFT and _key(row) not in written}
    ids = {vector.id for vector in machine.vectors} - silent - set(held)
    if not todo:
        if situation.rest is None:  # a part has no interrupts
            keep_placed_interrupts(context, machine, speaking, ids)
        return {}
    drifting = {row.id for row in todo}
    # Rows that are right go along: a write to their target may reset them.
    right = (row for row in plan.rows if row.id in drifting and row.state is State.OK)
    wanted = replace(plan, rows=(*todo, *right))
    try:
        require_affordable(wanted)
    except UsageError as error:
        context.reporter.note(TaskFailed(Task.FIT_MEMORY, error))
        wanted = without_requests(wanted)
    filed = situation.journal
    if situation.rest is None:
        filed, _ = journal.load_for(context.paths.journal, machine)
    act = situation.config.act
    # The daemon lifts nothing, so every rollback stops it.
    guard = RollbackRecords().guard(context.paths, named=False)
    with context.writing(Phase.WRITING, len(drifting), act, worker_pool, guard) as means:
        if situation.rest is not None:
            read = {endpoint.sysfs: endpoint.attributes for endpoint in machine.endpoints}
            save = _appending(last.journal, machine)
            means = replace(means, save=save, read=read, unmarked=frozenset(unmarked))
        done = write(context, situation, wanted, filed, means, rows=speaking, ids=ids)
    return {_key(row): row for row in done.rows}


def _appending(kept: KeptJournal, part: Machine) -> Callable[[Journal, bool], None]:
    """Return a function that saves the journal of a part of the machine."""
    ids = [endpoint.id for endpoint in part.endpoints]
    return lambda recorded, keep_room: kept.save(recorded, ids, keep_room=keep_room)


def _key(row: Row) -> Key:
    return row.id, row.setting
