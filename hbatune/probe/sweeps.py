"""Find sweeps of one parameter, and the interference of a writer, in results and records. Pure.

The runs of a sweep differ in one parameter. The history does not mark sweeps, so they are
recognised: records of one disk and one command, in quick succession. Their workloads differ only in
depth or block size, which rise, or in the percentage of reads, which falls.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.names import group_items
from hbatune.probe.history import Record
from hbatune.probe.knee import Knee, find_knee, list_sweep_points
from hbatune.probe.result import Pattern, ProbeResult, Workload

MIN_SWEEP_VALUES = 3  # the minimum number of values in a sweep
MAX_SWEEP_RUNS = 64
"""Maximum number of runs in a sweep; no command makes more, and the remainder is another."""
SUFFICIENT_FRACTION = 0.95  # the fraction of the maximum IOPS at which more jobs are not worthwhile
MAX_PAUSE_S = 900.0  # maximum seconds of idle time between two runs of a sweep

_CORNERS = (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE, Pattern.READ, Pattern.WRITE)


class SweptParameter(StrEnum):
    """The parameter in which the runs differ."""

    DEPTH = "depth"
    BLOCK = "block"
    MIX = "mix"

    def of(self, workload: Workload) -> int:
        """Return the value: I/Os in flight, bytes, or the percentage of reads."""
        if self is SweptParameter.DEPTH:
            return workload.issued
        return workload.block_size if self is SweptParameter.BLOCK else workload.reads

    def follows(self, before: int, after: int) -> bool:
        """Return whether a sweep may go from one value to the other."""
        return before > after if self is SweptParameter.MIX else before < after

    def without(self, workload: Workload) -> Workload:
        """Return the workload with this parameter neutralised, to compare the others."""
        if self is SweptParameter.DEPTH:
            return replace(workload, depth=1)
        if self is SweptParameter.BLOCK:
            return replace(workload, block_size=512)
        return replace(workload, reads=100)


class Sweep(Struct, frozen=True):
    """The runs of one sweep by rising value, and the records that contain them.

    New runs have no records yet. ``knee`` is the knee of a depth sweep, if it has one. ``ranged``
    is whether the knee has a confidence interval.
    """

    swept: SweptParameter
    results: tuple[ProbeResult, ...]
    records: tuple[Record, ...] = ()
    knee: Knee | None = None
    ranged: bool = True

    @property
    def target(self) -> str:
        """The kernel name of its disk."""
        return self.results[0].target

    @property
    def id(self) -> str:
        """The id of its disk: the records have its current one."""
        return self.records[0].id if self.records else self.results[0].id

    @property
    def name(self) -> str:
        """The target with the depth of the LUN, if the runs have set it."""
        depth = self.workload.queue_depth
        return self.target if depth is None else f"{self.target} at {depth}"

    @property
    def time(self) -> float:
        """The time of its last run, in seconds since the epoch."""
        return max(record.time for record in self.records)

    @property
    def workload(self) -> Workload:
        """The workload of the first run."""
        return self.results[0].workload


def list_depth_sweeps(results: Iterable[ProbeResult]) -> list[Sweep]:
    """Return the depth sweeps among new results."""
    sweeps = []
    without_depth = SweptParameter.DEPTH.without
    by_load = group_items(results, lambda result: (result.target, without_depth(result.workload)))
    for members in by_load.values():
        if len(members) >= MIN_SWEEP_VALUES:
            members.sort(key=lambda result: result.workload.depth)
            knee = find_knee(list_sweep_points(members))
            sweeps.append(Sweep(SweptParameter.DEPTH, tuple(members), knee=knee))
    return sweeps


class JobsAdvice(Struct, frozen=True):
    """The recommended number of jobs for a disk, and the depth of each (D0-14).

    It is the smallest ``jobs``, with the smallest ``depth`` of each, that reaches
    ``SUFFICIENT_FRACTION`` of the maximum IOPS with up to ``most`` jobs.
    """

    jobs: int
    depth: int
    most: int


def advise_jobs(sweeps: Iterable[Sweep]) -> JobsAdvice | None:
    """Return the advice of trusted runs in depth sweeps that differ in their jobs, or None."""
    trusted = [result for sweep in sweeps for result in sweep.results if result.doubt is None]
    tried = {result.workload.jobs for result in trusted}
    if len(tried) < 2:
        return None
    top = max(result.figures.iops for result in trusted)
    enough = [r.workload for r in trusted if r.figures.iops >= SUFFICIENT_FRACTION * top]
    smallest = min(enough, key=lambda workload: (workload.jobs, workload.depth))
    return JobsAdvice(smallest.jobs, smallest.depth, max(tried))


def group_by_jobs(sweeps: Iterable[Sweep]) -> list[tuple[Sweep, ...]]:
    """Return each disk's depth sweeps that differ only in their jobs, by rising jobs."""
    depths = [sweep for sweep in sweeps if sweep.swept is SweptParameter.DEPTH]
    groups = group_items(depths, lambda sweep: (sweep.id, replace(sweep.workload, depth=1, jobs=1)))
    for group in groups.values():
        group.sort(key=lambda sweep: sweep.workload.jobs)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def find_sweeps(records: Iterable[Record]) -> list[Sweep]:
    """Return the latest sweep of each disk, workload and command, the latest first.

    The command counts, so the reads of the four corners do not replace a depth sweep.
    """
    ordered = sorted(records, key=lambda record: record.time)
    sweeps = []
    for swept in SweptParameter:
        for runs in _split_runs(ordered, swept):
            results = [record.result for record in runs if record.result is not None]
            rising = sorted(results, key=lambda result: swept.of(result.workload))
            if len(rising) >= MIN_SWEEP_VALUES:
                sweeps.append(Sweep(swept, tuple(rising), tuple(runs)))
    latest: dict[object, Sweep] = {}
    # In order of time, so the latest sweep of each disk and workload stays.
    for sweep in _attach_knees(sweeps, ordered):
        first, load = sweep.records[0], sweep.swept.without(sweep.workload)
        latest[sweep.swept, first.id, first.command, load] = sweep
    return sorted(latest.values(), key=lambda sweep: -sweep.time)


def find_corners(sweeps: Iterable[Sweep]) -> list[tuple[Sweep, ...]]:
    """Return the depth sweeps of random and sequential I/Os that belong together, the latest first.

    They are of one command on one disk. Random ones come first, and reads before writes.
    """
    unset = [sweep for sweep in sweeps if sweep.workload.queue_depth is None]
    corners = []
    for group in _group_by_command(unset).values():
        members = [sweep for sweep in group if sweep.workload.pattern in _CORNERS]
        members.sort(key=lambda sweep: _CORNERS.index(sweep.workload.pattern))
        if len({sweep.workload.pattern.is_sequential for sweep in members}) == 2:
            corners.append(tuple(members))
    return sorted(corners, key=lambda members: -members[0].time)


def _group_by_command(sweeps: Iterable[Sweep]) -> dict[object, list[Sweep]]:
    """Return the recorded depth sweeps, by the key of their command."""
    depths = [sweep for sweep in sweeps if sweep.swept is SweptParameter.DEPTH]
    return group_items(depths, lambda sweep: _make_command_key(sweep.records[0]))


def list_lone_results(records: Iterable[Record], sweeps: Sequence[Sweep]) -> list[Record]:
    """Return each disk's latest result record, best outside of sweeps, in order of appearance."""
    in_sweep: set[int] = set()
    for sweep in sweeps:
        in_sweep.update(map(id, sweep.records))
    latest = {}
    # The last one of each disk stays, so single runs come last.
    for record in sorted(records, key=lambda record: (id(record) not in in_sweep, record.time)):
        if record.result is not None:
            latest[record.id] = record
    return list(latest.values())


def _split_runs(ordered: Iterable[Record], swept: SweptParameter) -> Iterator[list[Record]]:
    """Yield groups of records that may form one sweep, each in order of time."""
    open_: dict[str, list[Record]] = {}
    for record in ordered:
        # Records of knees and proofs are between the runs of a sweep and do not end it.
        if record.result is None or record.proof is not None:
            continue
        runs = open_.setdefault(record.id, [])
        if runs and (len(runs) == MAX_SWEEP_RUNS or not _continues_sweep(runs[-1], record, swept)):
            yield runs
            runs = open_[record.id] = []
        runs.append(record)
    yield from open_.values()


def _continues_sweep(last: Record, next_: Record, swept: SweptParameter) -> bool:
    if last.result is None or next_.result is None:
        return False
    before, after = last.result.workload, next_.result.workload
    same_origin = last.command == next_.command and last.boot_id == next_.boot_id
    same_load = swept.without(before) == swept.without(after)
    soon = next_.time - last.time <= after.seconds + MAX_PAUSE_S
    follows = swept.follows(swept.of(before), swept.of(after))
    return same_origin and same_load and soon and follows


def _attach_knees(sweeps: Sequence[Sweep], ordered: Iterable[Record]) -> Iterator[Sweep]:
    """Yield the sweeps with their knees: a command records one per sweep, in order.

    A sweep without a recorded knee gets one without a range: the windows are not stored.
    """
    bare = [r for r in ordered if r.result is None and r.proof is None and r.together is None]
    knees = group_items(bare, _make_command_key)
    yield from (sweep for sweep in sweeps if sweep.swept is not SweptParameter.DEPTH)
    for key, group in _group_by_command(sweeps).items():
        recorded = knees.get(key, [])
        # Knees are matched by position, so all have to fit, or none is used.
        recorded_depths = [record.queue_depth for record in recorded]
        same = recorded_depths == [sweep.workload.queue_depth for sweep in group]
        for number, sweep in enumerate(group):
            knee = recorded[number].knee if same else None
            # A knee is one of the sweep's own depths, unless the history was edited.
            if knee and knee.depth not in [result.workload.issued for result in sweep.results]:
                knee = None
            usable = knee or find_knee(list_sweep_points(sweep.results))
            yield replace(sweep, knee=usable, ranged=knee is not None)


def _make_command_key(record: Record) -> object:
    return record.id, record.boot_id, record.command, record.time


class Interference(Struct, frozen=True):
    """A reader ``alone`` and with a bulk writer (``beside``), and the current scheduler.

    A reader without a writer shows no effect of the scheduler (I-schedulers).
    ``scheduler`` is None if unknown; ``record`` is the record of the run with the writer.
    """

    alone: ProbeResult
    beside: ProbeResult
    scheduler: str | None
    record: Record


def find_interference(records: Iterable[Record]) -> list[Interference]:
    """Return the latest pair of each disk, scheduler and load, the latest first.

    Both runs of a pair have the same command and time, and differ only in the writer.
    """
    lone: dict[object, ProbeResult] = {}
    pairs: dict[object, Interference] = {}
    runs = []
    for record in records:
        if record.result is not None and record.proof is None:
            runs.append((record, record.result))
    # At equal times, the run without the writer comes first, and the other is paired with it.
    runs.sort(key=lambda run: (run[0].time, run[1].workload.writer is not None))
    for record, result in runs:
        load = replace(result.workload, writer=None)
        pair = (record.id, record.boot_id, record.command, record.time, load)
        if result.workload.writer is None:
            lone[pair] = result
        elif (reader := lone.get(pair)) is not None:
            values = {(entry.target, entry.setting): entry.value for entry in result.settings}
            current = values.get((result.target, "scheduler"))
            scheduler = None if current is None else str(current)
            key = (record.id, scheduler, result.workload)
            # Removed first, since a dict keeps the position of an old key: the latest go last.
            pairs.pop(key, None)
            pairs[key] = Interference(reader, result, scheduler, record)
    return list(reversed(pairs.values()))
