"""Apply a profile: plan, write, read back, compare the changes, and update the boot files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import executor, journal, lock, marks, rollback_record, system
from hbatune.act.writer import UnfinishedError, require_writable, write_plan
from hbatune.errors import HbatuneError
from hbatune.facts.attributes import FIRMWARE_FILE
from hbatune.facts.model import Machine
from hbatune.operations import boot_files
from hbatune.operations.context import ComparisonRequest, Context, Event, Phase, Task
from hbatune.operations.differences import Differences
from hbatune.operations.situation import Situation, SituationRequest, locked_means, read_situation
from hbatune.plan.joint_limits import require_affordable
from hbatune.plan.rows import DONE_OUTCOMES, Plan, Row, State
from hbatune.policy.config import find_configuration_file, load_configuration
from hbatune.workers import WorkerPool

if TYPE_CHECKING:
    # The measuring code is only imported if there are measurements.
    from hbatune.operations.verify import ComparisonPreview, VerificationResult
    from hbatune.probe.comparison import Standing
    from hbatune.probe.result import ProbeResult


class ApplyRequest(Struct, frozen=True, kw_only=True):
    """The request for an apply.

    Without ``targets`` it applies to everything. ``once`` does not change the active profile.
    ``probe`` compares the changes with the options in ``compare``, and reverts regressions.
    ``disrupt`` allows writes that reset an adapter.
    """

    profile: str | None = None
    targets: tuple[str, ...] = ()
    once: bool = False
    probe: bool = True
    compare: ComparisonRequest = ComparisonRequest()
    disrupt: bool = False
    module_options: bool = False


class ApplyResult(Struct, frozen=True):
    """The result of an apply.

    ``rows`` are the plan's rows and the rows of the module options. ``finished`` is whether every
    file was updated and the changes were compared as requested. It is False if a rollback was
    recorded during the run: then no profile becomes active. ``standings`` compare the last
    measurement of each target with the reference values (``probe.find_standings``).
    """

    plan: Plan
    situation: Situation
    rows: tuple[Row, ...]
    verified: VerificationResult | None
    finished: bool
    standings: Mapping[str, tuple[ProbeResult, Standing]] = {}

    @property
    def complete(self) -> bool:
        """Whether every row is settled and every file was updated.

        Regressions that the request keeps, and empty comparisons, are not settled.
        """
        if self.situation.journal.losses or (self.verified and not self.verified.is_complete):
            return False
        unread = any(disk.unread for disk in self.plan.left_alone)
        return self.finished and not unread and all(map(is_settled, self.rows))


def apply_profile(context: Context, request: ApplyRequest) -> ApplyResult:
    """Write the profile's values and make them persistent, under the lock.

    Raises LockedError, and UsageError for a request that is invalid, takes too much memory or needs
    writes to a read-only /sys. Raises JournalError and ActiveProfileError if a file cannot be
    written or the journal is lost. All of them come before any write to a device.
    """
    # Named, so it has this version's rules. An error is reported before any wait for the lock.
    profile = request.profile or load_configuration().profile
    paths = context.paths
    # Also before any wait: a rollback recorded after this point overrides this apply.
    began = rollback_record.load(paths)
    with context.lock(), WorkerPool() as worker_pool:
        means = locked_means(paths, context.patience, worker_pool)
        wanted = SituationRequest(
            profile=profile, targets=request.targets, means=means, probes=request.probe
        )
        situation = read_situation(replace(wanted, firmware=True))
        losses = situation.journal.losses
        if any(loss.kind is not journal.LossKind.DAMAGED for loss in losses):
            raise journal.LostError(losses)
        context.note(situation.traces)
        plan = situation.plan(named=bool(request.targets), disrupt=request.disrupt)
        require_affordable(plan)
        require_writable(situation.machine, {row.id for row in plan.drift})
        if not request.once and plan.profile != situation.config.profile:
            # Before the writes: otherwise settings would be applied that a reboot does not restore.
            system.require_writable_configuration(find_configuration_file())
        filed, earlier = journal.load_with_current_ids(paths.journal, situation.machine)
        if earlier is not None and earlier.entries:
            context.note_event(Event.JOURNAL_REPLACED)
        run = PlannedRun(situation, plan, filed, plan.rows, situation.chosen.ids)
        compares = request.probe and (plan.drift or request.compare.thorough)
        compares = compares and not rollback_record.has_later(began, paths)
        guard = began.guard(paths, named=bool(request.targets))
        disks = len({row.target for row in plan.drift})
        writing = context.writing(Phase.WRITING, disks, situation.config.act, worker_pool, guard)
        if compares:
            done = _write_compared(context, request.compare, run, writing)
        else:
            with writing as write_means:
                done = write_rows(context, run, write_means)
            if write_means.stop():
                context.note_event(Event.WRITING_STOPPED)
        unfinished = {row.id for row in done.rows if not is_settled(row)}
        marked = mark_seen(context, situation.machine, situation.chosen.ids, unfinished)
        finished = marked and done.noted and done.saved
        rows = done.rows
        is_active = not rollback_record.has_later(began, paths)
        if request.module_options and is_active:
            rows += boot_files.write_options(context, situation, request.targets)
        # After the writes: until then the daemon skips the targets that were rolled back.
        if is_active:
            finished = _lift_rollbacks(context, situation, once=request.once) and finished
        else:
            context.note_event(Event.ROLLBACK_RECORDED)
            finished = False
        if is_active and not request.once:
            # The configuration before the rules: udev must not tune for a profile that is not
            # active.
            system.activate_profile(find_configuration_file(), plan.profile)
            finished = boot_files.store_shipped_rules(context) and finished
            finished = _refresh_rules(context, situation, plan) and finished
        standings = {}
        if done.verified is not None:
            from hbatune.operations import probe

            records = probe.list_apply_records(context, situation, done.rows, done.verified)
            probe.keep_records(context, records)
            results = _list_last_results(done.verified)
            standings = probe.find_standings(results, situation.machine, situation.profile)
    if not request.once:
        # Outside the lock, which the daemon's pass takes.
        context.nudge()
    return ApplyResult(plan, situation, rows, done.verified, finished, standings)


def _list_last_results(verified: VerificationResult) -> list[ProbeResult]:
    """Return the last measurement of each target, except if a setting was reverted since then."""
    last: dict[str, ProbeResult | None] = {proof.target: proof.last for proof in verified.proofs}
    for proof in verified.proofs:
        if proof.verdict.beyond:
            last[proof.target] = None
    return list(filter(None, last.values()))


def preview_apply(
    context: Context, request: ApplyRequest
) -> tuple[Differences, ComparisonPreview | None]:
    """Return the plan of an apply, and what it compares; nothing is locked, written or measured."""
    profile = request.profile or load_configuration().profile  # as in ``apply_profile``
    wanted = SituationRequest(profile=profile, targets=request.targets, probes=request.probe)
    situation = read_situation(replace(wanted, firmware=False))
    plan = situation.plan(named=bool(request.targets), disrupt=request.disrupt)
    rows = plan.rows
    if request.module_options:
        rows += boot_files.list_option_rows(situation, request.targets)
    comparisons = None
    if request.probe and (plan.drift or request.compare.thorough):
        from hbatune.operations.verify import Verification  # as for an apply that compares

        comparisons = Verification(context, situation, plan, request.compare).preview()
    return Differences(situation, plan, rows), comparisons


def mark_seen(
    context: Context, machine: Machine, ids: Collection[str] | None, unfinished: Collection[str]
) -> bool:
    """Mark these targets as seen (``marks.remember_disks``); return whether that succeeded."""
    seen = context.paths.seen
    mark_disks = partial(marks.remember_disks, seen, machine, ids, unfinished=unfinished)
    return context.attempt(Task.MARK_DISKS, mark_disks)


def is_settled(row: Row) -> bool:
    """Return whether a row needs no further action, or allows none."""
    if row.state is State.UNREADABLE:
        return False
    return row.outcome is None or row.outcome in DONE_OUTCOMES


class WrittenRows(Struct, frozen=True):
    """The rows with their outcomes, and their verdicts if they were compared.

    ``saved`` is whether the journal could be updated. ``noted`` is whether the lists of interrupts
    (for irqbalance, and of immovable ones) could be, and the changes compared as requested.
    """

    rows: tuple[Row, ...]
    saved: bool = True
    noted: bool = True
    verified: VerificationResult | None = None


class PlannedRun(Struct, frozen=True):
    """A plan to write, with its situation and this boot's journal.

    ``interrupt_rows`` determine the placed interrupts of the vectors with these ``vector_ids``, or
    of all.
    """

    situation: Situation
    plan: Plan
    filed: journal.Journal
    interrupt_rows: Collection[Row]
    vector_ids: Collection[str] | None


def write_rows(context: Context, run: PlannedRun, means: executor.Means) -> WrittenRows:
    """Write the plan, and exclude the interrupts that it places from irqbalance.

    Values that were reverted earlier are tried again on named targets. Raises as
    ``act.writer.write_plan`` does, before anything is written.
    """
    machine, ids = run.situation.machine, run.vector_ids
    if run.situation.part is not None:  # it has no interrupts
        return _write_rows(context, run, means)
    boot_files.reserve_interrupts(context, machine, run.interrupt_rows, ids)
    try:
        written = _write_rows(context, run, means)
    except HbatuneError:  # nothing was written: release the reserved interrupts
        boot_files.keep_placed_interrupts(context, machine, run.interrupt_rows, ids)
        raise
    boot_files.remember_pages(context, written.rows)
    remembered = boot_files.remember_immovable(context, run.plan, written.rows)
    done = {row.key: row for row in written.rows}
    after = [done.get(row.key, row) for row in run.interrupt_rows]
    listed = boot_files.keep_placed_interrupts(context, machine, after, ids)
    return replace(written, noted=listed and remembered)


def _write_rows(context: Context, run: PlannedRun, means: executor.Means) -> WrittenRows:
    situation = run.situation
    # A page was read a moment ago, too: its baseline needs no further request.
    hosts = [host for host in situation.machine.controls if FIRMWARE_FILE in host.attributes]
    means = replace(means, read={**means.read, **{host.sysfs: host.attributes for host in hosts}})
    named_ids = situation.chosen.ids or frozenset()
    try:
        rows = write_plan(situation.machine, run.plan, run.filed, means, named=named_ids)
        return WrittenRows(rows)
    except UnfinishedError as error:
        context.note_failure(Task.SAVE_JOURNAL, error)
        return WrittenRows(error.rows, saved=False)


def _write_compared(
    context: Context,
    request: ComparisonRequest,
    run: PlannedRun,
    writing: AbstractContextManager[executor.Means],
) -> WrittenRows:
    from hbatune.operations.verify import Verification

    verification = Verification(context, run.situation, run.plan, request)
    with verification, writing as means:
        verification.before(means)
        done = write_rows(context, run, means)
        if not done.saved:  # without a journal, a trial must not switch anything
            return WrittenRows(done.rows, saved=False)
        all_tried = not means.stop()
        try:
            verified = verification.after(done.rows, means)
        except lock.HoldError as error:  # nothing was switched, so the written values remain
            context.note_failure(Task.COMPARE, error)
            return WrittenRows(done.rows, noted=False)
    # A verdict may have restored interrupts, which are then irqbalance's again.
    noted = boot_files.keep_placed_interrupts(
        context, run.situation.machine, verified.rows, run.vector_ids
    )
    if means.stop():
        context.note_event(Event.COMPARISON_STOPPED if all_tried else Event.WRITING_STOPPED)
    return WrittenRows(verified.rows, noted=noted, verified=verified)


def _lift_rollbacks(context: Context, situation: Situation, *, once: bool) -> bool:
    """Lift the rollbacks of the targets applied; return whether the record could be written.

    With ``once``, only rollbacks of named targets are lifted, so the daemon does not resume.
    """
    records = situation.rollbacks
    if once:
        named = [record for record in records.records if record.ids is not None]
        records = rollback_record.RollbackRecords(tuple(named))
    lift = partial(rollback_record.lift, records, situation.chosen.ids, context.paths)
    return context.attempt(Task.LIFT_ROLLBACK, lift)


def _refresh_rules(context: Context, situation: Situation, plan: Plan) -> bool:
    """Compile the udev rules for future disks; return whether udev has them."""
    if not boot_files.has_rules(context):
        return True
    # Read again: the apply has lifted rollbacks and changed reverted values.
    filed = journal.load_with_current_ids(context.paths.journal, situation.machine)[0]
    records = rollback_record.load(context.paths).with_current_ids(situation.machine)
    after = replace(situation, journal=filed, rollbacks=records)
    return boot_files.refresh_rules(context, boot_files.compile_plan(after, plan))
