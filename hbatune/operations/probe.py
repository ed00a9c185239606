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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.trial import Experiment
from hbatune.errors import UsageError
from hbatune.facts.attributes import BLOCK_SIZE_FILE, parse_integer
from hbatune.facts.machine import Scope, gather_machine
from hbatune.facts.model import Adapter, Endpoint, Machine, Protocol, Storage
from hbatune.facts.names import group_items
from hbatune.facts.processors import with_probing
from hbatune.facts.targets import select_endpoints
from hbatune.operations.context import Advance, Context, HistoryFull, Phase, RunsAhead, Task
from hbatune.operations.situation import Situation, list_adapter_attributes
from hbatune.operations.verify import VerificationResult, find_mount_point
from hbatune.plan.rows import Outcome, Row
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library
from hbatune.policy.profile import Profile
from hbatune.policy.vendors import load_chosen_profile
from hbatune.probe import comparison, guard, history, knee
from hbatune.probe import run as running
from hbatune.probe.guard import find_write_refusal, make_scratch_file
from hbatune.probe.result import (
    ADAPTER_ID,
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
from hbatune.probe.run import TogetherResult, evaluate_together, make_kept_together
from hbatune.probe.selection import find_probe_refusal, list_subjects, merge_written, replace_values
from hbatune.probe.sweeps import Sweep, list_depth_sweeps
from hbatune.probe.workloads import NamedWorkload
from hbatune.settings import limits, table
from hbatune.settings.setting import FixedSetting
from hbatune.text.limit_text import describe_limit

DEPTH = table.QUEUE_DEPTH


class Measured(Struct, frozen=True):
    """One run: the workload, its outcome, and the reason not to trust it, if any."""

    workload: Workload
    outcome: ProbeOutcome
    doubt: Doubt | None


class ProbeRequest(Struct, frozen=True, kw_only=True):
    """The request to run a workload on disks, or on a file in ``folder``.

    The file has ``size`` bytes, or the default. ``profile`` has the objective for the results.
    ``together`` adds runs on all disks of an adapter concurrently. A workload that writes needs
    each disk by name.
    """

    workload: NamedWorkload
    targets: Sequence[str] = ()
    folder: Path | None = None
    size: int | None = None
    profile: str | None = None
    together: bool = False


class Together(Struct, frozen=True):
    """The results of all adapters, and the outcomes of adapters without figures."""

    results: tuple[TogetherResult, ...]
    failed: tuple[Skipped | Failed, ...] = ()


class ProbeRuns(Struct, frozen=True, kw_only=True):
    """All runs on the disks of a machine, or on a file.

    ``profile`` has their objective. ``standings`` are by target (``find_standings``). ``together``
    is None if it was not requested.
    """

    machine: Machine
    profile: Profile | None = None
    runs: tuple[Measured, ...]
    sweeps: tuple[Sweep, ...] = ()
    standings: Mapping[str, tuple[ProbeResult, comparison.Standing]] = {}
    together: Together | None = None

    @property
    def results(self) -> list[ProbeResult]:
        """The outcomes that are measurements."""
        return [run.outcome for run in self.runs if isinstance(run.outcome, ProbeResult)]

    @property
    def complete(self) -> bool:
        """Whether every run gave a result."""
        if self.together is not None and (self.together.failed or not self.together.results):
            return False
        return bool(self.runs) and len(self.results) == len(self.runs)


def run_workload(context: Context, request: ProbeRequest) -> ProbeRuns:
    """Run the workload, evaluate the results and append them to the history.

    Raises UsageError for an unknown profile or name, and LockedError if a depth has to be set while
    another hbatune changes the machine. Raises JournalError and HoldError as an experiment does.
    """
    if request.folder is not None:
        probed = _probe_file(context, request.folder, request.size, request.workload.runs)
    else:
        probed = _probe_disks(context, request)
        if request.together:
            probed = replace(probed, together=_probe_together(context, probed, request.targets))
    probed = replace(probed, sweeps=tuple(list_depth_sweeps(probed.results)))
    _keep_runs(context, request.workload.name, probed)
    return replace(probed, standings=find_standings(probed.results, probed.machine, probed.profile))


def find_standings(
    results: Iterable[ProbeResult], machine: Machine, profile: Profile | None
) -> dict[str, tuple[ProbeResult, comparison.Standing]]:
    """Return the comparison of a result of each target with the reference values.

    It is the result closest to the documents' workload. The link is compared with the highest
    throughput that can be trusted (D4-9). Missing disks are omitted.
    """
    standings = {}
    yardsticks = installed_library().yardsticks()
    for target, measured in group_items(results, attrgetter("target")).items():
        closest = min(measured, key=comparison.measure_distance)
        fastest = max(measured, key=lambda run: (run.doubt is None, run.figures.bandwidth))
        standing = comparison.compare_on_machine(closest, machine, profile, yardsticks)
        top = comparison.compare_on_machine(fastest, machine, None, yardsticks)
        if standing is not None and top is not None:
            standings[target] = (closest, replace(standing, links=top.links))
    return standings


def _probe_disks(context: Context, request: ProbeRequest) -> ProbeRuns:
    config, chosen = load_configuration(), None
    if request.profile or config.profile:
        chosen = load_chosen_profile(request.profile, config)
    # Setting a depth needs the journal's ids, which only a full scan provides.
    needed = () if request.workload.sets_depth else request.targets
    disk_files = (*table.list_attributes(), BLOCK_SIZE_FILE)
    gathered = gather_machine(disk_files, Scope(needed), of=list_adapter_attributes())
    machine = with_probing(gathered, isolated=config.probe.isolated)
    endpoints = select_endpoints(machine, request.targets)
    if not endpoints:
        problem = f"there is no disk to probe at {', '.join(request.targets)}"
        raise UsageError(problem, hint="name a disk: `hbatune list` shows them")
    subjects = list(list_subjects(machine, {endpoint.target for endpoint in endpoints}))
    _require_access(subjects, write=request.workload.writes)
    disk_runs = _DiskRuns(context, machine, request.workload, request.targets)
    return ProbeRuns(machine=machine, profile=chosen, runs=tuple(disk_runs.measure(subjects)))


def _probe_file(
    context: Context, folder: Path, size: int | None, workloads: Sequence[Workload]
) -> ProbeRuns:
    """Run the workloads on a scratch file, always removed; results have its folder's full path."""
    name, mount = os.path.realpath(folder), find_mount_point(folder)
    machine = gather_machine((BLOCK_SIZE_FILE,))
    disks = [endpoint for endpoint in machine.endpoints if mount in endpoint.mounts]
    possible, runs = _split_by_block(name, disks, workloads)
    if not possible:
        return ProbeRuns(machine=machine, runs=tuple(runs))
    # A RAID adapter, an array and a hypervisor may have a cache. No attribute shows its size.
    is_cached = any(d.protocol is Protocol.VOLUME or d.storage is not Storage.LOCAL for d in disks)

    def announce(size: int, seconds: float) -> None:
        seconds += running.estimate_seconds(*possible)
        context.note(RunsAhead(len(possible), seconds, file_size=size, cached=is_cached))

    with (
        context.progress(Phase.WRITING_FILE, 1),
        make_scratch_file(folder, size, announce) as file,
        context.progress(Phase.PROBING, len(possible)) as advance,
    ):
        for workload in possible:
            outcome = running.probe_file(name, file.path, file.size, workload)
            runs.append(_make_measured(workload, outcome))
            advance(name)
    return ProbeRuns(machine=machine, runs=tuple(runs))


def _split_by_block(
    name: str, disks: Iterable[Endpoint], workloads: Sequence[Workload]
) -> tuple[list[Workload], list[Measured]]:
    """Return the workloads that fit the disks' logical blocks, and one outcome of the others."""
    blocks = [parse_integer(disk.attributes, BLOCK_SIZE_FILE) for disk in disks]
    possible = [workload for workload in workloads if all(map(workload.fits_block, blocks))]
    excluded = [workload for workload in workloads if workload not in possible]
    sizes = dict.fromkeys(str(workload.block_size) for workload in excluded)
    refused = Skipped(name, Skip.BLOCK_SIZE, ", ".join(sizes))
    return possible, [Measured(workload, refused, None) for workload in excluded[:1]]


def _keep_runs(context: Context, name: str, probed: ProbeRuns) -> None:
    """Append the results to the history, all with one time and command.

    ``name`` is the name of the workload. The knees follow the results, and adapters come last.
    """
    machine = probed.machine
    profile = None if probed.profile is None else probed.profile.name
    origin = (context.clock(), f"probe {name}", machine.kernel, machine.boot_id, profile)
    records = [history.Record(*origin, r.target, r.id, r) for r in probed.results]
    # Knees are stored, because the windows they are computed from are not.
    for sweep in probed.sweeps:
        last = sweep.results[-1]
        load = last.workload
        # Without its result, which the records above already contain.
        record = history.Record(*origin, last.target, last.id, None, knee=sweep.knee)
        records.append(replace(record, queue_depth=load.queue_depth, workload=load))
    for full in probed.together.results if probed.together else ():
        subject, stored = (full.adapter, f"{ADAPTER_ID}{full.adapter}"), make_kept_together(full)
        records.append(history.Record(*origin, *subject, None, together=stored))
    keep_records(context, records)


def _require_access(subjects: Sequence[Subject], *, write: bool) -> None:
    for subject in subjects:
        node = subject.endpoint.device_node
        if node is None or not os.path.exists(node):
            continue
        if os.access(node, os.R_OK | (os.W_OK if write else 0)):
            continue
        group = _find_group(node)
        also = f" and the group {group}" if group else ""
        hint = "run it with sudo"
        if group:
            hint += f"; members of {group} may as well, and then read every disk: "
            hint += f"`sudo usermod -aG {group} USER`"
        raise UsageError(
            f"{node} cannot be opened: a probe reads the disk itself, which only root{also} may do",
            hint=hint,
        )


def is_named(names: Iterable[str], subject: Subject) -> bool:
    """Return whether one of the user's names is a name of the subject or of one of its paths."""
    aliases = set()
    for disk in subject.members:
        aliases |= {disk.target, disk.id}
    return any(name.removeprefix("/dev/") in aliases for name in names)


def _find_group(node: str) -> str | None:
    """Return the name of the group that may read the device, or None."""
    status = os.stat(node)
    if not status.st_mode & stat.S_IRGRP or not status.st_gid:
        return None
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return str(status.st_gid)


def _make_measured(workload: Workload, outcome: ProbeOutcome) -> Measured:
    return Measured(workload, outcome, outcome.doubt if isinstance(outcome, ProbeResult) else None)


_Ready = Callable[[Workload], Subject | Skipped]
"""Sets the workload's queue depth; returns the subject with it, or the reason for a failure."""


class _DiskRuns:
    """The runs of a workload on disks. The user gave the ``names``, with links followed."""

    def __init__(
        self, context: Context, machine: Machine, workload: NamedWorkload, names: Sequence[str]
    ) -> None:
        self._context, self._machine = context, machine
        self._workload, self._workloads, self._names = workload, workload.runs, names

    def measure(self, subjects: Sequence[Subject]) -> list[Measured]:
        """Note the number of runs, then do them; a disk that must not be probed is one outcome."""
        refusals = self._find_refusals(subjects)
        usable: list[tuple[Subject, list[Workload]]] = []
        measured: list[Measured] = []
        for subject in subjects:
            if (refused := refusals.get(subject.target)) is not None:
                measured.append(Measured(self._workloads[0], refused, None))
                continue
            possible, excluded = _split_by_block(subject.target, subject.members, self._workloads)
            measured += excluded
            if possible:
                usable.append((subject, possible))
        runs = [workload for _, possible in usable for workload in possible]
        if runs:
            seconds = running.estimate_seconds(*runs)
            self._context.note(RunsAhead(len(runs), seconds, self._workload.writes))
        with self._context.progress(Phase.PROBING, len(runs)) as advance:
            for subject, possible in usable:
                measured += self._measure_disk(subject, possible, advance)
        return measured

    def _find_refusals(self, subjects: Sequence[Subject]) -> dict[str, Skipped]:
        """Return the reasons not to probe disks; fc and iscsi disks are only probed by name."""
        refusals: dict[str, Skipped] = {}
        for subject in subjects:
            refusal = find_probe_refusal(subject, shared=is_named(self._names, subject))
            if refusal is None and self._workload.writes:
                refusal = find_write_refusal(subject, self._names)
            if refusal is not None:
                refusals[subject.target] = refusal
        idle = [subject for subject in subjects if subject.target not in refusals]
        return refusals | (guard.find_busy_subjects(idle) if idle else {})

    def _measure_disk(
        self, subject: Subject, workloads: Iterable[Workload], advance: Advance
    ) -> Iterator[Measured]:
        """Yield one run after the other; stop at the first that fails or times out.

        Depths at which the IOPS of a sweep fell are measured again. A depth that is not restored
        after the runs is an outcome as well.
        """
        lost: list[Skipped] = []
        results: list[ProbeResult] = []
        with self._set_depths(subject, lost) as ready:
            for workload in workloads:
                prepared = ready(workload)
                if isinstance(prepared, Subject):
                    outcome = running.probe_guarded(prepared, workload, self._names)
                    yield _make_measured(workload, outcome)
                    # The disk or hbatune has a problem: further runs would add load for no result.
                    if not isinstance(outcome, ProbeResult):
                        break
                    results.append(outcome)
                elif prepared.reason is Skip.CONFLICT:
                    break  # reported below, with the value at the end of the runs
                else:
                    yield Measured(workload, prepared, None)
                advance(subject.target)
            else:
                again = _list_second_visits(results)
                if again:
                    seconds = running.estimate_seconds(*again)
                    writes = self._workload.writes
                    self._context.note(RunsAhead(len(again), seconds, writes, again=True))
                for workload in again:
                    prepared = ready(workload)
                    if isinstance(prepared, Subject):
                        outcome = running.probe_guarded(prepared, workload, self._names)
                        yield _make_measured(workload, outcome)
        for skipped in lost:
            yield Measured(self._workloads[-1], skipped, None)

    @contextmanager
    def _set_depths(self, subject: Subject, lost: list[Skipped]) -> Iterator[_Ready]:
        """Yield a function that sets a disk's depth for each workload; restore it at the end.

        If it could not be restored, the reason is added to ``lost``.
        """
        target, id = subject.target, subject.endpoint.id
        if not self._workload.sets_depth:
            yield lambda workload: subject
            return
        own_settings = {entry.setting for entry in subject.settings if entry.target == target}
        if DEPTH not in own_settings:
            yield lambda workload: Skipped(target, Skip.FIXED_DEPTH)
            return
        means = self._context.make_trial_means(load_configuration().act)
        holds = self._context.paths.holds
        with (
            self._context.lock(),
            Experiment(self._machine, id, (DEPTH,), "probe", means, holds=holds) as experiment,
        ):
            yield lambda workload: _set_depth(subject, experiment, workload.queue_depth)
        for result in experiment.failed.values():
            if result.outcome is Outcome.CONFLICT:
                lost.append(Skipped(target, Skip.CONFLICT, str(result.found)))
            else:
                lost.append(Skipped(target, Skip.NOT_RESTORED, str(result.outcome)))


def _list_second_visits(results: Sequence[ProbeResult]) -> list[Workload]:
    """Return the runs of sweeps in which IOPS fell, deepest first, so they form no second sweep."""
    workloads = []
    for sweep in list_depth_sweeps(results):
        falls = {point.depth for point in knee.find_falls(knee.list_sweep_points(sweep.results))}
        for result in reversed(sweep.results):
            if result.workload.issued in falls:
                workloads.append(result.workload)
    return workloads


def _set_depth(subject: Subject, experiment: Experiment, depth: int | None) -> Subject | Skipped:
    """Set a disk's depth; return the subject with it, or the reason for a failure."""
    if depth is None:
        return subject
    target = subject.target
    # A depth that the driver would clamp is refused: the run would have a wrong label.
    device = limits.make_device(subject.endpoint, None)
    legal = limits.resolve_value(table.SETTINGS[DEPTH], depth, depth, device)
    if isinstance(legal, FixedSetting) or legal.value != depth:
        return Skipped(target, Skip.FIXED_DEPTH, describe_limit(legal.limit))
    result = experiment.take({DEPTH: depth})[DEPTH]
    if experiment.conflicts:
        return Skipped(target, Skip.CONFLICT, str(result.found))
    if result.found != depth:
        return Skipped(target, Skip.FIXED_DEPTH, str(result.outcome))
    return replace(subject, settings=replace_values(subject.settings, {(target, DEPTH): depth}))


def keep_records(context: Context, records: Iterable[history.Record]) -> None:
    """Append records to the history; a failure is a note."""
    try:
        dropped = history.append(context.paths.history, records)
    except history.HistoryError as error:
        context.note_failure(Task.SAVE_HISTORY, error)
        return
    if dropped:
        context.note(HistoryFull(dropped))


def list_apply_records(
    context: Context, situation: Situation, rows: Sequence[Row], verified: VerificationResult
) -> Iterator[history.Record]:
    """Yield records of the verdicts of an apply with these rows."""
    command = "apply --verify" if verified.thorough else "apply"
    machine, profile = situation.machine, situation.profile.name
    for proof in verified.proofs:
        changes, reverted = [], []
        for row in rows:
            if row.id == proof.id and row.setting in proof.settings:
                before = verified.originals.get(row.key, row.current)
                changes.append(history.ValueChange(row.target, row.setting, before, row.value))
                if row.key in verified.reverted:
                    reverted.append(row.setting)
        result = proof.last
        if result is not None:  # measured after the apply, so with its values
            result = replace(result, settings=merge_written(result.settings, rows))
        origin = (context.clock(), command, machine.kernel, machine.boot_id, profile)
        values = (tuple(changes), tuple(reverted))
        yield history.Record(*origin, proof.target, proof.id, result, proof, *values)


def _probe_together(context: Context, probed: ProbeRuns, names: Sequence[str]) -> Together:
    """Run each workload again on all disks of an adapter concurrently.

    ``probed`` has the separate runs. Disks without figures are omitted, and so are adapters with a
    single disk. A workload that writes needs each disk to be empty and in the user's ``names``.
    """
    results: list[TogetherResult] = []
    failed: list[Skipped | Failed] = []
    groups = _group_by_adapter(probed)
    if groups:
        workloads = [group[1] for group in groups]
        writes = any(workload.writes for workload in workloads)
        context.note(RunsAhead(len(groups), running.estimate_seconds(*workloads), writes))
    with context.progress(Phase.PROBING, len(groups)) as advance:
        for adapter, workload, subjects, separate in groups:
            figures = running.probe_together(adapter.target, subjects, workload, names)
            advance(adapter.target)
            if isinstance(figures, Figures):
                results.append(evaluate_together(adapter.target, adapter.link, separate, figures))
            else:
                failed.append(figures)
    return Together(tuple(results), tuple(failed))


_Group = tuple[Adapter, Workload, Sequence[Subject], Sequence[ProbeResult]]


def _group_by_adapter(probed: ProbeRuns) -> list[_Group]:
    """Return the separately measured disks of each adapter and workload, at least two."""
    measured = probed.results
    targets = {result.target for result in measured}
    subjects = {subject.target: subject for subject in list_subjects(probed.machine, targets)}
    by_adapter: dict[tuple[str, Workload], list[ProbeResult]] = {}
    for result in measured:
        serving = subjects[result.target].adapters
        # A map over two adapters is not limited by one of them.
        if len(serving) == 1:
            by_adapter.setdefault((serving[0].target, result.workload), []).append(result)
    groups: list[_Group] = []
    adapters = probed.machine.adapters_by_target
    for (target, workload), separate in by_adapter.items():
        if len(separate) > 1:
            disks = [subjects[result.target] for result in separate]
            groups.append((adapters[target], workload, disks, separate))
    return groups
