"""Sweeps of one parameter, and the interference of a writer.

Sweeps: runs that differ in one thing only, among fresh results or the history's records. Pure.

The history does not mark sweeps; they are recognised. The runs of a sweep are records of one disk
and one command, shortly after each other, whose workloads differ only in depth or block size, which
rise, or in the share of reads, which falls.

What a bulk writer on the same disk costs a reader, by scheduler, from the records. Pure.

A lone reader says nothing about a scheduler; a reader beside a writer does (I-schedulers).
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.probe.history import Record
from hbatune.probe.knee import Knee, Point, find_knee, sweep_points
from hbatune.probe.result import Pattern, ProbeResult, Workload

MIN_SWEEP_VALUES = 3
"""The fewest values that make a sweep."""
MOST_RUNS = 64
"""The most runs of one sweep: of a longer one, which no command makes, the rest is another."""
ENOUGH = 0.95
"""The share of the most IOPS from which on more jobs are not worth it."""
PAUSE = 900.0
"""Seconds of idle time between two runs, beyond which the second begins another sweep."""

_RANDOM, _IN_ORDER = (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE), (Pattern.READ, Pattern.WRITE)


class Swept(StrEnum):
    """The dimension in which the runs differ."""

    DEPTH = "depth"
    BLOCK = "block"
    MIX = "mix"

    def of(self, workload: Workload) -> int:
        """Return the value: I/Os in flight, bytes, or the percentage of reads."""
        if self is Swept.DEPTH:
            return workload.issued
        return workload.block_size if self is Swept.BLOCK else workload.reads

    def follows(self, before: int, after: int) -> bool:
        """Whether a sweep may go from one value to the other."""
        return before > after if self is Swept.MIX else before < after

    def without(self, workload: Workload) -> Workload:
        """Return the workload with this dimension neutralised, to compare the rest."""
        if self is Swept.DEPTH:
            return replace(workload, depth=1)
        if self is Swept.BLOCK:
            return replace(workload, block_size=512)
        return replace(workload, reads=100)


class Sweep(Struct, frozen=True):
    """The runs of one sweep by rising value, and the records that they were taken from.

    ``kept`` is the knee recorded when it was measured: the windows that it needs are not stored.
    """

    swept: Swept
    results: tuple[ProbeResult, ...]
    records: tuple[Record, ...]
    kept: Knee | None = None

    @property
    def time(self) -> float:
        """When its last run was made, in seconds since the epoch."""
        return max(record.time for record in self.records)

    @property
    def workload(self) -> Workload:
        """The workload of the first run."""
        return self.results[0].workload

    @property
    def knee(self) -> Knee | None:
        """The knee of a depth sweep: the recorded one, or else one without a range."""
        if self.swept is not Swept.DEPTH:
            return None
        return (
            self.kept
            or find_knee(sweep_points(self.results))
            or find_knee(list(map(_whole, self.results)))
        )

    @property
    def ranged(self) -> bool:
        """Whether the knee has a confidence interval."""
        return self.kept is not None or all(result.figures.windows for result in self.results)


class Corners(Struct, frozen=True):
    """The sweeps of depth that one command made on one disk, of random and of sequential I/Os.

    ``random`` ones count by their IOPS, ``sequential`` ones by their throughput (D4-8). Reads come
    first in both.
    """

    random: tuple[Sweep, ...]
    sequential: tuple[Sweep, ...]

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """All of them."""
        return (*self.random, *self.sequential)


class DepthSweep(Struct, frozen=True):
    """Results of one target that differ in nothing but depth, in rising order, and their knee.

    ``queue_depth`` is the LUN's own where the runs have set it.
    """

    target: str
    queue_depth: int | None
    results: tuple[ProbeResult, ...]
    knee: Knee | None

    @property
    def name(self) -> str:
        """The name to show."""
        return self.target if self.queue_depth is None else f"{self.target} at {self.queue_depth}"


def depth_sweeps(results: Iterable[ProbeResult]) -> list[DepthSweep]:
    """Return the sweeps of depth among the results."""
    alike: dict[tuple[str, Workload], list[ProbeResult]] = {}
    for result in results:
        alike.setdefault((result.target, Swept.DEPTH.without(result.workload)), []).append(result)
    found = []
    for (target, workload), swept in alike.items():
        if len(swept) >= MIN_SWEEP_VALUES:
            swept.sort(key=lambda each: each.workload.depth)
            sweep = DepthSweep(
                target, workload.queue_depth, tuple(swept), find_knee(sweep_points(swept))
            )
            found.append(sweep)
    return found


class JobsAdvice(Struct, frozen=True):
    """How many jobs a disk is worth, and how deep each of them (D0-14).

    They are the fewest ``jobs``, and the least ``depth`` of each, with ``ENOUGH`` of the most IOPS
    that any number of jobs up to ``most`` gave.
    """

    jobs: int
    depth: int
    most: int


def advise_jobs(found: Iterable[DepthSweep | Sweep]) -> JobsAdvice | None:
    """Return the advice of sweeps of depth that differ in their jobs, None where none do.

    Runs that must not be trusted do not count.
    """
    trusted = [result for sweep in found for result in sweep.results if result.doubt is None]
    tried = {each.workload.jobs for each in trusted}
    if len(tried) < 2:
        return None
    top = max(each.figures.iops for each in trusted)
    enough = [each.workload for each in trusted if each.figures.iops >= ENOUGH * top]
    least = min(enough, key=lambda asked: (asked.jobs, asked.depth))
    return JobsAdvice(least.jobs, least.depth, max(tried))


def by_jobs(found: Iterable[Sweep]) -> list[tuple[Sweep, ...]]:
    """Return the sweeps of depth on one disk that differ in their jobs, by rising number of jobs.

    Those of a single number of jobs are left out.
    """
    alike: dict[object, list[Sweep]] = {}
    for sweep in found:
        if sweep.swept is Swept.DEPTH:
            load = replace(Swept.DEPTH.without(sweep.workload), jobs=1)
            alike.setdefault((sweep.records[0].id, load), []).append(sweep)
    return [
        tuple(sorted(each, key=lambda sweep: sweep.workload.jobs))
        for each in alike.values()
        if len(each) > 1
    ]


def find_sweeps(records: Iterable[Record]) -> list[Sweep]:
    """Return the newest sweep of each disk, workload and command, the newest first.

    So that the reads of the four corners do not take the place of a sweep of depth.
    """
    ordered = sorted(records, key=lambda record: record.time)
    all_ = [
        sweep
        for swept in Swept
        for runs in _runs(ordered, swept)
        if (sweep := _sweep(swept, runs)) is not None
    ]
    # In order of time, so that the newest sweep of each disk and workload stays.
    found = {
        (sweep.swept, *_made_by(sweep), sweep.swept.without(sweep.workload)): sweep
        for sweep in _with_knees(all_, ordered)
    }
    return sorted(found.values(), key=lambda sweep: -sweep.time)


def find_corners(found: Iterable[Sweep]) -> list[Corners]:
    """Return the sweeps of depth that belong together, the newest first."""
    asked: dict[object, list[Sweep]] = {}
    for sweep in found:
        if sweep.swept is Swept.DEPTH and sweep.workload.queue_depth is None:
            asked.setdefault(_asked(sweep.records[0]), []).append(sweep)
    corners = (Corners(_of(alike, *_RANDOM), _of(alike, *_IN_ORDER)) for alike in asked.values())
    whole = (corner for corner in corners if corner.random and corner.sequential)
    return sorted(whole, key=lambda each: -each.sweeps[0].time)


def _of(found: Sequence[Sweep], *patterns: Pattern) -> tuple[Sweep, ...]:
    """Return the sweeps of these patterns, in the order of the patterns."""
    return tuple(each for wanted in patterns for each in found if each.workload.pattern is wanted)


def _made_by(sweep: Sweep) -> tuple[str, str]:
    return sweep.records[0].id, sweep.records[0].command


def lone_results(records: Iterable[Record], found: Sequence[Sweep]) -> list[Record]:
    """Return each disk's newest record with a result, preferably one outside of sweeps.

    In the order of the disks' first appearance.
    """
    in_sweep = {id(record) for sweep in found for record in sweep.records}
    # The last one of each disk wins in the dict below, so that single runs come last.
    ordered = sorted(records, key=lambda record: (id(record) not in in_sweep, record.time))
    return list({each.id: each for each in ordered if each.result is not None}.values())


def _runs(ordered: Iterable[Record], swept: Swept) -> Iterator[list[Record]]:
    """Yield groups of records that may form one sweep, each in order of time."""
    open_: dict[str, list[Record]] = {}
    for record in ordered:
        # Records of knees and of proofs lie between the runs of a sweep, and do not end it.
        if record.result is None or record.proof is not None:
            continue
        runs = open_.setdefault(record.id, [])
        if runs and (len(runs) == MOST_RUNS or not _goes_on(runs[-1], record, swept)):
            yield runs
            runs = open_[record.id] = []
        runs.append(record)
    yield from open_.values()


def _goes_on(last: Record, next_: Record, swept: Swept) -> bool:
    """Whether a run continues the sweep of the one before it."""
    if last.result is None or next_.result is None:
        return False
    before, after = last.result.workload, next_.result.workload
    alike = (last.command, last.boot_id, swept.without(before)) == (
        next_.command,
        next_.boot_id,
        swept.without(after),
    )
    soon = next_.time - last.time <= after.seconds + PAUSE
    return alike and soon and swept.follows(swept.of(before), swept.of(after))


def _sweep(swept: Swept, runs: Sequence[Record]) -> Sweep | None:
    results = [record.result for record in runs if record.result is not None]
    rising = sorted(results, key=lambda result: swept.of(result.workload))
    return Sweep(swept, tuple(rising), tuple(runs)) if len(rising) >= MIN_SWEEP_VALUES else None


def _with_knees(found: Sequence[Sweep], ordered: Iterable[Record]) -> Iterator[Sweep]:
    """Yield the sweeps with their recorded knees: a command records one per sweep, in order."""
    knees: dict[object, list[Record]] = {}
    for record in ordered:
        if record.result is None and record.proof is None and record.together is None:
            knees.setdefault(_asked(record), []).append(record)
    sweeps: dict[object, list[Sweep]] = {}
    for sweep in found:
        if sweep.swept is Swept.DEPTH:
            sweeps.setdefault(_asked(sweep.records[0]), []).append(sweep)
        else:
            yield sweep
    for asked, alike in sweeps.items():
        kept = knees.get(asked, [])
        # Knees are matched by position, so that all have to fit, or none is used.
        same = [each.queue_depth for each in kept] == [s.workload.queue_depth for s in alike]
        for number, sweep in enumerate(alike):
            knee = kept[number].knee if same else None
            yield replace(sweep, kept=knee if _fits(knee, sweep) else None)


def _fits(knee: Knee | None, sweep: Sweep) -> bool:
    """Whether a knee is one of the sweep's own depths; in an edited history it need not be."""
    return knee is not None and any(
        knee.depth == result.workload.issued for result in sweep.results
    )


def _asked(record: Record) -> tuple[object, ...]:
    return record.id, record.boot_id, record.command, record.time


def _whole(result: ProbeResult) -> Point:
    """Return the point of a whole run, for results without windows."""
    return Point(result.workload.issued, (result.figures.iops,), (result.figures.p99_us,))


_SCHEDULER = "scheduler"


class Interference(Struct, frozen=True):
    """A reader ``alone`` and ``beside`` a bulk writer, with the scheduler in force.

    ``scheduler`` is None where it is not known; ``record`` is that of the run beside the writer.
    """

    alone: ProbeResult
    beside: ProbeResult
    scheduler: str | None
    record: Record


def find_interference(records: Iterable[Record]) -> list[Interference]:
    """Return the newest pair of each disk, scheduler and load, the newest first.

    Both runs of a pair are of one command and one time, and differ in the writer alone.
    """
    lone: dict[object, ProbeResult] = {}
    found: dict[object, Interference] = {}
    # Of runs at one time the one without the writer first, which the other is paired with.
    for record in sorted(records, key=lambda each: (each.time, _writes_beside(each))):
        result = record.result
        if result is None or record.proof is not None:
            continue
        load = replace(result.workload, writer=None)
        pair = (record.id, record.boot_id, record.command, record.time, load)
        if result.workload.writer is None:
            lone[pair] = result
        elif (alone := lone.get(pair)) is not None:
            scheduler = _scheduler(result)
            key = (record.id, scheduler, result.workload)
            # Removed first, since a dict keeps the place of an old key: the newest go last.
            found.pop(key, None)
            found[key] = Interference(alone, result, scheduler, record)
    return list(reversed(found.values()))


def _writes_beside(record: Record) -> bool:
    return record.result is not None and record.result.workload.writer is not None


def _scheduler(result: ProbeResult) -> str | None:
    own = (setting for setting in result.settings if setting.setting == _SCHEDULER)
    return next((str(each.value) for each in own if each.target == result.target), None)
