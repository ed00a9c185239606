"""Probe endpoints one at a time, so no probe disturbs another, and within a given time.

If time is short, runs become shorter first, then representatives are left out.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import model, sampler
from hbatune.facts.attributes import BLOCK_SIZE_FILE, parse_integer
from hbatune.facts.names import join_cpus
from hbatune.probe import fio, guard, selection
from hbatune.probe.result import (
    FILE_ID,
    Failed,
    Figures,
    Prepare,
    ProbeOutcome,
    ProbeResult,
    Served,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.render import UnsafeNameError

RUN_OVERHEAD_S = 0.5  # seconds for fio to begin its job and to write its results
TogetherOutcome = Figures | Skipped | Failed  # the outcome of a parallel run on several endpoints
MIN_RUN_S = 1.0  # seconds below which a single run is too noisy


class TimeBudget(Struct, frozen=True):
    """The subjects and the workload that fit into the time, and the seconds they take."""

    subjects: tuple[Subject, ...]
    workload: Workload
    seconds: float
    left_out: tuple[Subject, ...] = ()


def choose_subjects(
    machine: model.Machine, targets: Collection[str], *, shared: bool = False
) -> selection.Selection:
    """Choose one endpoint for each adapter, medium and model, preferably an idle one.

    ``targets`` and ``shared`` are as for ``choose_representatives``. Takes 0.3 s.
    """
    subjects = selection.list_subjects(machine, targets)
    candidates = [s for s in subjects if selection.find_probe_refusal(s, shared=shared) is None]
    busy = guard.find_busy_subjects(candidates) if candidates else {}
    return selection.choose_representatives(machine, targets, shared=shared, busy=busy)


def estimate_seconds(count: int, workload: Workload) -> float:
    """Return the approximate seconds to probe ``count`` endpoints."""
    sampling = guard.SAMPLE_INTERVAL_S * (guard.LOAD_SAMPLES - 1)
    return count * (workload.seconds + RUN_OVERHEAD_S + sampling)


def probe_subject(
    subject: Subject,
    workload: Workload,
    *,
    write: bool = False,
    look: bool = False,
    prepare: Prepare | None = None,
) -> ProbeOutcome:
    """Probe a subject by the workload.

    Nothing is written without ``write``. With ``look``, blocks are sampled for zeros (``blank``).
    ``prepare`` has to include the check of other I/O, which is the default (``find_disturbance``).
    """
    target, endpoint = subject.target, subject.endpoint
    node, size = endpoint.device_node, endpoint.size
    executable = fio.find(target)
    if isinstance(executable, Skipped):
        return executable
    if node is None:
        return Skipped(target, Skip.NO_NODE)
    if isinstance(size, model.Missing):
        return Skipped(target, Skip.NO_SIZE)
    if size < workload.least_bytes:
        return Skipped(target, Skip.TOO_SMALL)
    if not workload.fits_block(parse_integer(endpoint.attributes, BLOCK_SIZE_FILE)):
        return Skipped(target, Skip.BLOCK_SIZE, detail=str(workload.block_size))
    # With fewer CPUs than jobs, the jobs would wait for each other, not for the disk.
    enough = len(subject.cpus) >= workload.jobs
    cpus = join_cpus(subject.cpus) if enough else None
    try:
        measured = fio.measure(
            executable,
            target,
            (node,),
            size,
            workload,
            write=write,
            cpus=cpus,
            involved=tuple(sorted({*subject.cpus, *subject.serving})) if enough else (),
            # Checked again right before its run: the choice may be minutes old.
            prepare=prepare or partial(find_disturbance, subject),
        )
    except UnsafeNameError as error:
        return Skipped(target, Skip.UNSAFE_NAME, detail=error.name)
    if not isinstance(measured, Figures):
        return measured
    served = []
    for adapter in subject.adapters:
        versions = (adapter.driver, adapter.driver_version, adapter.firmware)
        served.append(Served(adapter.target, *versions, adapter.link))
    temperatures = [sampler.read_temperature(member.sysfs) for member in subject.members]
    return ProbeResult(
        target=target,
        id=endpoint.id,
        workload=workload,
        figures=measured,
        fio_version=executable.version,
        served=tuple(served),
        cpus=cpus,
        blank=guard.is_blank(node, size) if look else None,
        settings=subject.settings,
        # Of a map: of its warmest path.
        temperature=max((value for value in temperatures if value is not None), default=None),
    )


def find_disturbance(subject: Subject) -> Skipped | None:
    """Return why a probe would disturb the subject or be disturbed, or None if it is idle."""
    return guard.find_busy_subjects([subject]).get(subject.target)


def probe_guarded(
    subject: Subject,
    workload: Workload,
    names: Sequence[str],
    *,
    look: bool = True,
    prepare: Prepare | None = None,
) -> ProbeOutcome:
    """Do one run; before one that writes, check again that the disk is empty and named.

    ``look`` and ``prepare`` are as for ``probe_subject``; a run that writes samples no zeros.
    """
    if not workload.writes:
        return probe_subject(subject, workload, look=look, prepare=prepare)
    # Opened exclusively before the check: nothing can be mounted between check and write.
    with guard.claim_device(subject) as refusal:
        return (
            refusal
            or guard.find_write_refusal(subject, names)
            or probe_subject(subject, workload, write=True, prepare=prepare)
        )


def probe_together(
    target: str, subjects: Sequence[Subject], workload: Workload, names: Sequence[str] = ()
) -> TogetherOutcome:
    """Probe all subjects in parallel; the figures cover all of them.

    ``target`` is their common name, for an outcome without figures. Before a run that writes, each
    disk is checked again: it must be empty and among the given ``names``.
    """
    with ExitStack() as claims:
        for subject in subjects if workload.writes else ():
            # Opened exclusively first, as for a single disk.
            refusal = claims.enter_context(guard.claim_device(subject))
            if (refused := refusal or guard.find_write_refusal(subject, names)) is not None:
                return refused
        executable = fio.find(target)
        if isinstance(executable, Skipped):
            return executable
        busy = guard.find_busy_subjects(subjects)
        endpoints = [subject.endpoint for subject in subjects]
        nodes = [endpoint.device_node for endpoint in endpoints if endpoint.device_node]
        sizes = [endpoint.size for endpoint in endpoints if isinstance(endpoint.size, int)]
        if busy or len(nodes) < len(subjects):
            return next(iter(busy.values()), Skipped(target, Skip.NO_NODE))
        first = subjects[0]
        enough = len(first.cpus) >= workload.jobs * len(subjects)
        return fio.measure(
            executable,
            target,
            tuple(nodes),
            min(sizes),
            workload,
            write=workload.writes,
            cpus=join_cpus(first.cpus) if enough else None,
            # One CPU that serves all interrupts is a limit, even if the others are idle.
            involved=first.serving,
        )


def probe_file(target: str, path: str, size: int, workload: Workload) -> ProbeOutcome:
    """Probe a file of ``size`` bytes that hbatune made; the workload may write to it."""
    executable = fio.find(target)
    if isinstance(executable, Skipped):
        return executable
    if size < workload.least_bytes:
        return Skipped(target, Skip.TOO_SMALL)
    measured = fio.measure(executable, target, (path,), size, workload, write=workload.writes)
    if not isinstance(measured, Figures):
        return measured
    return ProbeResult(target, f"{FILE_ID}{target}", workload, measured, executable.version, ())


def fit_time(
    subjects: Sequence[Subject],
    workload: Workload,
    runs: int,
    limit: float,
    *,
    shortest: float = MIN_RUN_S,
) -> TimeBudget:
    """Return the subjects and the workload that fit ``runs`` times into ``limit`` seconds.

    Runs are shortened as needed, but not below ``shortest``; then the last subjects are dropped.
    """
    if not subjects:
        return TimeBudget((), workload, 0.0)
    count = len(subjects)
    fixed = estimate_seconds(1, workload) - workload.runtime
    available = limit / (count * runs) - fixed
    if available < workload.runtime:
        workload = replace(workload, runtime=max(min(shortest, workload.runtime), available))
        # The small term keeps a quotient of 2.9999999 from costing a representative.
        count = min(count, int(limit / (runs * estimate_seconds(1, workload)) + 1e-9))
    seconds = runs * estimate_seconds(count, workload)
    return TimeBudget(tuple(subjects[:count]), workload, seconds, tuple(subjects[count:]))
