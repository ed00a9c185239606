"""Probes endpoints one at a time, so that no probe disturbs another."""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from hbatune.facts import cpulist
from hbatune.facts.meters import activity, temperature
from hbatune.facts.model import Machine, Missing
from hbatune.probe import fio
from hbatune.probe.blank import blank
from hbatune.probe.busy import INTERVAL, SAMPLES, Clock, Reader, occupied
from hbatune.probe.model import (
    Failed,
    Outcome,
    Result,
    Served,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.select import Selection, refusal, representatives, touched
from hbatune.render.escape import UnsafeNameError

OVERHEAD = 1.0  # seconds in which fio starts and sums up

Progress = Callable[[int, int, str], None]  # how many are done, of how many, and which is next


def choose(
    machine: Machine,
    targets: Collection[str],
    *,
    shared: bool = False,
    read: Reader = activity,
    clock: Clock | None = None,
) -> Selection:
    """Choose one endpoint for each adapter, medium and model, an idle one if there is one.

    ``targets`` and ``shared`` are those of ``representatives``. Takes 0.3 s.
    """
    candidates = [s for s in touched(machine, targets) if refusal(s, shared=shared) is None]
    taken = occupied(candidates, read=read, clock=clock) if candidates else {}
    return representatives(machine, targets, shared=shared, busy=taken)


def estimate(count: int, workload: Workload) -> float:
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
) -> list[Outcome]:
    """Probe each subject by the workload, in order; one outcome for each.

    ``margin`` is how many seconds fio may take beyond the workload's own. Nothing is written
    unless ``write`` allows it. ``look`` whether there is anything but zeros on it (``blank``).
    """
    found = fio.find()
    if isinstance(found, fio.Unusable):
        return [Skipped(subject.target, found.reason, found.detail) for subject in subjects]
    outcomes: list[Outcome] = []
    for done, subject in enumerate(subjects):
        if progress:
            progress(done, len(subjects), subject.target)
        disturbed = occupied([subject], read=read, clock=clock).get(subject.target)
        outcome = disturbed or _measured(found, subject, workload, margin, write=write)
        outcomes.append(_looked_at(outcome, subject) if look else outcome)
    return outcomes


def on_file(target: str, path: str, size: int, workload: Workload) -> Outcome:
    """Probe a file of our own, of ``size`` bytes, by the workload, which may write to it."""
    found = fio.find()
    if isinstance(found, fio.Unusable):
        return Skipped(target, found.reason, found.detail)
    if size < workload.least_bytes:
        return Skipped(target, Skip.TOO_SMALL)
    measured = fio.measure(found, target, path, size, workload, write=workload.writes)
    if isinstance(measured, Failed):
        return measured
    return Result(target, f"file:{target}", workload, measured, found.version, ())


def declined(subjects: Sequence[Subject]) -> list[Outcome]:
    """Return the outcomes of not probing because the user does not want it."""
    return [Skipped(subject.target, Skip.DECLINED) for subject in subjects]


def _looked_at(outcome: Outcome, subject: Subject) -> Outcome:
    """Say of a result whether the disk holds nothing but zeros."""
    node, size = subject.endpoint.device_node, subject.endpoint.size
    if not isinstance(outcome, Result) or node is None or not isinstance(size, int):
        return outcome
    return replace(outcome, blank=blank(node, size))


def _measured(
    found: fio.Fio, subject: Subject, workload: Workload, margin: float, *, write: bool
) -> Outcome:
    endpoint = subject.endpoint
    if endpoint.device_node is None:
        return Skipped(subject.target, Skip.NO_NODE)
    if isinstance(endpoint.size, Missing):
        return Skipped(subject.target, Skip.NO_SIZE)
    if endpoint.size < workload.least_bytes:
        return Skipped(subject.target, Skip.TOO_SMALL)
    enough = len(subject.cpus) >= workload.jobs
    cpus = cpulist.join(subject.cpus) if enough else None
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
    return Result(
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
    """Return °C of the drive; that of a map is told by its paths."""
    told = (temperature(each.sysfs) for each in (subject.endpoint, *subject.paths))
    return max((each for each in told if each is not None), default=None)


def _involved(subject: Subject, *, pinned: bool) -> tuple[int, ...]:
    """Return the CPUs that fio and the interrupts run on, none where it may be any."""
    return tuple(sorted({*subject.cpus, *subject.serving})) if pinned else ()
