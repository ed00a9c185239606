"""Run a workload on disks or on a file, one run at a time or all disks of an adapter together.

A run only reads, except for workloads that write. These need an empty disk that the user has named.
A queue depth of the LUN's own (D2-1) is set only for the duration of its measurement. A run on all
disks of one adapter, after each disk separately, finds the limit of the adapter.

Measurements are appended to the history, also the measurements of an apply. If this fails, it is a
note, and nothing else is lost.
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
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import Adapter, Machine, TargetKind
from hbatune.facts.processors import with_probing
from hbatune.facts.targets import select_endpoints
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
from hbatune.operations.situation import Situation, resolve_target_name
from hbatune.operations.verify import VerificationResult
from hbatune.plan.rows import Outcome, Row
from hbatune.policy.chosen import load_chosen_profile, load_configuration
from hbatune.policy.profile import Profile
from hbatune.probe import history
from hbatune.probe import run as running
from hbatune.probe.guard import find_write_refusal, make_scratch_file, resolve_links
from hbatune.probe.history import (
    HistoryError,
    Record,
    ValueChange,
    make_adapter_record,
    make_record,
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
    find_probe_refusal,
    list_subjects,
    merge_written,
    replace_value,
)
from hbatune.probe.together import TogetherResult, evaluate_together, make_kept_together
from hbatune.settings.limits import make_device, resolve_value
from hbatune.settings.setting import FixedSetting
from hbatune.settings.table import SETTINGS, list_attributes
from hbatune.text.limit_text import describe_limit

DEPTH = "queue_depth"
_ADAPTERS = (TargetKind.CONTROLLER, TargetKind.HOST)


class Measured(Struct, frozen=True):
    """One run: the workload, its outcome, and the reason not to trust it, if any."""

    workload: Workload
    outcome: ProbeOutcome
    doubt: Doubt | None


class ProbeRuns(Struct, frozen=True):
    """All runs on the disks of a machine, or on a file; ``profile`` has their objective."""

    machine: Machine
    profile: Profile | None
    runs: list[Measured]


class SweepKnee(Struct, frozen=True):
    """The knee of a sweep of depth, with its last run; ``queue_depth`` is the LUN's own."""

    last: ProbeResult
    queue_depth: int | None
    knee: Knee | None


def probe_disks(
    context: Context, workloads: Sequence[Workload], names: Sequence[str], profile: str | None
) -> ProbeRuns:
    """Run each workload on each named disk; a workload that writes needs each disk by name.

    Raises UsageError for an unknown profile or name, and LockedError if a depth has to be set while
    another hbatune changes the machine. Raises JournalError and HoldError as an experiment does.
    """
    chosen = _choose_profile(profile)
    disks = [resolve_target_name(name) for name in names]
    # Setting a depth needs the journal's ids, which only a full scan provides.
    needed = () if any(workload.queue_depth for workload in workloads) else disks
    gathered = gather_machine(
        list_attributes(), of={kind: list_attributes(on=kind) for kind in _ADAPTERS}, disks=needed
    )
    machine = with_probing(gathered, isolated=load_configuration().probe.isolated)
    endpoints = select_endpoints(machine, disks)
    if not endpoints:
        raise UsageError(
            f"there is no disk to probe at {', '.join(names)}",
            hint="name a disk: `hbatune list` shows them",
        )
    subjects = list(list_subjects(machine, {endpoint.target for endpoint in endpoints}))
    _require_access(subjects, write=any(workload.writes for workload in workloads))
    return ProbeRuns(
        machine, chosen, _measure_disks(context, machine, subjects, workloads, resolve_links(names))
    )


def probe_file(context: Context, folder: Path, workloads: Sequence[Workload]) -> ProbeRuns:
    """Run each workload on a scratch file, which is always removed at the end.

    The results are named by the full path of the directory.
    """
    name = os.path.realpath(folder)
    seconds = sum(running.estimate_seconds(1, workload) for workload in workloads)
    with context.reporter.progress(Phase.WRITING_FILE, 1), make_scratch_file(folder) as file:
        context.reporter.note(FileRunsAhead(len(workloads), file.size, seconds))
        with context.reporter.progress(Phase.PROBING, len(workloads)) as advance:
            runs = []
            for workload in workloads:
                outcome = running.probe_file(name, file.path, file.size, workload)
                runs.append(_make_measured(workload, outcome))
                advance(name)
    return ProbeRuns(gather_machine(()), None, runs)


def keep_probed(
    context: Context,
    name: str,
    probed: ProbeRuns,
    sweeps: Sequence[SweepKnee],
    together: Sequence[TogetherResult] = (),
) -> None:
    """Append the results to the history, all with one time and command, and then the knees.

    ``name`` is the name of the workload. The results of full adapters come last.
    """
    command, time = f"probe {name}", context.clock()
    profile = None if probed.profile is None else probed.profile.name
    records = [
        make_record(probed.machine, profile, command, result, time)
        for result in list_results(probed.runs)
    ]
    for sweep in sweeps:
        last = make_record(probed.machine, profile, command, sweep.last, time)
        # Without its result, which the records above already contain.
        knee = replace(
            last,
            result=None,
            knee=sweep.knee,
            queue_depth=sweep.queue_depth,
            workload=sweep.last.workload,
        )
        records.append(knee)
    for result in together:
        figures = make_kept_together(result)
        records.append(
            make_adapter_record(probed.machine, profile, command, result.adapter, figures, time)
        )
    keep_records(context, records)


def list_results(runs: Sequence[Measured]) -> list[ProbeResult]:
    """Return the outcomes that are measurements."""
    return [run.outcome for run in runs if isinstance(run.outcome, ProbeResult)]


def _choose_profile(name: str | None) -> Profile | None:
    """Return the active or named profile, which has the objective for the results, or None."""
    config = load_configuration()
    return load_chosen_profile(name, config) if name or config.profile else None


def _require_access(subjects: Sequence[Subject], *, write: bool) -> None:
    """Raise UsageError if this user may not open one of the disks."""
    for node in (subject.endpoint.device_node for subject in subjects):
        if node is None or not os.path.exists(node):
            continue
        if not os.access(node, os.R_OK | (os.W_OK if write else 0)):
            group = _find_group(node)
            extra = f" and the group {group}" if group else ""
            hint = "run it with sudo"
            if group:
                hint += (
                    f"; members of {group} may as well, and then read every disk: "
                    f"`sudo usermod -aG {group} USER`"
                )
            raise UsageError(
                f"{node} cannot be opened: a probe reads the disk itself, which only root{extra} "
                "may do",
                hint=hint,
            )


def _find_group(node: str) -> str | None:
    """Return the name of the group that may read the device, or None."""
    status = os.stat(node)
    if not status.st_mode & stat.S_IRGRP or not status.st_gid:
        return None
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return str(status.st_gid)


def _measure_disks(
    context: Context,
    machine: Machine,
    subjects: Sequence[Subject],
    workloads: Sequence[Workload],
    names: Sequence[str],
) -> list[Measured]:
    """Note the number of runs, then do them; a disk that must not be probed is one outcome."""
    writes = any(workload.writes for workload in workloads)
    refused = [(subject, _find_refusal(subject, names, writes=writes)) for subject in subjects]
    usable = [subject for subject, why in refused if why is None]
    measured = [Measured(workloads[0], why, None) for _, why in refused if why is not None]
    count = len(usable) * len(workloads)
    seconds = sum(running.estimate_seconds(len(usable), workload) for workload in workloads)
    if count:
        context.reporter.note(RunsAhead(count, seconds, writes))
    with context.reporter.progress(Phase.PROBING, count) as advance:
        for subject in usable:
            measured += _run_all(context, machine, subject, workloads, names, advance)
    return measured


def _find_refusal(subject: Subject, names: Sequence[str], *, writes: bool) -> Skipped | None:
    """Return the reason not to probe a disk; fc and iscsi disks are only probed by name."""
    aliases = {
        name for disk in (subject.endpoint, *subject.paths) for name in (disk.target, disk.id)
    }
    is_named = any(resolve_target_name(name).removeprefix("/dev/") in aliases for name in names)
    return find_probe_refusal(subject, shared=is_named) or (
        find_write_refusal(subject, names) if writes else None
    )


def _run_all(
    context: Context,
    machine: Machine,
    subject: Subject,
    workloads: Sequence[Workload],
    names: Sequence[str],
    advance: Advance,
) -> Iterator[Measured]:
    """Yield one run after the other; stop at the first that fails or times out.

    A depth that is not restored after the runs is an outcome as well.
    """
    lost: list[Skipped] = []
    with _set_depths(context, machine, subject, workloads, lost) as ready:
        for workload in workloads:
            prepared = ready(workload)
            if isinstance(prepared, Subject):
                outcome = running.probe_guarded(prepared, workload, names)
                yield (measured := _make_measured(workload, outcome))
                # The disk or hbatune has a problem: further runs would add load for no result.
                if not isinstance(measured.outcome, ProbeResult):
                    break
            elif prepared.reason is Skip.CONFLICT:
                break  # reported below, with the value at the end of the runs
            else:
                yield _make_measured(workload, prepared)
            advance(subject.target)
    for skipped in lost:
        yield _make_measured(workloads[-1], skipped)


def _make_measured(workload: Workload, outcome: ProbeOutcome) -> Measured:
    return Measured(workload, outcome, outcome.doubt if isinstance(outcome, ProbeResult) else None)


_Ready = Callable[[Workload], Subject | Skipped]
"""Sets the workload's queue depth; returns the subject with it, or the reason for a failure."""


@contextmanager
def _set_depths(
    context: Context,
    machine: Machine,
    subject: Subject,
    workloads: Sequence[Workload],
    lost: list[Skipped],
) -> Iterator[_Ready]:
    """Yield a function that sets a disk's depth for each workload; restore it at the end.

    If it could not be restored, the reason is added to ``lost``.
    """
    if not any(workload.queue_depth for workload in workloads):
        yield lambda workload: subject
        return
    why = _find_obstacle(subject)
    if why is not None:
        yield lambda workload: why
        return
    act = load_configuration().act
    paths = context.paths
    # One target needs one worker.
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
    for result in experiment.failed.values():
        if result.outcome is Outcome.CONFLICT:
            lost.append(Skipped(subject.target, Skip.CONFLICT, str(result.found)))
        else:
            lost.append(Skipped(subject.target, Skip.NOT_RESTORED, str(result.outcome)))


class _Depths:
    """A disk whose depth is set for each workload."""

    def __init__(self, subject: Subject, experiment: Experiment) -> None:
        self._subject, self._experiment = subject, experiment

    def take(self, workload: Workload) -> Subject | Skipped:
        depth = workload.queue_depth
        if depth is None:
            return self._subject
        target = self._subject.target
        # A depth that the driver would clamp is refused: the run would have a wrong label.
        device = make_device(self._subject.endpoint, None)
        legal = resolve_value(SETTINGS[DEPTH], depth, depth, device)
        if isinstance(legal, FixedSetting) or legal.value != depth:
            return Skipped(target, Skip.FIXED_DEPTH, describe_limit(legal.limit))
        result = self._experiment.take({DEPTH: depth})[DEPTH]
        if self._experiment.has_conflict:
            return Skipped(target, Skip.CONFLICT, str(result.found))
        if result.found != depth:
            return Skipped(target, Skip.FIXED_DEPTH, str(result.outcome))
        return replace(
            self._subject, settings=replace_value(self._subject.settings, target, DEPTH, depth)
        )


def _find_obstacle(subject: Subject) -> Skipped | None:
    """Return the reason why a disk's depth cannot be set, or None."""
    if DEPTH in {
        setting.setting for setting in subject.settings if setting.target == subject.target
    }:
        return None
    return Skipped(subject.target, Skip.FIXED_DEPTH)


def keep_records(context: Context, records: Iterable[Record]) -> None:
    """Append records to the history; a failure is a note."""
    try:
        dropped = history.append(context.paths.history, records)
    except HistoryError as error:
        context.reporter.note(TaskFailed(Task.SAVE_HISTORY, error))
        return
    if dropped:
        context.reporter.note(HistoryFull(dropped))


def list_apply_records(
    context: Context,
    situation: Situation,
    rows: Sequence[Row],
    verified: VerificationResult,
) -> Iterator[Record]:
    """Yield records of the verdicts of an apply with these rows."""
    machine, reverted = situation.machine, verified.reverted
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
            result=None if proof.last is None else _set_applied_values(proof.last, rows),
            proof=proof,
            settings=_list_changes(judged),
            reverted=tuple(row.setting for row in judged if (row.id, row.setting) in reverted),
        )


def _set_applied_values(result: ProbeResult, rows: Sequence[Row]) -> ProbeResult:
    """Return a result that was measured after an apply, with the values from the apply."""
    return replace(result, settings=merge_written(result.settings, rows))


def _list_changes(rows: Sequence[Row]) -> tuple[ValueChange, ...]:
    return tuple(ValueChange(row.target, row.setting, row.current, row.value) for row in rows)


class Together(Struct, frozen=True):
    """The results of all adapters, and the outcomes of adapters without figures."""

    results: tuple[TogetherResult, ...]
    failed: tuple[Skipped | Failed, ...] = ()


def probe_together(context: Context, probed: ProbeRuns, names: Sequence[str]) -> Together:
    """Run each workload again on all disks of an adapter concurrently.

    ``probed`` has the separate runs. Disks without figures are omitted, and so are adapters with a
    single disk. A workload that writes needs each disk to be empty and in the user's ``names``.
    """
    results: list[TogetherResult] = []
    failed: list[Skipped | Failed] = []
    groups = list(_group_by_adapter(probed))
    if groups:
        seconds = sum(running.estimate_seconds(1, workload) for _, workload, _, _ in groups)
        writes = any(workload.writes for _, workload, _, _ in groups)
        context.reporter.note(RunsAhead(len(groups), seconds, writes))
    with context.reporter.progress(Phase.PROBING, len(groups)) as advance:
        for adapter, workload, subjects, separate in groups:
            figures = running.probe_together(
                adapter.target, subjects, workload, resolve_links(names)
            )
            advance(adapter.target)
            if isinstance(figures, Figures):
                results.append(evaluate_together(adapter.target, adapter.link, separate, figures))
            else:
                failed.append(figures)
    return Together(tuple(results), tuple(failed))


_Group = tuple[Adapter, Workload, Sequence[Subject], Sequence[ProbeResult]]


def _group_by_adapter(probed: ProbeRuns) -> list[_Group]:
    """Return the separately measured disks of each adapter and workload, at least two."""
    measured = [run.outcome for run in probed.runs if isinstance(run.outcome, ProbeResult)]
    targets = {result.target for result in measured}
    subjects = {subject.target: subject for subject in list_subjects(probed.machine, targets)}
    by_adapter: dict[tuple[str, Workload], list[ProbeResult]] = {}
    adapters = {adapter.target: adapter for adapter in probed.machine.adapters}
    for result in measured:
        serving = subjects[result.target].adapters
        # A map over two adapters is not limited by one of them.
        if len(serving) == 1:
            by_adapter.setdefault((serving[0].target, result.workload), []).append(result)
    return [
        (adapters[target], workload, [subjects[result.target] for result in separate], separate)
        for (target, workload), separate in by_adapter.items()
        if len(separate) > 1
    ]
