"""The verdicts of an `apply`: each change compared with and without on representatives.

A comparison switches each change back and forth, and puts back what is worse twice: no change is
believed before it was tested (D2-6). By default it is as short as a verdict can be; `--verify`
takes the time that the site allows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key, Means
from hbatune.act.trial import Trial, Values, now, switchable
from hbatune.errors import UsageError
from hbatune.operations.context import ComparisonsAhead, Context, Phase
from hbatune.operations.situation import Situation
from hbatune.plan.rows import Outcome, Plan, Row
from hbatune.policy.config import ProbeConfig
from hbatune.probe import run
from hbatune.probe.guard import scratch_file, with_links
from hbatune.probe.history import Proof
from hbatune.probe.prove import Proving, Representative, make_representatives
from hbatune.probe.result import (
    Failed,
    Figures,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.run import TimeBudget, fit_time
from hbatune.probe.selection import (
    Selection,
    medium_of,
    one_for_each_adapter,
    prefer,
    subjects_of,
)
from hbatune.probe.verdict import FEWEST, PAIRS
from hbatune.probe.workloads import follow_plan, unexercised_settings

if TYPE_CHECKING:
    # Not at run time: `probe` and `autotune` use this module, and apply nothing.
    from hbatune.operations.apply import ComparisonRequest

RAMP = 0.2
"""Seconds at the start of each run that do not count: the settings have just been switched."""
QUICK = 120
"""Seconds that the comparisons of an apply without `--verify` may take where nothing has cost."""
QUICK_LIMIT = 300
"""Seconds for those and for the second comparisons of what has cost."""
QUICK_RUN = 0.5
"""Seconds of a run, at least: four representatives fit into ``QUICK``."""


class Verified(Struct):
    """The verdicts: the rows, and the settings put back with the proof for each.

    ``unmeasured`` are representatives without a comparison, with the reason. ``worse`` are settings
    that would have been put back, but for ``keep_worse``. It grows as the verification goes on.
    """

    rows: tuple[Row, ...]
    proofs: list[Proof] = []
    unmeasured: tuple[Skipped | Failed, ...] = ()
    reverted: dict[Key, Proof] = {}
    worse: dict[Key, Proof] = {}
    thorough: bool = False


class Verification:
    """One endpoint for each adapter, medium and model that the plan changes, and its verdict.

    Entering it makes the file in the request's folder, which leaving removes. Raises UsageError
    where that folder is on no disk that the plan changes.
    """

    def __init__(
        self, context: Context, situation: Situation, plan: Plan, asked: ComparisonRequest
    ) -> None:
        self._context = context
        self._situation = situation
        self._plan = plan
        self._asked = asked
        self._open = ExitStack()
        config = situation.config.probe
        self._selection, self._filed = _select(situation, plan, asked)
        self._limit = config.verify_limit if asked.thorough else QUICK_LIMIT
        self._pairs, self._budget = _fit(self._selection.subjects, config, asked)
        parts = self._parts(plan.drift)
        self._workloads = {part.subject.target: self._follow(part) for part in parts}
        self._places: dict[str, Subject] = {}
        self._looked: set[str] = set()
        self._before: Values = {}
        self._blocks: dict[str, list[Figures]] = {}
        self._proving = Proving(
            measure=self._measure,
            tolerance=situation.profile.tolerance,
            limit=float(self._limit),
            pair=2 * run.estimate_seconds(1, self._budget.workload),
            idle=run.disturbed,
            pairs=self._pairs,
        )

    def __enter__(self) -> Self:
        folder, filed = self._asked.folder, self._filed
        if folder is not None and filed is not None:
            with self._context.reporter.progress(Phase.WRITING_FILE, 1):
                file = self._open.enter_context(scratch_file(folder))
            # The same disk, through the file: its adapters, CPUs and settings are the disk's.
            there = replace(filed.endpoint, device_node=file.path, size=file.size)
            self._places[filed.target] = replace(filed, endpoint=there)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

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
            ahead = ComparisonsAhead(len(subjects), self._pairs, self.seconds, self._limit)
            self._context.reporter.note(ahead)
        self._before = now(self._situation.machine, self._plan.drift, means)
        self._proving.stop = means.stop
        for part in self._parts(self._plan.drift):
            # Its only chance: once the plan is written, the state before cannot be brought back for
            # a run.
            if self._asked.thorough and not self._switchable(part):
                self._blocks[part.subject.target] = self._proving.block(part.subject)[0]

    def after(self, rows: tuple[Row, ...], means: Means) -> Verified:
        """Judge every representative, revert what is worse twice, and return the results.

        Raises JournalError and HoldError where the switching could not begin: then nothing was
        switched.
        """
        found = Verified(
            rows,
            unmeasured=(
                *self._selection.skipped,
                *(Skipped(target, Skip.NO_TIME) for target in self.left_out),
            ),
            thorough=self._asked.thorough,
        )
        written = [row for row in rows if row.outcome is Outcome.WRITTEN]
        todo = self._parts(written)
        if not todo:
            return found
        machine, runs = self._situation.machine, (2 * self._pairs + 1) * len(todo)
        command = "apply --verify" if self._asked.thorough else "apply"
        holds = self._context.paths.holds
        with (
            self._context.reporter.progress(Phase.COMPARING, runs) as advance,
            Trial(machine, rows, self._before, means, holds=holds, command=command) as trial,
        ):
            self._proving.advance = advance
            for each in todo:
                part = _without(each, found.reverted)
                # Leaving the trial still brings every switched setting to its place.
                if part.own and not means.stop():
                    self._judge(trial, part, found)
        found.rows = tuple(_as_ended(row, trial.failed) for row in found.rows)
        return found

    def _judge(self, trial: Trial, part: Representative, found: Verified) -> None:
        if not self._switchable(part) and not self._asked.thorough:
            found.unmeasured += (Skipped(part.subject.target, Skip.UNSWITCHABLE),)
            return
        self._proving.advance(part.subject.target)
        first = self._proving.warm_up(part.subject)
        if not isinstance(first, ProbeResult):
            found.unmeasured += (first,)
            return
        if self._switchable(part):
            proofs, back = self._proving.prove(trial, part)
        else:
            proofs, back = self._compare_blocks(part)
        found.proofs += [self._told(proof, part, first) for proof in proofs]
        keys = [(row.id, row.setting) for row in back]
        blamed = {key: _blamed(proofs, key) for key in keys}
        if self._asked.keep_worse:
            found.worse |= blamed
            return
        stayed = trial.revert(keys)
        found.reverted |= {key: proof for key, proof in blamed.items() if key not in stayed}
        found.rows = tuple(_reverted(row, keys, stayed) for row in found.rows)

    def _compare_blocks(self, part: Representative) -> tuple[list[Proof], list[Row]]:
        """Compare the runs before with those after; where they are worse, with others once more."""
        before = self._blocks.get(part.subject.target, [])
        proofs: list[Proof] = []
        while len(proofs) < 2 and all(proof.verdict.beyond for proof in proofs):
            after, last = self._proving.block(part.subject)
            proof = self._proving.judge_blocks(part, before, after, last)
            proofs.append(replace(proof, again=bool(proofs)))
        twice = len(proofs) == 2 and proofs[-1].verdict.beyond
        return proofs, list(part.all) if twice else []

    def _told(self, proof: Proof, part: Representative, first: ProbeResult) -> Proof:
        """Return the proof with what the probe does not show, and whether the disk is blank."""
        rows = [row for row in part.own if row.setting in proof.settings]
        last = None if proof.last is None else replace(proof.last, blank=first.blank)
        unseen = unexercised_settings(rows, self._workloads[part.subject.target])
        return replace(proof, last=last, unexercised=unseen)

    def _measure(self, subject: Subject) -> ProbeOutcome:
        asked, place = self._workloads[subject.target], self._places.get(subject.target)
        if place is not None:
            return run.probe([place], asked, write=True, idle=True)[0]
        look = subject.target not in self._looked
        self._looked.add(subject.target)
        names = with_links(self._asked.names)
        return run.probe_guarded(subject, asked, names, look=look, idle=True)

    def _follow(self, part: Representative) -> Workload:
        """Return the workload for a representative, as long as the time allows."""
        subject, budget = part.subject, self._budget.workload
        writable = self._asked.destructive or (
            self._filed is not None and subject.target == self._filed.target
        )
        asked = follow_plan(
            part.own,
            self._situation.profile.probe,
            medium_of(subject),
            cpus=len(subject.cpus) or 1,
            writable=writable,
        )
        return replace(asked, ramp=budget.ramp, runtime=budget.runtime, seed=budget.seed)

    def _parts(self, rows: Sequence[Row]) -> list[Representative]:
        return make_representatives(self._budget.subjects, self._situation.machine.endpoints, rows)

    def _switchable(self, part: Representative) -> bool:
        return switchable(self._situation.machine, part.own, self._before)


def _select(
    situation: Situation, plan: Plan, asked: ComparisonRequest
) -> tuple[Selection, Subject | None]:
    """Return the representatives, and the one that is measured through a file."""
    machine, targets = situation.machine, touched(situation, plan)
    selection = run.choose_subjects(machine, targets, shared=asked.shared)
    filed = None
    if asked.folder is not None:
        mount = mount_point(asked.folder)
        on = (each for each in subjects_of(machine, targets) if mount in each.endpoint.mounts)
        filed = next(on, None)
        if filed is None:
            raise UsageError(
                f"{str(asked.folder)!r} is on no disk that this apply changes",
                hint="name a folder on one of those, or leave --file out",
            )
        selection = prefer(selection, filed)
    return replace(selection, subjects=one_for_each_adapter(selection.subjects)), filed


def mount_point(folder: Path) -> str:
    """Return where the filesystem is mounted that a folder is on."""
    found = Path(os.path.realpath(folder))
    while not os.path.ismount(found) and found != found.parent:
        found = found.parent
    return str(found)


def _fit(
    subjects: Sequence[Subject], config: ProbeConfig, asked: ComparisonRequest
) -> tuple[int, TimeBudget]:
    """Return the pairs, the representatives that there is time for, and how long a run takes."""
    short = Workload(
        ramp=RAMP,
        runtime=config.verify_seconds,
        # Drawn for each apply: always the same blocks would be in a cache from the last one.
        seed=Random().randrange(1, 1 << 31),
    )
    # One more run than those compared, which warms up.
    if asked.thorough:
        pairs = config.verify_pairs
        return pairs, fit_time(subjects, short, 2 * pairs + 1, config.verify_limit)
    # With a pair or two to spare, one odd pair does not decide: where the time is there for all.
    pairs, budget = FEWEST, TimeBudget((), short, 0.0)
    for pairs in range(PAIRS, FEWEST - 1, -1):
        budget = fit_time(subjects, short, 2 * pairs + 1, QUICK, shortest=QUICK_RUN)
        if not budget.left_out:
            break
    return pairs, budget


def touched(situation: Situation, plan: Plan) -> set[str]:
    """Return the endpoints that the plan changes; an adapter's setting changes all of its own."""
    endpoints = {endpoint.target for endpoint in situation.machine.endpoints}
    rows = ((row.target if row.target in endpoints else row.adapter) for row in plan.drift)
    return {target for target in rows if target is not None}


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
    if key in keys and key not in stayed:
        return replace(row, outcome=Outcome.REVERTED)
    return _as_ended(row, stayed if key in keys else {})


def _as_ended(row: Row, failed: Mapping[Key, WriteResult]) -> Row:
    """Return the row with the reason why it is not as applied, if it failed."""
    why = failed.get((row.id, row.setting))
    if why is None:
        return row
    limit = why.said or row.limit
    return replace(row, outcome=why.outcome, errno=why.errno, found=why.found, limit=limit)
