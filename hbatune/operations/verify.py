"""The measurements around an `apply`: probes before and after, or comparisons with a verdict.

A comparison switches each change back and forth on representatives, and reverts regressions: no
change is believed before it was tested (D2-6).
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.apply import Means
from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Trial, Values, now, switchable
from hbatune.operations.context import Context, Phase
from hbatune.operations.notes import ComparisonsAhead, NoTimeToProbe, ProbesAhead
from hbatune.operations.situation import Situation
from hbatune.plan.rows import Outcome, Plan, Row
from hbatune.policy.config import ProbeConfig
from hbatune.probe import run
from hbatune.probe.model import (
    Figures,
    ProbePair,
    ProbeResult,
    Skipped,
    Subject,
    Workload,
    pair_outcomes,
)
from hbatune.probe.model import ProbeOutcome as Probed
from hbatune.probe.prove import Proof, Proving, Representative, make_representatives
from hbatune.probe.run import APPLY, TimeBudget, fit_time
from hbatune.probe.selection import Selection
from hbatune.probe.workloads import short_form

RAMP = 0.3
"""Seconds at the start of each run that do not count: the settings have just been switched."""


class BeforeAfterProbes:
    """One endpoint for each adapter, medium and model that the plan changes, probed twice.

    Both probes together take a minute at most: runs get shorter, and endpoints that still do not
    fit are noted. A site that configures longer runs gets proportionally more time.
    """

    def __init__(
        self, context: Context, situation: Situation, plan: Plan, *, declined: bool, shared: bool
    ) -> None:
        self._reporter = context.reporter
        targets = touched(situation, plan)
        self._declined = declined or not targets
        self._selection = (
            Selection((), ())
            if self._declined
            else run.choose_subjects(situation.machine, targets, shared=shared)
        )
        longer = max(1.0, situation.config.probe.seconds / ProbeConfig().seconds)
        self._budget = fit_time(self._selection.subjects, workload(situation), 2, APPLY * longer)

    def before(self) -> list[Probed]:
        """Probe the chosen endpoints, after a note of how long both probes take."""
        subjects, left_out = self._budget.subjects, self._budget.left_out
        if subjects:
            self._reporter.note(ProbesAhead(len(subjects), self._budget.seconds))
        if left_out:
            self._reporter.note(NoTimeToProbe(tuple(subject.target for subject in left_out)))
        return [*self._measure(Phase.PROBING_BEFORE, subjects), *self._selection.skipped]

    def after(self, before: Sequence[Probed]) -> list[ProbePair]:
        """Probe the measured endpoints again, and return each probe with the one before."""
        measured = {outcome.target for outcome in before if isinstance(outcome, ProbeResult)}
        subjects = [each for each in self._budget.subjects if each.target in measured]
        return pair_outcomes(before, self._measure(Phase.PROBING_AFTER, subjects))

    def _measure(self, phase: Phase, subjects: Sequence[Subject]) -> list[Probed]:
        if not subjects:
            return []
        with self._reporter.progress(phase, len(subjects)) as advance:
            return run.probe(
                subjects,
                self._budget.workload,
                lambda done, total, name: advance(name),
                look=phase is Phase.PROBING_BEFORE,
            )


class Verified(Struct):
    """The result of a verification: the rows, and the reverted settings with the proof for each.

    ``skipped`` and ``left_out`` are representatives that were not compared. It grows as the
    verification goes on.
    """

    rows: tuple[Row, ...]
    proofs: list[Proof] = []
    skipped: tuple[Skipped, ...] = ()
    left_out: tuple[str, ...] = ()
    reverted: dict[Key, Proof] = {}


class Verification:
    """One endpoint for each adapter, medium and model that the plan changes, and its verdict."""

    def __init__(self, context: Context, situation: Situation, plan: Plan, *, shared: bool) -> None:
        self._context = context
        self._situation = situation
        self._plan = plan
        targets = touched(situation, plan)
        self._selection = run.choose_subjects(situation.machine, targets, shared=shared)
        short = replace(
            workload(situation), ramp=RAMP, runtime=situation.config.probe.verify_seconds
        )
        self._pairs = situation.config.probe.verify_pairs
        limit = situation.config.probe.verify_limit
        self._budget: TimeBudget = fit_time(self._selection.subjects, short, 2 * self._pairs, limit)
        self._before: Values = {}
        self._blocks: dict[str, list[Figures]] = {}
        self._proving = Proving(
            measure=lambda subject: run.probe([subject], self._budget.workload)[0],
            tolerance=situation.profile.tolerance,
            limit=float(limit),
            pair=2 * run.estimate_seconds(1, self._budget.workload),
            pairs=self._pairs,
        )

    @property
    def seconds(self) -> float:
        """The estimated duration of the comparisons, if no setting is found to cost."""
        return self._budget.seconds

    @property
    def left_out(self) -> tuple[str, ...]:
        """The representatives for which there is no time."""
        return tuple(each.target for each in self._budget.left_out)

    def before(self, means: Means) -> None:
        """Note the duration, and measure the endpoints that cannot be switched back and forth."""
        subjects = self._budget.subjects
        if subjects:
            limit = self._situation.config.probe.verify_limit
            ahead = ComparisonsAhead(len(subjects), self._pairs, self.seconds, limit)
            self._context.reporter.note(ahead)
        self._before = now(self._situation.machine, self._plan.drift, means)
        self._proving.stop = means.stop
        for part in self._parts(self._plan.drift):
            # Its only chance: once the plan is written, the state before cannot be brought back for
            # a run.
            if not self._switchable(part):
                self._blocks[part.subject.target] = self._proving.block(part.subject)[0]

    def after(self, rows: tuple[Row, ...], means: Means) -> Verified:
        """Judge every representative, revert changes that cost too much, and return the results.

        Raises JournalError and HoldError where the switching could not begin: then nothing was
        switched.
        """
        found = Verified(
            rows,
            skipped=self._selection.skipped,
            left_out=self.left_out,
        )
        written = [row for row in rows if row.outcome is Outcome.WRITTEN]
        todo = self._parts(written)
        if not todo:
            return found
        machine, runs = self._situation.machine, 2 * self._pairs * len(todo)
        with (
            self._context.reporter.progress(Phase.COMPARING, runs) as advance,
            Trial(machine, rows, self._before, means, holds=self._context.paths.holds) as trial,
        ):
            self._proving.advance = advance
            for part in todo:
                # Leaving the trial still brings every switched setting to its place.
                if not means.stop():
                    self._judge(trial, _without(part, found.reverted), found)
        return found

    def _judge(self, trial: Trial, part: Representative, found: Verified) -> None:
        if self._switchable(part):
            proofs, back = self._proving.prove(trial, part)
        else:
            before = self._blocks.get(part.subject.target, [])
            after, last = self._proving.block(part.subject)
            proofs = [self._proving.judge_blocks(part, before, after, last)]
            back = list(part.all) if proofs[0].verdict.beyond else []
        found.proofs += proofs
        keys = [(row.id, row.setting) for row in back]
        stayed = trial.revert(keys)
        found.reverted |= {key: _blamed(proofs, key) for key in keys if key not in stayed}
        found.rows = tuple(_reverted(row, keys, stayed) for row in found.rows)

    def _parts(self, rows: Sequence[Row]) -> list[Representative]:
        return make_representatives(self._budget.subjects, self._situation.machine.endpoints, rows)

    def _switchable(self, part: Representative) -> bool:
        return switchable(self._situation.machine, part.own, self._before)


def touched(situation: Situation, plan: Plan) -> set[str]:
    """Return the endpoints that the plan changes; an adapter's setting changes all of its own."""
    endpoints = {endpoint.target for endpoint in situation.machine.endpoints}
    rows = ((row.target if row.target in endpoints else row.adapter) for row in plan.drift)
    return {target for target in rows if target is not None}


def workload(situation: Situation) -> Workload:
    """Return the profile's probe, with the configured duration."""
    return short_form(situation.profile.probe, float(situation.config.probe.seconds))


def _without(part: Representative, reverted: Collection[Key]) -> Representative:
    """Return the part without rows that an earlier verdict on the same adapter has reverted."""
    own, all_ = (
        tuple(row for row in rows if (row.id, row.setting) not in reverted)
        for rows in (part.own, part.all)
    )
    return replace(part, own=own, all=all_)


def _blamed(proofs: Sequence[Proof], key: Key) -> Proof:
    """Return the proof that is most specific about this setting."""
    speaking = [proof for proof in proofs if key[1] in proof.settings and proof.verdict.beyond]
    return (speaking or list(proofs[:1]))[-1]


def _reverted(row: Row, keys: Collection[Key], stayed: Mapping[Key, WriteResult]) -> Row:
    key = (row.id, row.setting)
    if key not in keys:
        return row
    if key in stayed:
        why = stayed[key]
        return replace(row, outcome=why.outcome, errno=why.errno, found=why.found)
    return replace(row, outcome=Outcome.REVERTED)
