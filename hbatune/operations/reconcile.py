"""Correct a machine's drift from its profile: one pass of the daemon, from lock to journal.

The caller chooses the targets that the pass skips. Writes work as in `apply`. A pass for an event
reads only the disks of the event, and takes the other facts from earlier passes of the process.
"""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import files, journal, lock, marks, rollback_record, writer
from hbatune.act.journal import Journal, JournalError, LostError
from hbatune.act.kept_journal import KeptJournal
from hbatune.errors import UsageError
from hbatune.facts.families import family_named
from hbatune.facts.machine import InsufficientFactsError, KnownMachine, Scope
from hbatune.facts.model import Endpoint, Machine
from hbatune.operations import apply, boot_files
from hbatune.operations.context import Context, Phase, Task
from hbatune.operations.situation import (
    PartialScan,
    ScanMeans,
    Situation,
    SituationRequest,
    list_needed_settings,
    locked_means,
    make_situation,
    read_situation,
)
from hbatune.plan.joint_limits import require_affordable, sum_beyond_defaults, without_requests
from hbatune.plan.rows import Outcome, Plan, Row, RowKey, State
from hbatune.policy import budget
from hbatune.policy.config import Config, UnmatchedName, find_configuration_file, load_configuration
from hbatune.policy.match import Matcher, list_rule_uses
from hbatune.policy.profile import Profile
from hbatune.settings.table import BASE_SETTINGS, Value
from hbatune.workers import WorkerPool


class MachineCache:
    """The machine's state after the last pass. Mutable, and empty before the first pass.

    ``journal`` is the journal at this path. ``configured`` is the signature of the latest
    configuration in which the profile was active. ``unmatched`` are the names in [site] that match
    nothing on the machine. A worker stays ready between two passes.
    """

    def __init__(self, journal: Path) -> None:
        self.machine: KnownMachine | None = None
        self.journal = KeptJournal(journal)
        self.configured: files.Signature = None
        self.unmatched: tuple[UnmatchedName, ...] = ()
        self._requests: dict[str, int] = {}
        self._unreadable: dict[str, int] = {}
        self._matcher: Matcher | None = None
        self._worker_pool = WorkerPool()
        self._worn = False

    @property
    def unreadable(self) -> int:
        """The number of settings that could not be read."""
        return sum(self._unreadable.values())

    def matcher(self, profile: Profile) -> Matcher:
        """Return the matcher for this profile, which caches results between two passes."""
        if self._matcher is None or self._matcher.profile is not profile:
            self._matcher = Matcher(profile)
        return self._matcher

    @contextmanager
    def workers(self) -> Iterator[WorkerPool]:
        """Yield the worker pool; on exit, all but one of its workers end."""
        try:
            yield self._worker_pool
        finally:
            self._worker_pool.close(but=1)

    def renew_worker(self) -> None:
        """Replace the worker after a full scan.

        For an idle process: a new worker shares all memory with it, the old one has made copies.
        """
        if self._worn:
            # Freeze the objects, since a garbage collection would copy all their memory.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._worker_pool.close()
            self._worker_pool.prepare(1)
            self._worn = False

    def close(self) -> None:
        """End the worker that stays ready."""
        self._worker_pool.close()

    def requests_without(self, ids: Iterable[str]) -> int:
        """Return the memory of other disks' requests beyond the kernel's defaults, in bytes."""
        return sum(self._requests.values()) - sum(self._requests.get(id, 0) for id in ids)

    def siblings(self, part: Machine) -> tuple[Endpoint, ...]:
        """Return the LUNs outside the part that share a SCSI target with one of its disks."""
        machine, present = self.machine, {endpoint.target for endpoint in part.endpoints}
        if machine is None:
            return ()
        targets = {disk.scsi_target for disk in part.endpoints if disk.address}
        return tuple(e for e in machine.of_scsi_targets(targets) if e.target not in present)

    def take_whole(
        self, machine: Machine, plan: Plan, unmatched: tuple[UnmatchedName, ...]
    ) -> None:
        """Store the results of a full pass."""
        self.machine = KnownMachine(machine)
        self.unmatched = unmatched
        self._requests, self._unreadable = {}, {}
        self._count_plan(machine, plan)
        self._worn = True

    def take_part(self, part: Machine, plan: Plan, names: Iterable[str]) -> None:
        """Store the results of a partial pass, which was made for the disks with these names."""
        machine = self.machine
        assert machine is not None
        present = {endpoint.target for endpoint in part.endpoints}
        removed = [name for name in names if name not in present]
        for name in (*present, *removed):
            if (before := machine.get(name)) is not None:
                self._requests.pop(before.id, None)
                self._unreadable.pop(before.id, None)
        machine.update(part, removed)
        self._count_plan(part, plan)

    def _count_plan(self, machine: Machine, plan: Plan) -> None:
        rows: dict[str, list[Row]] = {}
        for row in plan.rows:
            rows.setdefault(row.id, []).append(row)
            if row.state is State.UNREADABLE:
                self._unreadable[row.id] = self._unreadable.get(row.id, 0) + 1
        self._requests |= sum_beyond_defaults(machine, rows)
        for disk in plan.left_alone:
            if disk.unread:
                self._unreadable.setdefault(disk.id, 1)


def scan_disks(
    config: Config, profile: Profile, names: Collection[str], last: MachineCache, means: ScanMeans
) -> Situation | None:
    """Read the disks with these kernel names, and return the situation of these disks only.

    ``names`` may include SCSI hosts. LUNs that share the budget of an array are read as well.
    Returns None if the ``last`` passes do not have enough facts. The part is not stored.
    """
    cached = last.machine
    # A part does not have the uses of its disks.
    if cached is None or list_rule_uses(profile):
        return None
    last.journal.refresh(lambda: cached.machine)
    # Includes the files that their writes may reset, so the baselines need no second read.
    settings = list_needed_settings(profile, config.site, last.journal.settings)
    attributes = writer.list_baseline_files(settings)

    def gather(names: Collection[str]) -> Machine:
        return means.gather(attributes, config.act, Scope(names, cached))

    try:
        part = gather(names)
        if config.site.array and any(map(budget.is_shared, part.endpoints)):
            wanted = list(names)
            for endpoint in filter(budget.is_shared, cached.machine.endpoints):
                wanted.append(endpoint.target)
            part = gather(dict.fromkeys(wanted))
    except InsufficientFactsError:
        return None
    ids = [endpoint.id for endpoint in part.endpoints]
    situation = make_situation(config, profile, part, (), means, last.journal.part(ids))
    if situation.lacks_peers():
        return None
    return replace(situation, part=PartialScan(last.requests_without(ids), last.matcher(profile)))


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
            problem = "the daemon has written the journal again from memory"
            error = JournalError(f"{LostError.describe(lost)}: {problem}")
            context.note_failure(Task.READ_JOURNAL, error)
        means = locked_means(paths, context.patience, worker_pool)
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
            context.note_failure(Task.READ_JOURNAL, LostError(losses))
        machine, is_full = situation.machine, situation.part is None
        reserved = frozenset(lock.read_held_ids(paths.holds))
        full_plan = situation.plan(reconcile=request.put_back)
        # Of other disks, only hbatune restores values.
        resettable = [disk for disk in machine.endpoints if family_named(disk.family).resets]
        recorded = marks.with_udev_baselines(
            situation.journal, resettable, paths.spent, unmarked=request.unmarked
        )
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
        todo = [row for row in drift if row.key not in skipped]
        done = _write_rows(context, situation, plan, todo, skipped, facts, request.unmarked, last)
        changed = {row.key: row for row in drift}
        unfinished = set(reserved)
        for key, row in done.items():
            if row.outcome is Outcome.KEPT:
                continue
            if row.state is State.FIXED:  # proved by the write, so it has not drifted
                changed.pop(key, None)
            else:  # also if another write has reset the setting, and it was written again
                changed[key] = row
            if row.outcome is Outcome.CONFLICT:
                # It stays new, so the next pass tunes it as new and not as drift.
                unfinished.add(row.id)
        apply.mark_seen(context, machine, scope.chosen, unfinished)
        if is_full:
            # Nothing is lost if the journal keeps its log.
            context.attempt(Task.SAVE_JOURNAL, partial(last.journal.compact, machine))
    if is_full:
        last.take_whole(machine, plan, situation.unmatched)
    else:
        last.take_part(machine, plan, request.names or ())
    return PassResult(machine, plan.rows, changed, done, whole=is_full)


def _find_drivers_values(machine: Machine, plan: Plan, recorded: Journal) -> Mapping[RowKey, Value]:
    """Return the drivers' values for the settings that they restore by themselves.

    This is the baseline, or the current value if hbatune has not set the setting yet.
    """
    resets = {endpoint.id: family_named(endpoint.family).resets for endpoint in machine.endpoints}
    if not any(resets.values()):
        return {}
    entries, values = recorded.by_key, {}
    for row in plan.rows:
        value = entries[row.key].before if row.key in entries else row.current
        if value is not None and row.setting in resets.get(row.id, ()):
            values[row.key] = value
    return values


def _find_overwritten(plan: Plan, recorded: Journal) -> frozenset[RowKey]:
    """Return the drifting settings that hbatune, or its udev rule, has set to another value.

    Empty if the journal has an interrupted run, which may have written any of its values.
    """
    if recorded.run is not None:
        return frozenset()
    entries, overwritten = recorded.by_key, set()
    for row in plan.drift:
        if row.key in entries and entries[row.key].value != row.current:
            overwritten.add(row.key)
    return frozenset(overwritten)


def _find_reshared(situation: Situation, plan: Plan) -> frozenset[RowKey]:
    """Return the depths that are the LUN's former share of its array's limit."""
    entries, reshared = situation.journal.by_key, set()
    for row in plan.drift:
        entry = entries.get(row.key)
        is_share = row.rule.startswith(budget.SHARE_RULE_PREFIX)
        if is_share and entry is not None and entry.value == row.current:
            reshared.add(row.key)
    return frozenset(reshared)


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


def _write_rows(
    context: Context,
    situation: Situation,
    plan: Plan,
    todo: Collection[Row],
    skipped: Collection[RowKey],
    facts: PassFacts,
    unmarked: Collection[str],
    last: MachineCache,
) -> Mapping[RowKey, Row]:
    """Write the rows ``todo`` that memory permits; return them with outcomes, by id and setting."""
    machine, is_full = situation.machine, situation.part is None
    written = {row.key for row in todo}
    # A skipped interrupt has not been placed. For interrupts that are reserved, or that this pass
    # does not write, nothing changes for irqbalance.
    interrupt_rows = [row for row in plan.rows if row.key not in skipped]
    ids = {vector.id for vector in machine.vectors} - facts.held
    for row in interrupt_rows:
        if row.state is State.DRIFT and row.key not in written:
            ids.discard(row.id)
    if not todo:
        if is_full:  # a partial scan has no interrupts
            boot_files.keep_placed_interrupts(context, machine, interrupt_rows, ids)
        return {}
    drifting = {row.id for row in todo}
    rows = list(todo)
    for row in plan.rows:
        # Rows with correct values are included: a write to their target may reset them.
        if row.id in drifting and row.state is State.OK:
            rows.append(row)
    wanted = replace(plan, rows=tuple(rows))
    try:
        require_affordable(wanted)
    except UsageError as error:
        context.note_failure(Task.FIT_MEMORY, error)
        wanted = without_requests(wanted)
    filed = situation.journal
    if is_full:
        filed, _ = journal.load_with_current_ids(context.paths.journal, machine)
    act = situation.config.act
    # The daemon lifts nothing, so every rollback stops it.
    guard = rollback_record.RollbackRecords().guard(context.paths, named=False)
    with context.writing(Phase.WRITING, len(drifting), act, facts.worker_pool, guard) as means:
        if not is_full:
            read = {endpoint.sysfs: endpoint.attributes for endpoint in machine.endpoints}
            endpoint_ids = [endpoint.id for endpoint in machine.endpoints]

            def save(recorded: Journal, keep_room: bool) -> None:
                last.journal.save(recorded, endpoint_ids, keep_room=keep_room)

            means = replace(means, save=save, read=read, unmarked=frozenset(unmarked))
        run = apply.PlannedRun(situation, wanted, filed, interrupt_rows, ids)
    return {row.key: row for row in apply.write_rows(context, run, means).rows}
