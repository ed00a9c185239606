"""Applies a profile: plan, write, read back, measure around it, and keep it so across boots."""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import active, claims, hands_off, interrupts, journal, seen
from hbatune.act.apply import Means, UnfinishedError
from hbatune.act.apply import apply as write_plan
from hbatune.act.journal import Journal
from hbatune.errors import HbatuneError
from hbatune.operations.boot_rules import refresh
from hbatune.operations.context import Context, Phase
from hbatune.operations.history import keep, records_of_apply
from hbatune.operations.irqbalance import keep_placed, reserve
from hbatune.operations.module_options import write_options
from hbatune.operations.notes import (
    EarlierBoot,
    Leftovers,
    Stopped,
    Task,
    TaskFailed,
    UnmatchedNames,
)
from hbatune.operations.situation import Situation, configuration, configuration_file, survey
from hbatune.operations.verify import BeforeAfterProbes, Verification, Verified
from hbatune.plan.memory import require_affordable
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.probe.model import ProbePair, ProbeResult, pair_outcomes
from hbatune.workers import Crew


class ApplyRequest(Struct, frozen=True, kw_only=True):
    """What an apply is asked for.

    Without ``targets`` it is about everything. ``once`` leaves the active profile as it is.
    ``probe`` measures before and after, ``verify`` judges instead, and both look at shared storage
    only with ``shared``. ``disrupt`` allows what resets an adapter.
    """

    profile: str | None = None
    targets: tuple[str, ...] = ()
    once: bool = False
    probe: bool = True
    verify: bool = False
    shared: bool = False
    disrupt: bool = False
    module_options: bool = False


class Applied(Struct, frozen=True):
    """What an apply came to.

    ``rows`` are those of the plan and of the module options. ``saved``, ``lifted`` and
    ``compiled`` are whether the journal, the record of rollbacks and the udev rules could be
    brought up to date.
    """

    plan: Plan
    situation: Situation
    rows: tuple[Row, ...]
    probes: list[ProbePair]
    verified: Verified | None
    saved: bool
    lifted: bool
    compiled: bool

    @property
    def complete(self) -> bool:
        """Whether everything is as it should be."""
        kept = self.saved and self.lifted and self.compiled
        return kept and all(map(is_as_it_should_be, self.rows))

    @property
    def results(self) -> list[ProbeResult]:
        """What was measured last of each target, as it is now: not where something went back."""
        after = [pair.after for pair in self.probes]
        proofs = [] if self.verified is None else self.verified.proofs
        beyond = {proof.target for proof in proofs if proof.verdict.beyond}
        last = {proof.target: proof.last for proof in proofs if proof.target not in beyond}
        return [each for each in (*after, *last.values()) if isinstance(each, ProbeResult)]


class _Done(Struct, frozen=True):
    """The rows as they were written, and what was measured around the writes."""

    rows: tuple[Row, ...]
    probes: list[ProbePair] = []
    verified: Verified | None = None
    saved: bool = True


def apply(context: Context, asked: ApplyRequest) -> Applied:
    """Make it so, under the lock.

    LockedError, UsageError for what makes no sense or takes too much memory, JournalError and
    ActiveProfileError where something cannot be kept: all of them before anything is written.
    """
    configuration()  # a mistake in it is worth more than waiting for the lock
    with context.lock(), Crew() as crew:
        paths = context.paths
        stuck = claims.settle(paths.claims, patience=context.patience)
        situation = survey(asked.profile, asked.targets, stuck=stuck, crew=crew, paths=paths)
        context.reporter.note(Leftovers(situation.journal, situation.machine, situation.stuck))
        context.reporter.note(UnmatchedNames(situation.unmatched))
        plan = situation.plan(named=bool(asked.targets), disrupt=asked.disrupt)
        require_affordable(plan)
        if not asked.once and plan.profile != situation.config.profile:
            active.require_writable(configuration_file())
        filed = _journal(context, situation)
        carry_out = _write_compared if asked.verify and plan.drift else _write_probed
        done = carry_out(context, asked, situation, plan, filed, crew)
        unfinished = {row.id for row in done.rows if not is_as_it_should_be(row)}
        seen.remember(paths.seen, situation.machine, situation.ids, unfinished=unfinished)
        rows = done.rows
        if asked.module_options:
            rows += write_options(context, situation, asked.targets)
        # After the writes: until then the daemon leaves alone what was rolled back.
        lifted = _lift(context, situation, whole=not asked.targets, once=asked.once)
        compiled = True
        if not asked.once:
            active.activate(configuration_file(), plan.profile)
            compiled = _refresh_rules(context, situation, plan)
        keep(context, records_of_apply(context, situation, done.rows, done.probes, done.verified))
    if not asked.once:
        context.nudge()
    return Applied(
        plan=plan,
        situation=situation,
        rows=rows,
        probes=done.probes,
        verified=done.verified,
        saved=done.saved,
        lifted=lifted,
        compiled=compiled,
    )


def is_as_it_should_be(row: Row) -> bool:
    """Whether nothing is left to be done about a row, or could be."""
    if row.state is State.UNREADABLE:
        return False
    return row.outcome in (None, Outcome.KEPT, Outcome.WRITTEN)


class WrittenRows(Struct, frozen=True):
    """The rows with their outcomes, and whether the journal could be brought up to date."""

    rows: tuple[Row, ...]
    saved: bool = True


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
    """Write the plan, and have irqbalance leave the interrupts that are placed then.

    ``named`` are the ids whose reverted values are tried once more. ``rows`` speak of the
    interrupts (those of the plan, where there are none), and for the vectors with these ``ids``.
    What cannot be kept raises as ``act.apply.apply`` does, before anything is written.
    """
    machine = situation.machine
    speaking = plan.rows if rows is None else rows
    reserve(context, machine, speaking, ids)
    try:
        written = WrittenRows(write_plan(machine, plan, filed, means, named=named))
    except UnfinishedError as error:
        context.reporter.note(TaskFailed(Task.SAVE_JOURNAL, error))
        written = WrittenRows(error.rows, saved=False)
    except HbatuneError:  # nothing was written
        keep_placed(context, machine, speaking, ids)
        raise
    interrupts.remember_immovable(context.paths.locked, plan, written.rows)
    done = {(row.id, row.setting): row for row in written.rows}
    after = [done.get((row.id, row.setting), row) for row in speaking]
    keep_placed(context, machine, after, ids)
    return written


def _journal(context: Context, situation: Situation) -> Journal:
    """Return this boot's journal, brought up to date with what earlier versions wrote into it."""
    filed, earlier = journal.load_for(context.paths.journal, situation.machine)
    if filed.excluded:  # of an earlier version: from now on the record of rollbacks has them
        hands_off.save(situation.hands_off)
        filed = replace(filed, excluded=())
    if earlier is not None and earlier.entries:
        context.reporter.note(EarlierBoot(dropped=True))
    return filed


def _write_probed(
    context: Context,
    asked: ApplyRequest,
    situation: Situation,
    plan: Plan,
    filed: Journal,
    crew: Crew,
) -> _Done:
    probing = BeforeAfterProbes(
        context, situation, plan, declined=not asked.probe, shared=asked.shared
    )
    before = probing.before()
    named, ids = situation.ids or frozenset(), situation.ids
    with context.writing(Phase.WRITING, _disks(plan), situation.config.act, crew) as means:
        done = write(context, situation, plan, filed, means, named=named, ids=ids)
    if means.stop():
        context.reporter.note(Stopped(compared=False))
        return _Done(done.rows, pair_outcomes(before, []), saved=done.saved)
    return _Done(done.rows, probing.after(before), saved=done.saved)


def _write_compared(
    context: Context,
    asked: ApplyRequest,
    situation: Situation,
    plan: Plan,
    filed: Journal,
    crew: Crew,
) -> _Done:
    verifying = Verification(context, situation, plan, shared=asked.shared)
    named, ids = situation.ids or frozenset(), situation.ids
    with context.writing(Phase.WRITING, _disks(plan), situation.config.act, crew) as means:
        verifying.before(means)
        done = write(context, situation, plan, filed, means, named=named, ids=ids)
        if not done.saved:  # the trial's switches could not be journalled
            return _Done(done.rows, saved=False)
        verified = verifying.after(done.rows, means)
    keep_placed(context, situation.machine, verified.rows, ids)
    if means.stop():
        context.reporter.note(Stopped(compared=True))
    return _Done(verified.rows, verified=verified)


def _disks(plan: Plan) -> int:
    return len({row.target for row in plan.drift})


def _lift(context: Context, situation: Situation, *, whole: bool, once: bool) -> bool:
    """Lift the rollback of what was applied; whether the record could be written.

    With ``once`` the daemon stays out of it: only what was named is not rolled back any more.
    """
    record = situation.hands_off
    after = record.applied(None if whole else situation.ids or frozenset())
    if once:
        after = replace(after, everything=record.everything, lifted=record.lifted)
    if after == record:
        return True
    try:
        hands_off.save(after)
    except hands_off.RecordError as error:
        context.reporter.note(TaskFailed(Task.LIFT_ROLLBACK, error))
        return False
    return True


def _refresh_rules(context: Context, situation: Situation, plan: Plan) -> bool:
    """Have udev set what the profile wants as a disk appears; whether it does."""
    # Read again: what was named is excluded no longer.
    filed = journal.load_for(context.paths.journal, situation.machine)[0]
    return refresh(
        context,
        situation.profile,
        situation.boot_site,
        filed,
        rolled_back=journal.rollback_record(filed, situation.machine).ids,
        room=plan.memory.roomy,
    )
