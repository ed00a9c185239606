"""Correct a machine's drift from its profile: one pass of the daemon, from lock to journal.

The caller chooses the targets that the pass skips. Writes work as in `apply`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import files, journal, lock, marks, rollback_record
from hbatune.act.journal import Journal, JournalError, LostError
from hbatune.act.marks import with_udev_baselines
from hbatune.act.paths import Paths
from hbatune.act.rollback_record import RollbackRecords
from hbatune.errors import UsageError
from hbatune.facts.families import family_named
from hbatune.facts.model import Endpoint, Machine
from hbatune.operations.apply import PlannedRun, mark_seen, write_rows
from hbatune.operations.boot_files import keep_placed_interrupts
from hbatune.operations.context import Context, Phase, Task, TaskFailed
from hbatune.operations.last_look import MachineCache, scan_disks
from hbatune.operations.situation import ScanMeans, Situation, SituationRequest, read_situation
from hbatune.plan.joint_limits import require_affordable, without_requests
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.budget import SHARE_RULE_PREFIX
from hbatune.policy.chosen import find_configuration_file, load_configuration
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile
from hbatune.settings.table import BASE_SETTINGS, Value
from hbatune.workers import WorkerPool

RowKey = tuple[str, str]
"""The id of a target and the name of a setting."""


class PassFacts(Struct, frozen=True):
    """The facts of a pass before it writes anything.

    ``rows`` are all rows of the plan. ``siblings`` are LUNs outside the machine that share a SCSI
    target with one of its LUNs. ``new`` are the ids of targets that no earlier run has seen, and
    ``held`` the ids of targets that a run switches for its measurements.

    ``drivers_own`` are the values that a driver restores by itself (``Family.resets``), by id and
    setting. ``unlike_set`` are drifting settings that hbatune has set to another value.
    ``reshared`` are depths with the value that hbatune has set, which is no longer the LUN's share
    of its array's limit: a path or a LUN was added or removed.
    """

    machine: Machine
    rows: tuple[Row, ...]
    new: frozenset[str]
    held: frozenset[str]
    drivers_own: Mapping[RowKey, Value]
    unlike_set: frozenset[RowKey]
    config: Config
    worker_pool: WorkerPool
    siblings: tuple[Endpoint, ...] = ()
    reshared: frozenset[RowKey] = frozenset()


class PassScope(Struct, frozen=True):
    """The scope of a pass: the ``chosen`` ids, or None for everything.

    ``left_alone`` returns the keys of drifting rows that must not be written. ``ignored`` returns
    whether a row is not even reported.
    """

    chosen: Collection[str] | None
    left_alone: Callable[[Iterable[Row]], Collection[RowKey]]
    ignored: Callable[[Row], bool] = lambda row: False


class PassResult(Struct, frozen=True):
    """The result of a pass.

    ``drift`` are the drifting rows in its scope before the writes, without ignored rows. ``done``
    are the written rows with their outcomes. Both are by id and setting, and include settings that
    the write of another setting has reset. ``machine`` is the scanned machine, and ``whole`` is
    whether the scan was full.
    """

    machine: Machine
    rows: tuple[Row, ...]
    drift: Mapping[RowKey, Row]
    done: Mapping[RowKey, Row]
    whole: bool = True


class PassRequest(Struct, frozen=True, kw_only=True):
    """The configuration and the devices of a pass.

    With the ``names`` of disks or SCSI hosts, it scans only these, if the facts from earlier passes
    are sufficient. ``unmarked`` disks, by kernel name, have no values in udev's database. With
    ``put_back``, settings that the profile no longer specifies are restored to their baselines.
    """

    config: Config
    profile: Profile
    names: Collection[str] | None = None
    unmarked: Collection[str] = ()
    put_back: bool = False


def run_pass(
    context: Context,
    request: PassRequest,
    judge: Callable[[PassFacts], PassScope],
    last: MachineCache,
) -> PassResult | None:
    """Make one pass under the lock; return None if this profile must no longer be applied.

    It uses and updates the results of the ``last`` passes. A failure of some writes is a note.
    Raises LockedError and UnreadableRecordError, and JournalError if the baselines cannot be made
    durable: then nothing is written.
    """
    paths, config, profile = context.paths, request.config, request.profile
    with context.lock(), last.workers() as worker_pool:
        # Checked under the lock: a rollback may have come between the order and this pass.
        records = rollback_record.load(paths)
        if records.damaged:
            raise rollback_record.UnreadableRecordError(records.damaged)
        if records.covers_all or _is_superseded(profile, last):
            return None
        if lost := last.journal.recover(records):
            losses_text = LostError.describe(lost)
            error = JournalError(
                f"{losses_text}: the daemon has written the journal again from memory"
            )
            context.note(TaskFailed(Task.READ_JOURNAL, error))
        stuck = lock.settle_claims(paths.claims, patience=context.patience)
        means = ScanMeans(paths, tuple(stuck), worker_pool)
        situation = None
        if request.names is not None:
            situation = scan_disks(config, profile, request.names, last, means)
        if situation is None:
            everything = SituationRequest(config=config, profile=profile, means=means)
            situation = read_situation(everything)
        # The scan reads the records again. An unreadable record covers everything.
        if situation.rollbacks.damaged:
            raise rollback_record.UnreadableRecordError(situation.rollbacks.damaged)
        if losses := situation.journal.losses:
            context.note(TaskFailed(Task.READ_JOURNAL, LostError(losses)))
        machine, is_full = situation.machine, situation.part is None
        reserved = frozenset(lock.read_held_ids(paths.holds))
        full_plan = situation.plan(reconcile=request.put_back)
        recorded = _add_udev_baselines(situation, request.unmarked, paths)
        facts = PassFacts(
            machine,
            full_plan.rows,
            new=frozenset(marks.find_unseen_targets(paths.seen, machine)),
            held=reserved,
            drivers_own=_find_drivers_values(machine, full_plan, recorded),
            unlike_set=_find_overwritten(full_plan, recorded),
            config=config,
            worker_pool=worker_pool,
            siblings=() if is_full else last.siblings(machine),
            reshared=_find_reshared(situation, full_plan),
        )
        scope = judge(facts)
        plan, skipped = _plan_writes(situation, full_plan, scope, put_back=request.put_back)
        drift = [row for row in plan.drift if _is_in_scope(row, situation, scope)]
        todo = [row for row in drift if _make_key(row) not in skipped]
        choice = _Choice(situation, plan, todo, skipped, reserved)
        done = _write_rows(context, choice, request.unmarked, worker_pool, last)
        changed = {_make_key(row): row for row in drift}
        # A setting that another write has reset was written again, which is also a change.
        changed |= {key: row for key, row in done.items() if row.outcome is not Outcome.KEPT}
        # A setting that proved to be fixed by the write has not drifted.
        changed = {key: row for key, row in changed.items() if row.state is not State.FIXED}
        # They stay new, so the next pass tunes them as new and not as drift.
        unfinished = {row.id for row in done.values() if row.outcome is Outcome.CONFLICT} | reserved
        mark_seen(context, machine, scope.chosen, unfinished)
        if is_full:

            def compact_journal() -> None:
                last.journal.refresh(lambda: machine)
                last.journal.compact()

            # Nothing is lost if the journal keeps its log.
            context.attempt(Task.SAVE_JOURNAL, compact_journal, JournalError)
    if is_full:
        last.take_whole(machine, plan, situation.unmatched)
    else:
        last.take_part(machine, plan, request.names or ())
    return PassResult(machine, plan.rows, changed, done, whole=is_full)


def _add_udev_baselines(situation: Situation, unmarked: Collection[str], paths: Paths) -> Journal:
    """Return the journal, with udev's baselines of disks whose driver restores values.

    Without such disks, udev's database is not read.
    """
    machine = situation.machine
    endpoints = [disk for disk in machine.endpoints if family_named(disk.family).resets]
    if not endpoints:
        return situation.journal
    return with_udev_baselines(situation.journal, endpoints, paths.spent, unmarked=unmarked)


def _find_drivers_values(machine: Machine, plan: Plan, recorded: Journal) -> Mapping[RowKey, Value]:
    """Return the drivers' values for the settings that they restore by themselves.

    This is the baseline, or the current value if hbatune has not set the setting yet.
    """
    resets = {endpoint.id: family_named(endpoint.family).resets for endpoint in machine.endpoints}
    if not any(resets.values()):
        return {}
    baselines = {entry.key: entry.before for entry in recorded.entries}
    values = {}
    for row in plan.rows:
        value = baselines.get(_make_key(row), row.current)
        if value is not None and row.setting in resets.get(row.id, ()):
            values[_make_key(row)] = value
    return values


def _find_overwritten(plan: Plan, recorded: Journal) -> frozenset[RowKey]:
    """Return the drifting settings that hbatune, or its udev rule, has set to another value.

    Empty if the journal has an interrupted run, which may have written any of its values.
    """
    if recorded.run is not None:
        return frozenset()
    drift = {_make_key(row): row.current for row in plan.drift}
    return frozenset(
        entry.key
        for entry in recorded.entries
        if entry.key in drift and entry.value != drift[entry.key]
    )


def _find_reshared(situation: Situation, plan: Plan) -> frozenset[RowKey]:
    """Return the depths that are the LUN's former share of its array's limit."""
    drift = {
        _make_key(row): row.current for row in plan.drift if row.rule.startswith(SHARE_RULE_PREFIX)
    }
    if not drift:
        return frozenset()
    return frozenset(
        entry.key
        for entry in situation.journal.entries
        if entry.value is not None and drift.get(entry.key) == entry.value
    )


def _is_superseded(profile: Profile, last: MachineCache) -> bool:
    """Return whether another profile, or none, has become active since the pass was ordered.

    It cannot change during the pass: an apply and a rollback hold the lock.
    """
    signature = files.read_signature(find_configuration_file())
    if signature is not None and signature == last.configured:
        return False
    try:
        superseded = load_configuration().profile != profile.name
    except UsageError:
        return False  # an error in the file: the last valid configuration remains active
    last.configured = None if superseded else signature
    return superseded


def _plan_writes(
    situation: Situation, full_plan: Plan, judgement: PassScope, *, put_back: bool
) -> tuple[Plan, Collection[RowKey]]:
    """Return the plan of rows that may be written, and the keys of rows that are skipped."""
    untouched = judgement.left_alone(full_plan.drift)
    if not any(name in BASE_SETTINGS for _, name in untouched):
        return full_plan, untouched
    # For example, if a scheduler stays, nr_requests has to be planned for it.
    plan = situation.plan(reconcile=put_back, untouched=lambda *key: key in untouched)
    return plan, judgement.left_alone(plan.drift)


def _is_in_scope(row: Row, situation: Situation, judgement: PassScope) -> bool:
    chosen = judgement.chosen is None or row.id in judgement.chosen
    return chosen and not situation.rollbacks.covers(row.id) and not judgement.ignored(row)


class _Choice(Struct, frozen=True):
    """The rows of a plan to write, the keys of skipped rows, and the ids of reserved targets."""

    situation: Situation
    plan: Plan
    todo: Collection[Row]
    skipped: Collection[RowKey]
    reserved: Collection[str]


def _write_rows(
    context: Context,
    choice: _Choice,
    unmarked: Collection[str],
    worker_pool: WorkerPool,
    last: MachineCache,
) -> Mapping[RowKey, Row]:
    """Write the chosen rows; return them with their outcomes, by id and setting.

    Rows whose requests would take too much memory are omitted.
    """
    situation, plan, todo = choice.situation, choice.plan, choice.todo
    machine, is_full = situation.machine, situation.part is None
    written = {_make_key(row) for row in todo}
    # A skipped interrupt has not been placed. For interrupts that are reserved, or that this pass
    # does not write, nothing changes for irqbalance.
    interrupt_rows = [row for row in plan.rows if _make_key(row) not in choice.skipped]
    ids = {vector.id for vector in machine.vectors} - set(choice.reserved)
    for row in interrupt_rows:
        if row.state is State.DRIFT and _make_key(row) not in written:
            ids.discard(row.id)
    if not todo:
        if is_full:  # a partial scan has no interrupts
            keep_placed_interrupts(context, machine, interrupt_rows, ids)
        return {}
    drifting = {row.id for row in todo}
    # Rows with correct values are included: a write to their target may reset them.
    right = (row for row in plan.rows if row.id in drifting and row.state is State.OK)
    wanted = replace(plan, rows=(*todo, *right))
    try:
        require_affordable(wanted)
    except UsageError as error:
        context.note(TaskFailed(Task.FIT_MEMORY, error))
        wanted = without_requests(wanted)
    filed = situation.journal
    if is_full:
        filed, _ = journal.load_with_current_ids(context.paths.journal, machine)
    act = situation.config.act
    # The daemon lifts nothing, so every rollback stops it.
    guard = RollbackRecords().guard(context.paths, named=False)
    with context.writing(Phase.WRITING, len(drifting), act, worker_pool, guard) as means:
        if not is_full:
            read = {endpoint.sysfs: endpoint.attributes for endpoint in machine.endpoints}
            endpoint_ids = [endpoint.id for endpoint in machine.endpoints]

            def save(recorded: Journal, keep_room: bool) -> None:
                last.journal.save(recorded, endpoint_ids, keep_room=keep_room)

            means = replace(means, save=save, read=read, unmarked=frozenset(unmarked))
        run = PlannedRun(situation, wanted, filed, interrupt_rows, ids)
        done = write_rows(context, run, means)
    return {_make_key(row): row for row in done.rows}


def _make_key(row: Row) -> RowKey:
    return row.id, row.setting
