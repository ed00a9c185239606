"""Applies a profile: plan, write, read back, measure around it, and keep it so across boots."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import journal, lock, marks, rollback_record, system
from hbatune.act.executor import Means
from hbatune.act.journal import Journal, LossKind, LostError
from hbatune.act.lock import HoldError
from hbatune.act.rollback_record import RollbackGuard, RollbackRecords
from hbatune.act.writer import UnfinishedError, require_writable
from hbatune.act.writer import apply as write_plan
from hbatune.errors import HbatuneError
from hbatune.facts.model import Machine
from hbatune.operations.boot_files import (
    has_rules,
    keep_placed_interrupts,
    refresh_rules,
    remember_immovable,
    reserve_interrupts,
)
from hbatune.operations.context import (
    Context,
    EarlierBoot,
    InterruptedRuns,
    Phase,
    RollbackCame,
    Stopped,
    Task,
    TaskFailed,
    UnmatchedNames,
)
from hbatune.operations.situation import Situation, survey
from hbatune.plan.joint_limits import require_affordable
from hbatune.plan.rows import DONE, Plan, Row, State
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.probe.result import ProbeResult
from hbatune.workers import WorkerPool

if TYPE_CHECKING:
    # What measures is loaded where something is measured.
    from hbatune.operations.verify import Verified


class ComparisonRequest(Struct, frozen=True, kw_only=True):
    """How changes are compared.

    ``thorough`` takes the time that the site allows, and compares all runs before with all after
    where nothing can be switched. ``shared`` probes shared storage as well. What is worse stays
    with ``keep_worse``. Probes write to a file in ``folder`` in place of the disk that it is on,
    and with ``destructive`` to the empty disks among ``names``, which a user gave.
    """

    thorough: bool = False
    shared: bool = False
    keep_worse: bool = False
    folder: Path | None = None
    destructive: bool = False
    names: tuple[str, ...] = ()


class ApplyRequest(Struct, frozen=True, kw_only=True):
    """The request for an apply.

    Without ``targets`` it is for everything. ``once`` leaves the active profile as it is. ``probe``
    has the changes compared as in ``compare``, and those that cost reverted. ``disrupt`` allows
    writes that reset an adapter.
    """

    profile: str | None = None
    targets: tuple[str, ...] = ()
    once: bool = False
    probe: bool = True
    compare: ComparisonRequest = ComparisonRequest()
    disrupt: bool = False
    module_options: bool = False


class Applied(Struct, frozen=True):
    """The result of an apply.

    ``rows`` are those of the plan and of the module options. ``saved``, ``lifted`` and ``compiled``
    are whether the journal, the record of rollbacks and the udev rules could be brought up to date.
    ``active`` is False if a rollback was recorded during the run: then no profile becomes active.
    ``noted`` is whether the marks of the disks and the list for irqbalance could be written, and
    the changes compared as requested.
    """

    plan: Plan
    situation: Situation
    rows: tuple[Row, ...]
    verified: Verified | None
    saved: bool
    lifted: bool
    compiled: bool
    active: bool = True
    noted: bool = True

    @property
    def complete(self) -> bool:
        """Whether every row is as it should be and every file was brought up to date.

        A setting that was shown to be worse is not as it should be, even if it was to stay.
        """
        kept = self.saved and self.lifted and self.compiled and self.active and self.noted
        kept = kept and not self.situation.journal.losses
        kept = kept and not any(disk.unread for disk in self.plan.left_alone)
        worse = self.verified is not None and self.verified.worse
        return kept and not worse and all(map(is_settled, self.rows))

    @property
    def results(self) -> list[ProbeResult]:
        """The last measurement of each target, but for those where a setting was reverted since."""
        proofs = [] if self.verified is None else self.verified.proofs
        beyond = {proof.target for proof in proofs if proof.verdict.beyond}
        last = {proof.target: proof.last for proof in proofs if proof.target not in beyond}
        return [each for each in last.values() if each is not None]


class _Done(Struct, frozen=True):
    """The rows with their outcomes, and the verdicts on them."""

    rows: tuple[Row, ...]
    verified: Verified | None = None
    saved: bool = True
    noted: bool = True


def apply(context: Context, asked: ApplyRequest) -> Applied:
    """Write the profile's values and make them last, under the lock.

    Raises LockedError, UsageError for a request that makes no sense, takes too much memory or needs
    writes to a read-only /sys, and JournalError and ActiveProfileError if a file cannot be written
    or the journal is lost: all of them before anything is written to a device.
    """
    configuration()  # a mistake in it is reported before any wait for the lock
    paths = context.paths
    # Before any wait, too: a rollback that is recorded from now on overrides this apply.
    began = rollback_record.load(paths)
    with context.lock(), WorkerPool() as worker_pool:
        stuck = lock.settle_claims(paths.claims, patience=context.patience)
        situation = survey(
            asked.profile, asked.targets, stuck=stuck, worker_pool=worker_pool, paths=paths
        )
        losses = situation.journal.losses
        if any(loss.kind is not LossKind.DAMAGED for loss in losses):
            raise LostError(losses)
        context.reporter.note(
            InterruptedRuns(
                situation.journal, situation.rollbacks, situation.machine, situation.stuck
            )
        )
        context.reporter.note(UnmatchedNames(situation.unmatched))
        plan = situation.plan(named=bool(asked.targets), disrupt=asked.disrupt)
        require_affordable(plan)
        require_writable(situation.machine, {row.id for row in plan.drift})
        if not asked.once and plan.profile != situation.config.profile:
            # Now rather than after the writes: settings would be applied that no reboot brings
            # back.
            system.require_writable_configuration(configuration_file())
        filed = _journal(context, situation)
        compares = asked.probe and plan.drift and not rollback_record.has_later(began, paths)
        carry_out = _write_compared if compares else _write_alone
        guard = began.guard(paths, named=bool(asked.targets))
        done = carry_out(context, asked, situation, plan, filed, worker_pool, guard)
        unfinished = {row.id for row in done.rows if not is_settled(row)}
        noted = mark_seen(context, situation.machine, situation.ids, unfinished) and done.noted
        rows = done.rows
        is_active = not rollback_record.has_later(began, paths)
        if asked.module_options and is_active:
            from hbatune.operations.boot_files import write_options  # hardly ever

            rows += write_options(context, situation, asked.targets)
        # After the writes: until then the daemon leaves alone the targets that were rolled back.
        lifted, compiled = True, True
        if is_active:
            lifted = _lift(context, situation, once=asked.once)
        else:
            context.reporter.note(RollbackCame())
        if is_active and not asked.once:
            # The configuration before the rules: udev must not tune for a profile that is not
            # active.
            system.activate_profile(configuration_file(), plan.profile)
            compiled = _refresh_rules(context, situation, plan)
        if done.verified is not None:
            _record(context, situation, done.rows, done.verified)
    if not asked.once:
        # Outside of the lock, which the daemon's pass takes.
        context.nudge()
    return Applied(
        plan=plan,
        situation=situation,
        rows=rows,
        verified=done.verified,
        saved=done.saved,
        lifted=lifted,
        compiled=compiled,
        active=is_active,
        noted=noted,
    )


def mark_seen(
    context: Context,
    machine: Machine,
    ids: Collection[str] | None,
    unfinished: Collection[str],
) -> bool:
    """Mark these targets as seen, as ``seen.remember`` does; return whether that succeeded."""
    try:
        marks.remember_disks(context.paths.seen, machine, ids, unfinished=unfinished)
    except marks.MarkError as error:
        context.reporter.note(TaskFailed(Task.MARK_DISKS, error))
        return False
    return True


def is_settled(row: Row) -> bool:
    """Whether nothing is left to do about a row, or nothing can be done."""
    if row.state is State.UNREADABLE:
        return False
    return row.outcome is None or row.outcome in DONE


class WrittenRows(Struct, frozen=True):
    """The rows with their outcomes.

    ``saved`` is whether the journal could be brought up to date, ``listed`` whether the lists of
    interrupts could be: for irqbalance, and of those that cannot be moved.
    """

    rows: tuple[Row, ...]
    saved: bool = True
    listed: bool = True


def write(
    context: Context,
    situation: Situation,
    plan: Plan,
    filed: Journal,
    means: Means,
    *,
    named: Collection[str] = (),
    rows: Collection[Row] | None = None,
    ids: Collection[str] | None = None,
) -> WrittenRows:
    """Write the plan, and have irqbalance leave alone the interrupts that it places.

    Values that were reverted earlier are tried again on the ids in ``named``. ``rows`` decide on
    the interrupts (those of the plan by default), for the vectors with these ``ids``. Raises as
    ``act.writer.apply`` does, before anything is written.
    """
    machine = situation.machine
    speaking = plan.rows if rows is None else rows
    if situation.rest is not None:  # a part of the machine, which has no interrupts
        return _write_rows(context, machine, plan, filed, means, named)
    reserve_interrupts(context, machine, speaking, ids)
    try:
        written = _write_rows(context, machine, plan, filed, means, named)
    except HbatuneError:  # nothing was written: give back the interrupts reserved for it
        keep_placed_interrupts(context, machine, speaking, ids)
        raise
    remembered = remember_immovable(context, plan, written.rows)
    done = {(row.id, row.setting): row for row in written.rows}
    after = [done.get((row.id, row.setting), row) for row in speaking]
    return replace(
        written, listed=keep_placed_interrupts(context, machine, after, ids) and remembered
    )


def _write_rows(
    context: Context,
    machine: Machine,
    plan: Plan,
    filed: Journal,
    means: Means,
    named: Collection[str],
) -> WrittenRows:
    try:
        return WrittenRows(write_plan(machine, plan, filed, means, named=named))
    except UnfinishedError as error:
        context.reporter.note(TaskFailed(Task.SAVE_JOURNAL, error))
        return WrittenRows(error.rows, saved=False)


def _journal(context: Context, situation: Situation) -> Journal:
    """Return this boot's journal, converted from the form of earlier versions."""
    filed, earlier = journal.load_for(context.paths.journal, situation.machine)
    if filed.excluded:  # an earlier version kept them here; they move to the record
        # Durable there before they leave the journal, so that a crash cannot lose a rollback.
        rollback_record.record_targets(filed.excluded, context.paths)
        filed = replace(filed, excluded=())
    if earlier is not None and earlier.entries:
        context.reporter.note(EarlierBoot(dropped=True))
    return filed


def _write_alone(
    context: Context,
    asked: ApplyRequest,
    situation: Situation,
    plan: Plan,
    filed: Journal,
    worker_pool: WorkerPool,
    guard: RollbackGuard,
) -> _Done:
    named, ids = situation.ids or frozenset(), situation.ids
    act = situation.config.act
    with context.writing(Phase.WRITING, _disks(plan), act, worker_pool, guard) as means:
        done = write(context, situation, plan, filed, means, named=named, ids=ids)
    if means.stop():
        context.reporter.note(Stopped(compared=False))
    return _Done(done.rows, saved=done.saved, noted=done.listed)


def _write_compared(
    context: Context,
    asked: ApplyRequest,
    situation: Situation,
    plan: Plan,
    filed: Journal,
    worker_pool: WorkerPool,
    guard: RollbackGuard,
) -> _Done:
    from hbatune.operations.verify import Verification

    verifying = Verification(context, situation, plan, asked.compare)
    named, ids = situation.ids or frozenset(), situation.ids
    act = situation.config.act
    with (
        verifying,
        context.writing(Phase.WRITING, _disks(plan), act, worker_pool, guard) as means,
    ):
        verifying.before(means)
        done = write(context, situation, plan, filed, means, named=named, ids=ids)
        if not done.saved:  # without a journal a trial must not switch anything
            return _Done(done.rows, saved=False)
        all_tried = not means.stop()
        try:
            verified = verifying.after(done.rows, means)
        except HoldError as error:  # nothing was switched, so everything is as it was written
            context.reporter.note(TaskFailed(Task.COMPARE, error))
            return _Done(done.rows, noted=False)
    # A verdict may have put interrupts back: irqbalance may have those again.
    noted = keep_placed_interrupts(context, situation.machine, verified.rows, ids)
    if means.stop():
        context.reporter.note(Stopped(compared=all_tried))
    return _Done(verified.rows, verified=verified, noted=noted)


def _record(
    context: Context, situation: Situation, rows: tuple[Row, ...], verified: Verified
) -> None:
    """Put the verdicts into the history."""
    from hbatune.operations.probe import keep_records, records_of_apply

    keep_records(context, records_of_apply(context, situation, rows, verified))


def _disks(plan: Plan) -> int:
    return len({row.target for row in plan.drift})


def _lift(context: Context, situation: Situation, *, once: bool) -> bool:
    """Lift the rollbacks of the targets applied; return whether the record could be written.

    With ``once`` the daemon stays out of it: only targets that were named are lifted.
    """
    records = situation.rollbacks
    if once:
        by_name = (record for record in records.records if record.ids is not None)
        records = RollbackRecords(tuple(by_name))
    try:
        rollback_record.lift(records, situation.ids, context.paths)
    except rollback_record.RecordError as error:
        context.reporter.note(TaskFailed(Task.LIFT_ROLLBACK, error))
        return False
    return True


def _refresh_rules(context: Context, situation: Situation, plan: Plan) -> bool:
    """Compile the udev rules for disks to come; return whether udev has them."""
    if not has_rules(context):
        return True
    # Read again: the apply has lifted rollbacks and changed reverted values.
    filed = journal.load_for(context.paths.journal, situation.machine)[0]
    records = rollback_record.load(context.paths)
    return refresh_rules(
        context,
        situation.profile,
        situation.boot_site,
        filed,
        rolled_back=journal.current_records(filed, records, situation.machine).ids,
        room=plan.memory.roomy,
    )
