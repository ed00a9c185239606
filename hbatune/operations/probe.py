"""Run a workload on disks or on a file, one by one or all of an adapter together.

Runs a workload on disks or on a file, one run at a time, and returns the measurements.

It only reads, except for workloads that write: those need an empty disk that was named. A queue
depth of the LUN's own (D2-1) is set only while it is measured.

Measurements, those around an apply as well, go to the history; a failure to put them there is a
note, and loses nothing else.

Probes the disks of one adapter at once, after each alone, to find what holds them back.
"""

import grp
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import rollback_record
from hbatune.act.executor import Means
from hbatune.act.trial import Experiment
from hbatune.errors import UsageError
from hbatune.facts.machine import gather
from hbatune.facts.model import Adapter, Machine, TargetKind
from hbatune.facts.processors import with_probing
from hbatune.facts.targets import select
from hbatune.operations.context import (
    Advance,
    Context,
    FileRunsAhead,
    HistoryFull,
    Phase,
    RunsAhead,
    Task,
    TaskFailed,
)
from hbatune.operations.situation import Situation, resolved
from hbatune.operations.verify import Verified
from hbatune.plan.rows import Outcome, Row
from hbatune.policy.chosen import chosen_profile, configuration
from hbatune.policy.profile import Profile
from hbatune.probe import history
from hbatune.probe import run as running
from hbatune.probe.guard import guarded, scratch_file, with_links
from hbatune.probe.history import (
    HistoryError,
    Record,
    ValueChange,
    record,
    record_together,
)
from hbatune.probe.knee import Knee
from hbatune.probe.result import (
    Doubt,
    Failed,
    Figures,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.selection import (
    probe_refusal,
    subjects_of,
    with_value,
    with_written,
)
from hbatune.probe.together import TogetherResult, judge_together, kept_together
from hbatune.settings.resolve import resolve_endpoint
from hbatune.settings.setting import Fixed
from hbatune.settings.table import attributes

DEPTH = "queue_depth"
_ADAPTERS = (TargetKind.CONTROLLER, TargetKind.HOST)


class Measured(Struct, frozen=True):
    """One run: the workload, its outcome, and the reason not to trust it, if there is one."""

    workload: Workload
    outcome: ProbeOutcome
    doubt: Doubt | None


class Probed(Struct, frozen=True):
    """All runs on the disks of a machine, or on a file; ``profile`` has the objective for them."""

    machine: Machine
    profile: Profile | None
    runs: list[Measured]


class SweepKnee(Struct, frozen=True):
    """The knee of a sweep of depth, with its last run; ``queue_depth`` is the LUN's own."""

    last: ProbeResult
    queue_depth: int | None
    knee: Knee | None


def probe_disks(
    context: Context, asked: Sequence[Workload], names: Sequence[str], profile: str | None
) -> Probed:
    """Run each workload on each disk named; a workload that writes needs each disk by name.

    Raises UsageError for an unknown profile or name, LockedError where a depth is to be set while
    another hbatune changes the machine, and JournalError and HoldError as an experiment does.
    """
    chosen = _profile(profile)
    disks = [resolved(name) for name in names]
    # A depth that is set goes to the journal, whose ids only the whole machine tells.
    alone = () if any(each.queue_depth for each in asked) else disks
    gathered = gather(
        attributes(), of={kind: attributes(on=kind) for kind in _ADAPTERS}, disks=alone
    )
    machine = with_probing(gathered, isolated=configuration().probe.isolated)
    endpoints = select(machine, disks)
    if not endpoints:
        raise UsageError(
            f"there is no disk to probe at {', '.join(names)}",
            hint="name a disk: `hbatune list` shows them",
        )
    subjects = list(subjects_of(machine, {endpoint.target for endpoint in endpoints}))
    _require_access(subjects, write=any(each.writes for each in asked))
    return Probed(machine, chosen, _measure(context, machine, subjects, asked, with_links(names)))


def probe_file(context: Context, folder: Path, asked: Sequence[Workload]) -> Probed:
    """Run each workload on a scratch file, which is removed however this ends.

    The results are the folder's, by its whole path.
    """
    name = os.path.realpath(folder)
    seconds = sum(running.estimate_seconds(1, each) for each in asked)
    with context.reporter.progress(Phase.WRITING_FILE, 1), scratch_file(folder) as file:
        context.reporter.note(FileRunsAhead(len(asked), file.size, seconds))
        with context.reporter.progress(Phase.PROBING, len(asked)) as advance:
            runs = []
            for each in asked:
                outcome = running.probe_file(name, file.path, file.size, each)
                runs.append(_measured(each, outcome))
                advance(name)
    return Probed(gather(()), None, runs)


def keep_probed(
    context: Context,
    name: str,
    found: Probed,
    sweeps: Sequence[SweepKnee],
    together: Sequence[TogetherResult] = (),
) -> None:
    """Put the results into the history, all with one time and command, and then the knees.

    ``name`` is the workload's; those of adapters as a whole come last.
    """
    command, now = f"probe {name}", context.clock()
    profile = None if found.profile is None else found.profile.name
    records = [
        record(found.machine, profile, command, result, now) for result in results(found.runs)
    ]
    for sweep in sweeps:
        last = record(found.machine, profile, command, sweep.last, now)
        # Without its result, which is among the records above already.
        knee = replace(
            last,
            result=None,
            knee=sweep.knee,
            queue_depth=sweep.queue_depth,
            workload=sweep.last.workload,
        )
        records.append(knee)
    for each in together:
        kept = kept_together(each)
        records.append(record_together(found.machine, profile, command, each.adapter, kept, now))
    keep_records(context, records)


def results(runs: Sequence[Measured]) -> list[ProbeResult]:
    """Return the outcomes that are measurements."""
    return [run.outcome for run in runs if isinstance(run.outcome, ProbeResult)]


def _profile(name: str | None) -> Profile | None:
    """Return the profile with the objective for the results, None where none is active or named."""
    config = configuration()
    return chosen_profile(name, config) if name or config.profile else None


def _require_access(subjects: Sequence[Subject], *, write: bool) -> None:
    """Raise UsageError where this user may not open one of the disks."""
    for node in (subject.endpoint.device_node for subject in subjects):
        if node is None or not os.path.exists(node):
            continue
        if not os.access(node, os.R_OK | (os.W_OK if write else 0)):
            group = _group(node)
            others = f" and the group {group}" if group else ""
            hint = "run it with sudo"
            if group:
                hint += (
                    f"; members of {group} may as well, and then read every disk: "
                    f"`sudo usermod -aG {group} USER`"
                )
            raise UsageError(
                f"{node} cannot be opened: a probe reads the disk itself, which only root{others} "
                "may do",
                hint=hint,
            )


def _group(node: str) -> str | None:
    """Return the name of the group that may read the device, None if none may."""
    status = os.stat(node)
    if not status.st_mode & stat.S_IRGRP or not status.st_gid:
        return None
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return str(status.st_gid)


def _measure(
    context: Context,
    machine: Machine,
    subjects: Sequence[Subject],
    asked: Sequence[Workload],
    names: Sequence[str],
) -> list[Measured]:
    """Do all runs after a note of their number; a disk that must not be probed is one outcome."""
    writes = any(each.writes for each in asked)
    refused = [(each, _refused(each, names, writes=writes)) for each in subjects]
    usable = [subject for subject, why in refused if why is None]
    found = [Measured(asked[0], why, None) for _, why in refused if why is not None]
    count = len(usable) * len(asked)
    seconds = sum(running.estimate_seconds(len(usable), each) for each in asked)
    if count:
        context.reporter.note(RunsAhead(count, seconds, writes))
    with context.reporter.progress(Phase.PROBING, count) as advance:
        for subject in usable:
            found += _all(context, machine, subject, asked, names, advance)
    return found


def _refused(subject: Subject, names: Sequence[str], *, writes: bool) -> Skipped | None:
    """Return why a subject is not probed; fc and iscsi disks are only probed by their own names."""
    own = {name for one in (subject.endpoint, *subject.paths) for name in (one.target, one.id)}
    asked_for = any(resolved(name).removeprefix("/dev/") in own for name in names)
    return probe_refusal(subject, shared=asked_for) or (guarded(subject, names) if writes else None)


def _all(
    context: Context,
    machine: Machine,
    subject: Subject,
    asked: Sequence[Workload],
    names: Sequence[str],
    advance: Advance,
) -> Iterator[Measured]:
    """Yield one run after the other; stop at the first that fails or does not answer.

    A depth that is not restored after the runs is an outcome as well.
    """
    lost: list[Skipped] = []
    with _at_depths(context, machine, subject, asked, lost) as ready:
        for each in asked:
            found = ready(each)
            if isinstance(found, Subject):
                yield (measured := _measured(each, running.probe_guarded(found, each, names)))
                # The disk is in trouble, or hbatune is: further runs would add load and learn
                # nothing.
                if not isinstance(measured.outcome, ProbeResult):
                    break
            elif found.reason is Skip.CONFLICT:
                break  # reported below, with the value at the end of the runs
            else:
                yield _measured(each, found)
            advance(subject.target)
    for skipped in lost:
        yield _measured(asked[-1], skipped)


def _measured(asked: Workload, outcome: ProbeOutcome) -> Measured:
    return Measured(asked, outcome, outcome.doubt if isinstance(outcome, ProbeResult) else None)


_Ready = Callable[[Workload], Subject | Skipped]
"""Sets the workload's queue depth; returns the subject with it, or why it cannot be set."""


@contextmanager
def _at_depths(
    context: Context,
    machine: Machine,
    subject: Subject,
    asked: Sequence[Workload],
    lost: list[Skipped],
) -> Iterator[_Ready]:
    """Yield a function that readies a subject for each workload; at the end its depth returns.

    If it could not be restored, the reason is added to ``lost``.
    """
    if not any(each.queue_depth for each in asked):
        yield lambda workload: subject
        return
    why = _unable(subject)
    if why is not None:
        yield lambda workload: why
        return
    act = configuration().act
    # One target, so one worker.
    paths = context.paths
    means = Means(
        *(paths.journal, paths.claims, paths.spent, 1, act.deadline_seconds),
        guard=rollback_record.load(paths).guard(paths, named=True),
    )
    id = subject.endpoint.id
    with (
        context.lock(),
        Experiment(machine, id, (DEPTH,), "probe", means, holds=context.paths.holds) as experiment,
    ):
        yield _Depths(subject, experiment).take
    for each in experiment.failed.values():
        if each.outcome is Outcome.CONFLICT:
            lost.append(Skipped(subject.target, Skip.CONFLICT, str(each.found)))
        else:
            lost.append(Skipped(subject.target, Skip.NOT_RESTORED, str(each.outcome)))


class _Depths:
    """A subject whose depth is set as each workload asks."""

    def __init__(self, subject: Subject, experiment: Experiment) -> None:
        self._subject, self._experiment = subject, experiment

    def take(self, workload: Workload) -> Subject | Skipped:
        depth = workload.queue_depth
        if depth is None:
            return self._subject
        target = self._subject.target
        # A depth that the driver would clamp is refused: the run would be labelled with the wrong
        # one.
        legal = resolve_endpoint(self._subject.endpoint, DEPTH, depth, depth, None)
        if isinstance(legal, Fixed):
            return Skipped(target, Skip.FIXED_DEPTH, legal.limit)
        if legal.value != depth:
            return Skipped(target, Skip.FIXED_DEPTH, legal.limit)
        result = self._experiment.take({DEPTH: depth})[DEPTH]
        if self._experiment.has_conflict:
            return Skipped(target, Skip.CONFLICT, str(result.found))
        if result.found != depth:
            return Skipped(target, Skip.FIXED_DEPTH, str(result.outcome))
        return replace(
            self._subject, settings=with_value(self._subject.settings, target, DEPTH, depth)
        )


def _unable(subject: Subject) -> Skipped | None:
    """Return why the depth of a subject cannot be set, None where it can."""
    if DEPTH in {
        setting.setting for setting in subject.settings if setting.target == subject.target
    }:
        return None
    return Skipped(subject.target, Skip.FIXED_DEPTH)


def keep_records(context: Context, records: Iterable[Record]) -> None:
    """Append records to the history; a history that cannot take them is a note."""
    try:
        gone = history.append(context.paths.history, records)
    except HistoryError as error:
        context.reporter.note(TaskFailed(Task.SAVE_HISTORY, error))
        return
    if gone:
        context.reporter.note(HistoryFull(gone))


def records_of_apply(
    context: Context,
    situation: Situation,
    rows: Sequence[Row],
    verified: Verified,
) -> Iterator[Record]:
    """Yield the verdicts of an apply with these rows as records."""
    machine, put_back = situation.machine, verified.reverted
    command = "apply --verify" if verified.thorough else "apply"
    for proof in verified.proofs:
        judged = [row for row in rows if row.id == proof.id and row.setting in proof.settings]
        yield Record(
            time=context.clock(),
            command=command,
            kernel=machine.kernel,
            boot_id=machine.boot_id,
            profile=situation.profile.name,
            target=proof.target,
            id=proof.id,
            result=None if proof.last is None else _as_written(proof.last, rows),
            proof=proof,
            settings=_sets(judged),
            reverted=tuple(row.setting for row in judged if (row.id, row.setting) in put_back),
        )


def _as_written(result: ProbeResult, rows: Sequence[Row]) -> ProbeResult:
    """Return a result measured after an apply, with the values that the apply has set."""
    return replace(result, settings=with_written(result.settings, rows))


def _sets(rows: Sequence[Row]) -> tuple[ValueChange, ...]:
    return tuple(ValueChange(row.target, row.setting, row.current, row.value) for row in rows)


class Together(Struct, frozen=True):
    """The results of all adapters, and the outcomes of those without figures."""

    results: tuple[TogetherResult, ...]
    failed: tuple[Skipped | Failed, ...] = ()


def probe_together(context: Context, found: Probed, names: Sequence[str]) -> Together:
    """Run each workload once more on all disks of an adapter at once; ``found`` is each alone.

    Disks that gave no figures alone are left out, and so is an adapter with a single one. A
    workload that writes needs each disk to be among the ``names`` that were given, and empty.
    """
    results: list[TogetherResult] = []
    failed: list[Skipped | Failed] = []
    groups = list(_groups(found))
    if groups:
        seconds = sum(running.estimate_seconds(1, workload) for _, workload, _, _ in groups)
        writes = any(workload.writes for _, workload, _, _ in groups)
        context.reporter.note(RunsAhead(len(groups), seconds, writes))
    with context.reporter.progress(Phase.PROBING, len(groups)) as advance:
        for adapter, workload, subjects, alone in groups:
            figures = running.probe_together(adapter.target, subjects, workload, with_links(names))
            advance(adapter.target)
            if isinstance(figures, Figures):
                results.append(judge_together(adapter.target, adapter.link, alone, figures))
            else:
                failed.append(figures)
    return Together(tuple(results), tuple(failed))


_Group = tuple[Adapter, Workload, Sequence[Subject], Sequence[ProbeResult]]


def _groups(found: Probed) -> list[_Group]:
    """Return for each adapter and workload the disks that were measured alone, two at least."""
    measured = [run.outcome for run in found.runs if isinstance(run.outcome, ProbeResult)]
    targets = {each.target for each in measured}
    subjects = {each.target: each for each in subjects_of(found.machine, targets)}
    by_adapter: dict[tuple[str, Workload], list[ProbeResult]] = {}
    adapters = {adapter.target: adapter for adapter in found.machine.adapters}
    for each in measured:
        serving = subjects[each.target].adapters
        # A map over two adapters is limited by neither alone.
        if len(serving) == 1:
            by_adapter.setdefault((serving[0].target, each.workload), []).append(each)
    return [
        (adapters[target], workload, [subjects[each.target] for each in alone], alone)
        for (target, workload), alone in by_adapter.items()
        if len(alone) > 1
    ]
