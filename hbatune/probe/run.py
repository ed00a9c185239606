"""Probe endpoints one at a time, so no probe disturbs another, and within a given time.

If time is short, runs become shorter first, then representatives are left out. The disks of one
adapter are also probed in parallel. Only this shows the saturation of a link, an adapter and the
CPUs that serve it (D0, D1, D4): a single disk stays below all of them.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial

from msgspec import Struct
from msgspec.structs import asdict, replace

from hbatune.facts import model, sampler
from hbatune.facts.attributes import BLOCK_SIZE_FILE, parse_integer
from hbatune.facts.names import join_cpus
from hbatune.loader import Figure
from hbatune.probe import fio, guard, selection
from hbatune.probe.comparison import compute_link_ceiling
from hbatune.probe.history import Bottleneck, KeptTogether
from hbatune.probe.result import (
    FILE_ID,
    Doubt,
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
    find_doubt,
)
from hbatune.render import UnsafeNameError

RUN_OVERHEAD_S = 0.5  # seconds for fio to begin its job and to write its results
TogetherOutcome = Figures | Skipped | Failed  # the outcome of a parallel run on several endpoints
MIN_RUN_S = 1.0  # seconds below which a single run is too noisy

DISK_BOUND_FRACTION = 0.95
"""The fraction of the disks' sum at or above which only the disks are the bottleneck."""
LINK_FULL_FRACTION = 0.8
"""The approximate maximum fraction of a link's bits for data. The others are headers and
acknowledgments of small packets (PCI Express base: transaction and data link layers)."""
CPUS_BUSY_FRACTION = 0.9
"""The utilisation of the CPUs involved at or above which they are the bottleneck."""


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


def estimate_seconds(*workloads: Workload) -> float:
    """Return the approximate seconds to probe an endpoint with each of the workloads."""
    sampling = guard.SAMPLE_INTERVAL_S * (guard.LOAD_SAMPLES - 1)
    return sum(workload.seconds + RUN_OVERHEAD_S + sampling for workload in workloads)


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


class TogetherResult(Struct, frozen=True):
    """Disks of one adapter, probed in parallel: the figures of all, and single results (``alone``).

    ``share`` is the parallel rate as a fraction of the sum of the single rates. ``ceiling`` is the
    throughput of the adapter's link in GB/s, or None if unknown. ``busy``, from 0 to 1, is the
    utilisation of the CPUs that serve the adapter's interrupts, or of fio's threads if these are
    busier. ``doubt`` is the reason not to trust the parallel figures, or None.
    """

    adapter: str
    targets: tuple[str, ...]
    workload: Workload
    alone: tuple[ProbeResult, ...]
    figures: Figures
    share: Figure
    ceiling: Figure | None
    busy: Figure
    bottleneck: Bottleneck
    doubt: Doubt | None = None


def make_kept_together(measured: TogetherResult) -> KeptTogether:
    """Return the stored part of a result."""
    fields = asdict(measured) | {
        "alone_iops": tuple(result.figures.iops for result in measured.alone),
        # The adapter is the only one that serves these disks.
        "served": next(iter(measured.alone[0].served), None),
    }
    return KeptTogether(**{name: fields[name] for name in KeptTogether.__struct_fields__})


def evaluate_together(
    adapter: str, link: model.Link | None, singles: Sequence[ProbeResult], figures: Figures
) -> TogetherResult:
    """Return the result of a parallel run on all disks of ``singles``, their single results."""
    share = figures.iops / sum(single.figures.iops for single in singles)
    threads = sum(single.workload.jobs for single in singles)
    ceiling = None if link is None else compute_link_ceiling(link)
    thread_busy = figures.iops * figures.cpu_us_per_io / 1e6 / threads
    busy = max(thread_busy, figures.busy or 0.0)
    return TogetherResult(
        adapter=adapter,
        targets=tuple(single.target for single in singles),
        workload=singles[0].workload,
        alone=tuple(singles),
        figures=figures,
        share=share,
        ceiling=ceiling,
        busy=busy,
        bottleneck=find_bottleneck(share, figures.bandwidth / 1e9, ceiling, busy),
        doubt=find_doubt(singles[0].workload, figures, disks=len(singles)),
    )


def find_bottleneck(
    share: float, gb_per_s: float, ceiling: float | None, busy: float
) -> Bottleneck:
    """Return the bottleneck; the parameters are as in ``TogetherResult``."""
    if share >= DISK_BOUND_FRACTION:
        return Bottleneck.DISKS
    if ceiling is not None and gb_per_s >= LINK_FULL_FRACTION * ceiling:
        return Bottleneck.LINK
    if busy >= CPUS_BUSY_FRACTION:
        return Bottleneck.CPU
    return Bottleneck.ADAPTER


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
    fixed = estimate_seconds(workload) - workload.runtime
    available = limit / (count * runs) - fixed
    if available < workload.runtime:
        workload = replace(workload, runtime=max(min(shortest, workload.runtime), available))
        # The small term keeps a quotient of 2.9999999 from costing a representative.
        count = min(count, int(limit / (runs * estimate_seconds(workload)) + 1e-9))
    seconds = min(limit, runs * count * estimate_seconds(workload))  # rounding may exceed it
    return TimeBudget(tuple(subjects[:count]), workload, seconds, tuple(subjects[count:]))
