"""The verdicts of an `apply`: compare each change with and without it on representatives.

A comparison switches each change on and off, and reverts a change that is worse twice: each change
has to be tested (D2-6), at the profile's load or at the depth of the running application. By
default, a comparison is as short as a verdict allows. `--verify` takes the time that the
configuration allows. Bursts in a deeper queue, which a change makes possible, are described and
decide nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from shutil import which
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key, Means
from hbatune.act.marks import with_udev_baselines
from hbatune.act.trial import Trial, Values, can_switch, list_originals, read_affected_values
from hbatune.errors import UsageError
from hbatune.operations.context import ComparisonRequest, ComparisonsAhead, Context, Event, Phase
from hbatune.operations.situation import Situation
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.config import ProbeConfig
from hbatune.policy.profile import ProbeSpec
from hbatune.probe import history, run, selection
from hbatune.probe.guard import make_scratch_file
from hbatune.probe.history import Proof
from hbatune.probe.prove import Proving, Representative, make_representatives
from hbatune.probe.result import (
    Failed,
    Figures,
    Prepare,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.verdict import BURST_PAIRS, DEFAULT_PAIRS, describe_bursts
from hbatune.probe.workloads import shape_burst, shape_load
from hbatune.settings.table import FIRMWARE_COALESCING

RAMP_S = 0.15  # at the start of each run, which does not count: settings have just changed
SLOW_LIMIT_S = 300
"""The seconds after which no comparison begins, if the runs take longer than announced."""
KIND_TIME_S = 30
"""The maximum seconds for each representative without `--verify`, with its bursts. Confirming
regressions takes as long again."""
LATE_FRACTION = 0.15  # bursts may exceed the announced time by this fraction of it
MIN_RUN_S = 0.25  # of a run: its load and its bursts fit into ``KIND_TIME_S``
BURST_DEPTH = 128  # the maximum in bursts without a measured knee: the documents' knee (D0-12)


class VerificationResult(Struct):
    """The verdicts: the rows, and the reverted settings with the proof for each.

    ``unmeasured`` are representatives without a comparison, with the reason. ``worse`` are settings
    that would have been reverted without ``keep_worse``. ``originals`` are the original values of
    targets that an earlier run has set. ``bursts`` describe the changes in bursts. ``watched`` has
    the depth of the load, or ``trace`` the load, unless it is the profile's. It is filled in later.
    """

    rows: tuple[Row, ...]
    proofs: list[Proof] = []
    unmeasured: tuple[Skipped | Failed, ...] = ()
    reverted: dict[Key, Proof] = {}
    worse: dict[Key, Proof] = {}
    thorough: bool = False
    originals: Values = {}
    bursts: list[Proof] = []
    watched: Path | None = None
    trace: Path | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing worse stays and no comparison is empty or late; `--verify` needs one."""
        runs = [proof.verdict.runs for proof in self.proofs]
        if self.worse or 0 in runs or Skip.NO_TIME in [item.reason for item in self.unmeasured]:
            return False
        return bool(runs) or not self.thorough


class ComparisonPreview(Struct, frozen=True):
    """The ``targets`` that an apply compares, in about ``seconds``, at most ``limit``.

    ``skipped`` are the representatives that it cannot measure now.
    """

    targets: tuple[str, ...]
    seconds: float
    limit: int
    skipped: tuple[Skipped, ...]


class Verification:
    """One endpoint for each adapter, medium and model that the plan changes, and its verdict.

    With `--verify`, a target that the plan does not change is compared with the original values in
    the journal. ``budget`` has the representatives for which there is time, and the estimated
    duration. On entry it makes the file in the request's directory, and on exit it removes the
    file. Raises UsageError if this directory is not on a disk that is compared, if the output of
    watch has no depth of such a disk, or for an unusable trace.
    """

    def __init__(
        self, context: Context, situation: Situation, plan: Plan, request: ComparisonRequest
    ) -> None:
        self._context = context
        self._situation = situation
        # The firmware gets no more requests than a write needs.
        self._plan = plan = replace(plan, rows=tuple(filter(_is_compared, plan.rows)))
        self._request = request
        self._open = ExitStack()
        config = situation.config.probe
        self._originals: Values = {}
        self._set_rows: list[Row] = []
        if request.thorough:
            self._originals, self._set_rows = _find_set_rows(situation, plan, context.paths.spent)
        rows = (*plan.drift, *self._set_rows)
        selection, self._filed = _select_representatives(situation, rows, request)
        self._workloads: dict[str, Workload] = {}
        self._bursts: dict[str, Workload] = {}
        self._pairs = config.verify_pairs if request.thorough else DEFAULT_PAIRS
        self.budget = _fit_time(selection.subjects, self._pairs, config, request)
        left_out = [Skipped(subject.target, Skip.NO_TIME) for subject in self.budget.left_out]
        self._skipped = (*selection.skipped, *left_out)
        knees: dict[str, int] = {}
        with suppress(history.HistoryError):  # an unreadable history has no knees
            records = history.load(context.paths.history).records
            knees = history.find_latest_knees(records, situation.machine, situation.profile.probe)
        for part in self._make_parts(rows):
            self._shape_load(part, knees)
        twice = math.ceil(2 * self.budget.seconds)  # the confirmations take as long at most
        self._limit = config.verify_limit if request.thorough else twice
        run_s = self.budget.workload.runtime
        self._share = self.budget.seconds / max(1, len(self.budget.subjects))
        self._places: dict[str, Subject] = {}
        self._looked: set[str] = set()
        self._before: Values = {}
        self._blocks: dict[str, list[Figures]] = {}
        self._proving = Proving(
            measure=self._measure,
            tolerance=situation.profile.tolerance,
            limit=self._limit if request.thorough else max(self._limit, SLOW_LIMIT_S),
            runtime=run_s,
            overhead=run.estimate_seconds(self.budget.workload) - run_s,
            shortest=run_s if request.thorough else min(MIN_RUN_S, run_s),
            second=math.inf if request.thorough else self._share,
            idle=run.find_disturbance,
            pairs=self._pairs,
            confirming=self._announce_confirmation,
        )

    def __enter__(self) -> Self:
        folder, filed = self._request.folder, self._filed
        if folder is not None and filed is not None:
            place = make_file_subject(self._context, folder, filed)
            self._places[filed.target] = self._open.enter_context(place)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def preview(self) -> ComparisonPreview:
        """Return the comparisons of this run; nothing is measured."""
        targets = tuple(subject.target for subject in self.budget.subjects)
        skipped = self._skipped
        if which("fio") is None:
            skipped, targets = tuple(Skipped(target, Skip.NO_FIO) for target in targets), ()
        return ComparisonPreview(targets, self.budget.seconds, self._limit, skipped)

    def before(self, means: Means) -> None:
        """Note the duration, and measure the endpoints that cannot be switched on and off."""
        endpoints = len(self.budget.subjects)
        if endpoints and which("fio") is not None:
            self._context.note(ComparisonsAhead(endpoints, self.budget.seconds, self._limit))
        current = read_affected_values(self._situation.machine, self._plan.drift, means)
        self._before = {**current, **self._originals}
        self._proving.stop = means.stop
        for part in self._make_parts(self._plan.drift):
            # It has to be now: after the writes, the previous state cannot be set again for a run.
            if self._request.thorough and not self._can_switch(part):
                self._blocks[part.subject.target] = self._proving.block(part.subject)[0]

    def after(self, rows: tuple[Row, ...], means: Means) -> VerificationResult:
        """Judge every representative, revert changes that are worse twice, and return the results.

        Raises JournalError and HoldError if nothing was switched, as switching could not begin.
        """
        thorough = self._request.thorough
        verified = VerificationResult(rows, unmeasured=self._skipped, thorough=thorough)
        verified.originals = self._originals
        verified.watched, verified.trace = self._request.watched, self._request.trace
        written = (row for row in rows if row.outcome is Outcome.WRITTEN)
        applied = [*filter(_is_compared, written), *self._set_rows]
        todo = self._make_parts(applied)
        if not todo:
            if thorough and not verified.unmeasured:
                self._context.note_event(Event.NOTHING_COMPARED)
            return verified
        machine = self._situation.machine
        steps = sum(self._count_steps(part.subject.target) for part in todo)
        command = "apply --verify" if thorough else "apply"
        holds = self._context.paths.holds
        with (
            self._context.progress(Phase.COMPARING, steps) as advance,
            Trial(machine, applied, self._before, means, holds=holds, command=command) as trial,
        ):
            self._advance = self._proving.advance = advance
            for representative in todo:
                # An earlier verdict on the same adapter may have reverted some.
                part = _drop_rows(representative, verified.reverted)
                # On exit, the trial still sets every switched setting to its final value.
                if part.own and not means.stop():
                    self._judge(trial, part, verified)
        verified.rows = tuple(_mark_failed(row, trial.failed.get(row.key)) for row in verified.rows)
        return verified

    def _judge(self, trial: Trial, part: Representative, verified: VerificationResult) -> None:
        if not self._can_switch(part):
            # Only writes of this run have runs before them to compare with.
            part = _drop_rows(part, verified.originals)
        if not part.own or not (self._can_switch(part) or part.subject.target in self._blocks):
            verified.unmeasured += (Skipped(part.subject.target, Skip.UNSWITCHABLE),)
            return
        began = self._proving.clock()
        first = self._proving.warm_up(part.subject)
        self._advance(part.subject.target)
        if not isinstance(first, ProbeResult):
            verified.unmeasured += (first,)
            return
        if self._can_switch(part):
            # The comparison and its bursts end when it was announced.
            seconds = self._share - (self._proving.clock() - began)
            pairs = self._proving.pairs = self._count_pairs(part.subject.target)
            self._proving.first = seconds * pairs / (self._count_steps(part.subject.target) - 1)
            proofs, back = self._proving.prove(trial, part)
            if len(proofs) == 1 and proofs[0].verdict.runs and part.subject.target in self._bursts:
                seconds = self._share - (self._proving.clock() - began)
                verified.bursts.append(self._compare_bursts(trial, part, seconds))
        else:
            proofs, back = self._compare_blocks(part)
        for proof in proofs:
            last = None if proof.last is None else replace(proof.last, blank=first.blank)
            verified.proofs.append(replace(proof, last=last))
        blamed: dict[Key, Proof] = {}
        for row in back:  # the most specific proof for this setting
            blamed[row.key] = proofs[0]
            for proof in proofs:
                if row.setting in proof.settings and proof.verdict.beyond:
                    blamed[row.key] = proof
        if self._request.keep_worse:
            verified.worse |= blamed
            return
        stayed = trial.revert(list(blamed))
        for key, proof in blamed.items():
            if key not in stayed:
                verified.reverted[key] = proof
        rows = []
        for row in verified.rows:
            if row.key in verified.reverted:
                current = verified.originals.get(row.key, row.current)
                row = replace(row, outcome=Outcome.REVERTED, current=current)
            elif row.key in blamed:
                row = _mark_failed(row, stayed[row.key])
            rows.append(row)
        verified.rows = tuple(rows)

    def _compare_blocks(self, part: Representative) -> tuple[list[Proof], list[Row]]:
        """Compare the runs before with the runs after; if worse, compare with new runs again."""
        before = self._blocks.get(part.subject.target, [])
        proofs: list[Proof] = []
        while len(proofs) < 2 and all(proof.verdict.beyond for proof in proofs):
            if proofs:
                self._advance(part.subject.target, self._pairs)
            after, last = self._proving.block(part.subject)
            proof = self._proving.judge_blocks(part, before, after, last)
            proofs.append(replace(proof, again=bool(proofs)))
        twice = len(proofs) == 2 and proofs[-1].verdict.beyond
        return proofs, list(part.all) if twice else []

    def _compare_bursts(self, trial: Trial, part: Representative, seconds: float) -> Proof:
        """Compare in bursts, which decide nothing: without time for them, they are left out."""
        measure = partial(self._measure, bursts=True)
        proving = replace(self._proving, measure=measure, pairs=BURST_PAIRS, judge=describe_bursts)
        proving.due = proving.clock() + seconds + LATE_FRACTION * self._share
        return proving.compare(trial, part, part.own, None, seconds)

    def _count_pairs(self, target: str) -> int:
        """Return the number of pairs at the load: by default, more if there are no bursts."""
        more = not self._request.thorough and target not in self._bursts
        return self._pairs + (BURST_PAIRS if more else 0)

    def _count_steps(self, target: str) -> int:
        """Return the number of pairs, and of the first run, which warms up."""
        return 1 + self._count_pairs(target) + (BURST_PAIRS if target in self._bursts else 0)

    def _announce_confirmation(self, target: str, seconds: float, count: int) -> None:
        self._context.note(ComparisonsAhead(1, seconds, self._limit, target))
        # There are no bursts after a regression.
        bursts = BURST_PAIRS if target in self._bursts else 0
        self._advance(target, count * self._proving.pairs - bursts)

    def _measure(
        self, subject: Subject, seconds: float, prepare: Prepare, *, bursts: bool = False
    ) -> ProbeOutcome:
        loads = self._bursts if bursts else self._workloads
        workload = loads[subject.target]
        # Each run replays the same part of a trace.
        workload = workload if workload.trace else replace(workload, runtime=seconds)
        place = self._places.get(subject.target)
        if place is not None:
            return run.probe_subject(place, workload, write=True, prepare=prepare)
        look = subject.target not in self._looked
        self._looked.add(subject.target)
        return run.probe_guarded(subject, workload, self._request.names, look=look, prepare=prepare)

    def _shape_load(self, part: Representative, knees: Mapping[str, int]) -> None:
        """Note the load of a representative, and its bursts if the plan makes them possible."""
        subject, profile = part.subject, self._situation.profile
        writable = self._request.destructive or (
            self._filed is not None and subject.target == self._filed.target
        )
        trace, short = self._request.trace, self.budget.workload
        if trace is not None:
            from hbatune.probe.replay import make_replay  # most comparisons replay nothing

            self._workloads[subject.target] = make_replay(trace, short.runtime, writes=writable)
            return
        spec = _choose_load(profile.probe, subject, self._request.watched)
        load = shape_load(part.own, spec, cpus=len(subject.cpus) or 1, writable=writable)
        load = replace(load, ramp=short.ramp, runtime=short.runtime, seed=short.seed)
        self._workloads[subject.target] = load
        knee = knees.get(subject.endpoint.id)
        burst = shape_burst(part.own, load, BURST_DEPTH if knee is None else 2 * knee)
        if burst is not None:
            self._bursts[subject.target] = burst

    def _make_parts(self, rows: Sequence[Row]) -> list[Representative]:
        return make_representatives(self.budget.subjects, self._situation.machine.endpoints, rows)

    def _can_switch(self, part: Representative) -> bool:
        return can_switch(self._situation.machine, part.own, self._before)


def _is_compared(row: Row) -> bool:
    return row.setting != FIRMWARE_COALESCING


def _choose_load(spec: ProbeSpec, subject: Subject, watched: Path | None) -> ProbeSpec:
    """Return the profile's load, with the depth of the running application if it was recorded."""
    if watched is None:
        return spec
    from hbatune.sizing.needs import find_running_depth, read_moments  # most applies need none

    # Only the id identifies the disk: after a reboot, its name may be another disk's.
    depth = find_running_depth(read_moments(watched), subject.target, subject.endpoint.id)
    return replace(spec, depth=depth)


def _find_set_rows(situation: Situation, plan: Plan, spent: Path) -> tuple[Values, list[Row]]:
    """Return the original values of targets without drift, and the rows that differ from them.

    These rows have the original value as their ``current`` one.
    """
    machine, drifting = situation.machine, {row.id for row in plan.drift}
    settled = [row for row in plan.rows if row.state is State.OK and row.id not in drifting]
    recorded = with_udev_baselines(situation.journal, machine.endpoints, spent)
    originals, rows = list_originals(machine, recorded, {row.id for row in settled}), list[Row]()
    for row in settled:
        original = originals.get(row.key)
        if original not in (None, row.value):
            rows.append(replace(row, current=original))
    return originals, rows


def _select_representatives(
    situation: Situation, rows: Iterable[Row], request: ComparisonRequest
) -> tuple[selection.Selection, Subject | None]:
    """Return the representatives, and the representative that is measured through a file."""
    machine = situation.machine
    endpoints = {endpoint.target for endpoint in machine.endpoints}
    targets = set()
    for row in rows:
        # An adapter's setting changes all its disks.
        target = row.target if row.target in endpoints else row.adapter
        if target is not None:
            targets.add(target)
    chosen, filed = run.choose_subjects(machine, targets, shared=request.shared), None
    if request.folder is not None:
        filed = find_disk(request.folder, selection.list_subjects(machine, targets))
        chosen = selection.prefer_subject(chosen, filed)
    return replace(chosen, subjects=selection.order_by_adapter(chosen.subjects)), filed


def find_mount_point(folder: Path) -> str:
    """Return the mount point of a directory's filesystem."""
    path = Path(os.path.realpath(folder))
    while not os.path.ismount(path) and path != path.parent:
        path = path.parent
    return str(path)


def find_disk(folder: Path, subjects: Iterable[Subject]) -> Subject:
    """Return the disk of a directory. UsageError if it is not one of the chosen disks."""
    mount = find_mount_point(folder)
    for subject in subjects:
        if mount in subject.endpoint.mounts:
            return subject
    raise UsageError(
        f"{str(folder)!r} is on no disk that this command changes",
        hint="name a folder on such a disk, or omit --file",
    )


@contextmanager
def make_file_subject(context: Context, folder: Path, disk: Subject) -> Iterator[Subject]:
    """Yield the disk with a scratch file in the directory as its device.

    It has the disk's adapters, CPUs and settings.
    """
    with ExitStack() as stack:
        with context.progress(Phase.WRITING_FILE, 1):
            file = stack.enter_context(make_scratch_file(folder))
        yield replace(disk, endpoint=replace(disk.endpoint, device_node=file.path, size=file.size))


def _fit_time(
    subjects: Sequence[Subject], pairs: int, config: ProbeConfig, request: ComparisonRequest
) -> run.TimeBudget:
    """Return the representatives and the duration of a run that fit into the time."""
    short = Workload(
        ramp=RAMP_S,
        runtime=config.verify_seconds,
        # Drawn for each apply: the same blocks would still be cached from the last one.
        seed=Random().randrange(1, 1 << 31),
    )
    runs = 2 * (pairs + BURST_PAIRS) + 1  # one more for warm-up
    if request.trace is not None:
        from hbatune.probe.replay import make_replay
        from hbatune.probe.trace_file import MAX_LOST_FRACTION

        # The writes count only for the time to read the logs.
        short = make_replay(request.trace, config.verify_seconds, writes=True)
        runs = 2 * pairs + 1
        if short.trace and short.trace.lost > MAX_LOST_FRACTION:
            lost = f"lacks {100 * short.trace.lost:.0f} % of the disk's events"
            raise UsageError(f"{short.trace.path!r} {lost}", hint="capture the disk again")
    if request.thorough:
        return run.fit_time(subjects, short, runs, config.verify_limit)
    return run.fit_time(subjects, short, runs, KIND_TIME_S * len(subjects), shortest=MIN_RUN_S)


def _drop_rows(part: Representative, keys: Collection[Key]) -> Representative:
    own_rows = tuple(row for row in part.own if row.key not in keys)
    return replace(part, own=own_rows, all=tuple(row for row in part.all if row.key not in keys))


def _mark_failed(row: Row, why: WriteResult | None) -> Row:
    if why is None:
        return row
    limit = why.said or row.limit
    return replace(row, outcome=why.outcome, errno=why.errno, found=why.found, limit=limit)
