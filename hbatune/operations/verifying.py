"""`apply --verify`: representatives judged with and without the change, and what costs undone."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import paths
from hbatune.act.apply import Means
from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Trial, Values, now, switchable
from hbatune.cli.text.output import note
from hbatune.cli.text.progress import progress
from hbatune.operations.probing import touched, workload
from hbatune.operations.situation import Situation
from hbatune.plan.rows import Outcome, Plan, Row
from hbatune.probe import run
from hbatune.probe.budget import Budget, fit
from hbatune.probe.model import Figures, Skipped
from hbatune.probe.prove import Part, Proof, Proving, parts

RAMP = 0.3
"""Seconds of each run that are left out: the settings have just been switched."""


class Verified(Struct):
    """What a verification came to: the rows, with what was put back and by which proof.

    ``skipped`` and ``left_out`` are the representatives that were not compared. Grows as the
    verification goes on.
    """

    rows: tuple[Row, ...]
    proofs: list[Proof] = []
    skipped: tuple[Skipped, ...] = ()
    left_out: tuple[str, ...] = ()
    reverted: dict[Key, Proof] = {}


class Verifying:
    """One endpoint for each adapter, medium and model that the plan touches, and its verdict."""

    def __init__(self, situation: Situation, plan: Plan, *, shared: bool) -> None:
        self._situation = situation
        self._plan = plan
        targets = touched(situation, plan)
        self._selection = run.choose(situation.machine, targets, shared=shared)
        short = replace(
            workload(situation), ramp=RAMP, runtime=situation.config.probe.verify_seconds
        )
        self._pairs = situation.config.probe.verify_pairs
        limit = situation.config.probe.verify_limit
        self._budget: Budget = fit(self._selection.subjects, short, 2 * self._pairs, limit)
        self._before: Values = {}
        self._blocks: dict[str, list[Figures]] = {}
        self._proving = Proving(
            measure=lambda subject: run.probe([subject], self._budget.workload)[0],
            tolerance=situation.profile.tolerance,
            limit=float(limit),
            pair=2 * run.estimate(1, self._budget.workload),
            pairs=self._pairs,
        )

    @property
    def seconds(self) -> float:
        """About how long the comparisons take, where nothing has cost."""
        return self._budget.seconds

    @property
    def left_out(self) -> tuple[str, ...]:
        """The representatives for which there is no time."""
        return tuple(each.target for each in self._budget.left_out)

    def before(self, means: Means) -> None:
        """Say ahead how long it takes, and measure what cannot be switched back and forth."""
        subjects = self._budget.subjects
        if subjects:
            note(
                f"comparing {len(subjects)} endpoints with and without the change, {self._pairs} "
                f"times each, which takes about {self.seconds:.0f} s; where something has "
                f"cost, longer, but {self._situation.config.probe.verify_limit} s at most"
            )
        self._before = now(self._situation.machine, self._plan.drift, means)
        self._proving.stop = means.stop
        for part in self._parts(self._plan.drift):
            if not self._switchable(part):
                self._blocks[part.subject.target] = self._proving.block(part.subject)[0]

    def after(self, rows: tuple[Row, ...], means: Means) -> Verified:
        """Judge every representative, put back what costs, and return what came of it.

        JournalError and HoldError where the switching could not begin: nothing was switched then.
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
        machine = self._situation.machine
        with (
            progress("comparing", 2 * self._pairs * len(todo)) as advance,
            Trial(machine, rows, self._before, means, holds=paths.HOLDS) as trial,
        ):
            self._proving.advance = advance
            for part in todo:
                if not means.stop():
                    self._judge(trial, _without(part, found.reverted), found)
        return found

    def _judge(self, trial: Trial, part: Part, found: Verified) -> None:
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

    def _parts(self, rows: Sequence[Row]) -> list[Part]:
        return parts(self._budget.subjects, self._situation.machine.endpoints, rows)

    def _switchable(self, part: Part) -> bool:
        return switchable(self._situation.machine, part.own, self._before)


def _without(part: Part, reverted: Collection[Key]) -> Part:
    """Return the part without what an earlier verdict has put back on the same adapter."""
    own, all_ = (
        tuple(row for row in rows if (row.id, row.setting) not in reverted)
        for rows in (part.own, part.all)
    )
    return replace(part, own=own, all=all_)


def _blamed(proofs: Sequence[Proof], key: Key) -> Proof:
    """Return the proof that speaks of this setting most closely."""
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
