"""Probes endpoints one at a time, so that no probe disturbs another, and within a given time.

Where the time is short, runs become shorter first, then representatives are left out.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.model import Machine, Missing
from hbatune.facts.sampler import activity, temperature
from hbatune.probe import fio
from hbatune.probe.guard import (
    INTERVAL,
    SAMPLES,
    Clock,
    Reader,
    busy_subjects,
    exclusively,
    guarded,
    is_blank,
)
from hbatune.probe.result import (
    FILE_ID,
    Failed,
    Figures,
    ProbeOutcome,
    ProbeResult,
    Served,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.selection import Selection, choose_representatives, probe_refusal, subjects_of
from hbatune.render import UnsafeNameError

OVERHEAD = 0.7  # seconds in which fio starts and writes its results
Progress = Callable[[int, int, str], None]  # how many are done, of how many, and which is next
TogetherOutcome = Figures | Skipped | Failed
"""The outcome of a run on several endpoints at once."""
SHORTEST = 1.0
"""Seconds below which a run is too noisy to stand alone."""


class TimeBudget(Struct, frozen=True):
    """The subjects and the workload that fit into the time, and their seconds."""

    subjects: tuple[Subject, ...]
    workload: Workload
    seconds: float
    left_out: tuple[Subject, ...] = ()


def choose_subjects(
    machine: Machine,
    targets: Collection[str],
    *,
    shared: bool = False,
    read: Reader = activity,
    clock: Clock | None = None,
) -> Selection:
    """Choose one endpoint for each adapter, medium and model, an idle one if there is one.

    ``targets`` and ``shared`` are those of ``choose_representatives``. Takes 0.3 s.
    """
    candidates = [
        s for s in subjects_of(machine, targets) if probe_refusal(s, shared=shared) is None
    ]
    taken = busy_subjects(candidates, read=read, clock=clock) if candidates else {}
    return choose_representatives(machine, targets, shared=shared, busy=taken)


def estimate_seconds(count: int, workload: Workload) -> float:
    """Return about how many seconds it takes to probe ``count`` endpoints."""
    return count * (workload.seconds + OVERHEAD + INTERVAL * (SAMPLES - 1))


def probe(
    subjects: Sequence[Subject],
    workload: Workload,
    progress: Progress | None = None,
    *,
    read: Reader = activity,
    clock: Clock | None = None,
    margin: float = fio.MARGIN,
    write: bool = False,
    look: bool = False,
    idle: bool = False,
) -> list[ProbeOutcome]:
    """Probe each subject by the workload, in order; one outcome for each.

    ``margin`` is how many seconds fio may take beyond the workload's own. Nothing is written
    unless ``write`` allows it. ``look`` has blocks sampled for zeros (``blank``). ``idle`` says
    that the caller has just seen that the subjects are (``disturbed``).
    """
    found = fio.find()
    if isinstance(found, fio.UnusableOutput):
        return [Skipped(subject.target, found.reason, found.detail) for subject in subjects]
    outcomes: list[ProbeOutcome] = []
    for done, subject in enumerate(subjects):
        if progress:
            progress(done, len(subjects), subject.target)
        # Once more right before its run: the choice may have been minutes ago.
        busy = None if idle else disturbed(subject, read=read, clock=clock)
        outcome = busy or _measured(found, subject, workload, margin, write=write)
        outcomes.append(_looked_at(outcome, subject) if look else outcome)
    return outcomes


def disturbed(
    subject: Subject, *, read: Reader = activity, clock: Clock | None = None
) -> Skipped | None:
    """Return why a probe would disturb the subject or be disturbed, None if it is idle."""
    return busy_subjects([subject], read=read, clock=clock).get(subject.target)


def probe_guarded(
    subject: Subject,
    workload: Workload,
    names: Sequence[str],
    *,
    look: bool = True,
    idle: bool = False,
) -> ProbeOutcome:
    """Do one run; before one that writes, check once more that the disk is empty and named.

    ``look`` and ``idle`` as for ``probe``; nobody looks for zeros where data is written.
    """
    if not workload.writes:
        return probe([subject], workload, look=look, idle=idle)[0]
    # Opened exclusively first, checked then: nothing can be mounted between check and write.
    with exclusively(subject) as taken:
        return (
            taken or guarded(subject, names) or probe([subject], workload, write=True, idle=idle)[0]
        )


def probe_together(
    target: str, subjects: Sequence[Subject], workload: Workload, names: Sequence[str] = ()
) -> TogetherOutcome:
    """Probe all subjects at once; the figures are those of all.

    ``target`` is what they have in common, for an outcome without figures. Before a run that
    writes, each disk is checked once more to be empty and among the ``names`` that were given.
    """
    with ExitStack() as claims:
        for subject in subjects if workload.writes else ():
            # Opened exclusively first, as for a single one.
            taken = claims.enter_context(exclusively(subject))
            if (refused := taken or guarded(subject, names)) is not None:
                return refused
        return _measured_together(target, subjects, workload)


def _measured_together(
    target: str, subjects: Sequence[Subject], workload: Workload
) -> TogetherOutcome:
    found = fio.find()
    if isinstance(found, fio.UnusableOutput):
        return Skipped(target, found.reason, found.detail)
    busy = busy_subjects(subjects)
    nodes = tuple(
        subject.endpoint.device_node for subject in subjects if subject.endpoint.device_node
    )
    if busy or len(nodes) < len(subjects):
        return next(iter(busy.values()), Skipped(target, Skip.NO_NODE))
    sizes = [
        subject.endpoint.size
        for subject in subjects
        if not isinstance(subject.endpoint.size, Missing)
    ]
    first = subjects[0]
    enough = len(first.cpus) >= workload.jobs * len(subjects)
    return fio.measure(
        *(found, target, nodes[0], min(sizes), workload),
        write=workload.writes,
        cpus=names.join_cpus(first.cpus) if enough else None,
        # One CPU that serves all interrupts is a limit, however idle the others are.
        involved=first.serving,
        others=nodes[1:],
    )


def probe_file(target: str, path: str, size: int, workload: Workload) -> ProbeOutcome:
    """Probe a file of ``size`` bytes that hbatune made; the workload may write to it."""
    found = fio.find()
    if isinstance(found, fio.UnusableOutput):
        return Skipped(target, found.reason, found.detail)
    if size < workload.least_bytes:
        return Skipped(target, Skip.TOO_SMALL)
    measured = fio.measure(found, target, path, size, workload, write=workload.writes)
    if isinstance(measured, Failed):
        return measured
    return ProbeResult(target, f"{FILE_ID}{target}", workload, measured, found.version, ())


def fit_time(
    subjects: Sequence[Subject],
    workload: Workload,
    runs: int,
    limit: float,
    *,
    shortest: float = SHORTEST,
) -> TimeBudget:
    """Return the subjects and the workload that fit ``runs`` times into ``limit`` seconds.

    Runs are made as short as need be, but not shorter than ``shortest``; then the last subjects go.
    """
    if not subjects:
        return TimeBudget((), workload, 0.0)
    count = len(subjects)
    fixed = estimate_seconds(1, workload) - workload.runtime
    room = limit / (count * runs) - fixed
    if room < workload.runtime:
        workload = replace(workload, runtime=max(min(shortest, workload.runtime), room))
        # The small term keeps a quotient of 2.9999999 from costing a representative.
        count = min(count, int(limit / (runs * estimate_seconds(1, workload)) + 1e-9))
    return TimeBudget(
        tuple(subjects[:count]),
        workload,
        runs * estimate_seconds(count, workload),
        tuple(subjects[count:]),
    )


def _looked_at(outcome: ProbeOutcome, subject: Subject) -> ProbeOutcome:
    """Add to a result whether the disk holds only zeros."""
    node, size = subject.endpoint.device_node, subject.endpoint.size
    if not isinstance(outcome, ProbeResult) or node is None or not isinstance(size, int):
        return outcome
    return replace(outcome, blank=is_blank(node, size))


def _measured(
    found: fio.Fio, subject: Subject, workload: Workload, margin: float, *, write: bool
) -> ProbeOutcome:
    endpoint = subject.endpoint
    if endpoint.device_node is None:
        return Skipped(subject.target, Skip.NO_NODE)
    if isinstance(endpoint.size, Missing):
        return Skipped(subject.target, Skip.NO_SIZE)
    if endpoint.size < workload.least_bytes:
        return Skipped(subject.target, Skip.TOO_SMALL)
    # With fewer CPUs than jobs, the jobs would wait for each other and not for the disk.
    enough = len(subject.cpus) >= workload.jobs
    cpus = names.join_cpus(subject.cpus) if enough else None
    try:
        measured = fio.measure(
            found,
            subject.target,
            endpoint.device_node,
            endpoint.size,
            workload,
            margin=margin,
            write=write,
            cpus=cpus,
            involved=_involved(subject, pinned=enough),
        )
    except UnsafeNameError as error:
        return Skipped(subject.target, Skip.UNSAFE_NAME, detail=error.name)
    if isinstance(measured, Failed):
        return measured
    return ProbeResult(
        target=subject.target,
        id=endpoint.id,
        workload=workload,
        figures=measured,
        fio_version=found.version,
        served=tuple(
            Served(one.target, one.driver, one.driver_version, one.firmware, one.link)
            for one in subject.adapters
        ),
        cpus=cpus,
        settings=subject.settings,
        temperature=_warmest(subject),
    )


def _warmest(subject: Subject) -> float | None:
    """Return the drive's temperature in °C; a map has that of its warmest path."""
    told = (temperature(path.sysfs) for path in (subject.endpoint, *subject.paths))
    return max((each for each in told if each is not None), default=None)


def _involved(subject: Subject, *, pinned: bool) -> tuple[int, ...]:
    """Return the CPUs that run fio and the interrupts, none where fio is not pinned."""
    return tuple(sorted({*subject.cpus, *subject.serving})) if pinned else ()
