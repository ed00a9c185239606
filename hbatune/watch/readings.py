"""Watched endpoints and adapters with their limits, and readings between two samples. Pure."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.sampler import DiskSample, LinkSample, Sample
from hbatune.watch.latency import Interval, make_histogram


class WatchedDisk(Struct, frozen=True, gc=False):
    """An endpoint to watch.

    ``objective_ms`` is the p99 of the profile, ``knee`` the depth beyond which more I/Os only wait.
    ``depth`` is the profile's queue_depth, or None if the driver does not lower it on a full queue.
    ``by_busy_time`` is whether the time with I/O in flight measures its load. ``commands`` is the
    number of commands that may be in flight, if known. ``paths`` are the ids of a map's paths.
    """

    id: str
    target: str
    adapter: str | None
    objective_ms: float | None = None
    knee: int | None = None
    depth: int | None = None
    by_busy_time: bool = False
    commands: int | None = None
    paths: tuple[str, ...] = ()


class WatchedAdapter(Struct, frozen=True):
    """An adapter to watch, with the CPUs that serve its data vectors."""

    target: str
    cpus: tuple[int, ...]


class Subjects(Struct, frozen=True):
    """All endpoints and adapters that are watched."""

    disks: tuple[WatchedDisk, ...] = ()
    servers: tuple[WatchedAdapter, ...] = ()


_WRAP = 1 << 32  # the times of /proc/diskstats are printed as unsigned int (block/genhd.c)
_NO_IOS = make_histogram((), ())
_MANY_IOS = 1000
"""I/Os in a sample that have a p99.9."""


class Measure(StrEnum):
    """The type of a latency value."""

    SAMPLED = "sampled"  # a p99 from a sample
    MEAN = "mean"  # from the kernel's sums, which are not enough to compute a p99
    LEAST = "least"  # nothing completed: the I/O in flight has waited at least this long


class Reading(Struct, frozen=True, gc=False):
    """The activity of an endpoint over ``seconds``.

    Latencies are in milliseconds, or None without I/O. ``mean_ms`` is the kernel's, measured from
    the request. The percentiles are of samples, measured from the entry into the block layer;
    ``p999_ms`` is None with fewer than 1,000 I/Os. With I/O in flight and none completed,
    ``stalled_ms`` is the minimum time that it has waited.
    ``in_flight`` is the average, ``utilisation`` the fraction of time with any I/O in flight.
    ``depth`` is the current queue_depth, ``lowered`` whether the kernel lowered it between the
    samples. ``counted`` are the error counters, ``risen`` their rises. ``objective_ms`` and
    ``knee`` are the limits to compare with.
    """

    id: str
    target: str
    adapter: str | None
    seconds: float
    iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    mean_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    stalled_ms: float | None
    in_flight: float
    utilisation: float
    depth: int | None
    lowered: bool
    counted: dict[str, int]
    risen: dict[str, int]
    objective_ms: float | None
    knee: int | None
    p99_sampled: bool = False

    @property
    def latency(self) -> tuple[Measure, float] | None:
        """The best available value for its tail latency in milliseconds, or None without I/O."""
        if self.stalled_ms is not None:
            return Measure.LEAST, self.stalled_ms
        # A sample misses I/O that takes longer than the sample. The mean includes it.
        if self.p99_ms is not None and self.p99_ms >= (self.mean_ms or 0):
            return Measure.SAMPLED, self.p99_ms
        return None if self.mean_ms is None else (Measure.MEAN, self.mean_ms)

    @property
    def goal_ratio(self) -> float | None:
        """Its latency divided by its objective, or None without I/O or objective."""
        if not self.objective_ms or (latency := self.latency) is None:
            return None
        return latency[1] / self.objective_ms

    @property
    def is_idle(self) -> bool:
        """Whether it had no I/O, neither completed nor in flight."""
        return not self.in_flight and self.latency is None

    @property
    def bytes_per_s(self) -> float:
        """The bytes read and written per second."""
        return self.read_bytes_per_s + self.write_bytes_per_s


class AdapterReading(Struct, frozen=True):
    """The activity of an adapter: its link, its bus errors, and its busiest CPU.

    ``cpu`` is the busiest of the CPUs that serve its data vectors, and ``cpu_busy`` the fraction of
    time in which it was busy. Both are None if no such CPU is known.
    """

    target: str
    link: LinkSample | None
    cpu: int | None
    cpu_busy: float | None
    counted: dict[str, int]
    risen: dict[str, int]


def read_disk(
    disk: WatchedDisk, earlier: Sample, later: Sample, intervals: Sequence[Interval] = ()
) -> Reading | None:
    """Return a disk's reading between two samples, or None if it appeared in between.

    ``intervals`` are those between the samples (``latency.select_intervals``).
    """
    first, last = earlier.disks.get(disk.id), later.disks.get(disk.id)
    if first is None or last is None or _is_replaced(first, last):
        return None
    seconds = later.at - earlier.at
    moved = _Moved()
    moved.add(first, last)
    # Not every kernel counts the I/O of an NVMe head; then the counters of its paths are added.
    if disk.paths and not moved.ios and not last.in_flight:
        for path in disk.paths:
            before, after = earlier.disks.get(path), later.disks.get(path)
            if before and after and not _is_replaced(before, after):
                moved.add(before, after)
    took = _NO_IOS
    # An earlier sample describes the present only if there is I/O.
    if intervals and (moved.ios or intervals[-1].ended > earlier.at):
        devices = [later.disks[id].device for id in (disk.id, *disk.paths) if id in later.disks]
        took = make_histogram(intervals, devices)
    # In flight in both samples, none completed: the I/O waits for at least the entire interval.
    stalled = not moved.ios and not took.counts and moved.is_waiting
    lowered = False
    if disk.depth is not None and first.depth is not None and last.depth is not None:
        lowered = last.depth < first.depth
    return Reading(
        # With twenty names, CPython 3.11 keeps up to 2,000 tuples of them (Objects/tupleobject.c:
        # maybe_freelist_push, but not maybe_freelist_pop, accepts the size).
        *(disk.id, disk.target, disk.adapter, seconds),
        iops=moved.ios / seconds,
        read_bytes_per_s=moved.read_bytes / seconds,
        write_bytes_per_s=moved.written_bytes / seconds,
        mean_ms=moved.waited_ms / moved.ios if moved.ios else None,
        p99_ms=took.percentile(99) / 1e6 if took.counts else None,
        p999_ms=took.percentile(99.9) / 1e6 if took.count >= _MANY_IOS else None,
        stalled_ms=seconds * 1000 if stalled else None,
        # Little's law (D3-6): the average in flight is the total waiting time per second.
        in_flight=moved.waited_ms / 1000 / seconds if moved.ios else float(moved.in_flight),
        utilisation=min(1.0, moved.busy_ms / 1000 / seconds),
        depth=last.depth,
        lowered=lowered,
        counted=later.counters.get(disk.id, {}),
        risen=_compute_rises(disk.id, earlier, later),
        objective_ms=disk.objective_ms,
        knee=disk.knee,
        p99_sampled=bool(took.counts),
    )


class _Moved(Struct, gc=False):
    """The differences of a device's counters between two samples, or the sums of its paths."""

    ios: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    waited_ms: int = 0
    busy_ms: int = 0  # of the busiest path
    in_flight: int = 0
    is_waiting: bool = False

    def add(self, first: DiskSample, last: DiskSample) -> None:
        """Add the counters of one block device."""
        self.ios += last.reads + last.writes - first.reads - first.writes
        self.read_bytes += last.read_bytes - first.read_bytes
        self.written_bytes += last.written_bytes - first.written_bytes
        # The times wrap after 49 days of waiting time, which a busy disk reaches in a few days.
        self.waited_ms += (last.read_ms - first.read_ms) % _WRAP
        self.waited_ms += (last.write_ms - first.write_ms) % _WRAP
        self.busy_ms = max(self.busy_ms, (last.busy_ms - first.busy_ms) % _WRAP)
        self.in_flight += last.in_flight
        self.is_waiting = self.is_waiting or (first.in_flight > 0 and last.in_flight > 0)


def _is_replaced(first: DiskSample, last: DiskSample) -> bool:
    """Return whether the device was replaced or re-added in between, and counts from 0 again."""
    return (
        first.device != last.device
        or last.reads < first.reads
        or last.writes < first.writes
        or last.read_bytes < first.read_bytes
        or last.written_bytes < first.written_bytes
    )


def read_adapter(server: WatchedAdapter, earlier: Sample, later: Sample) -> AdapterReading:
    """Return the adapter's reading between two samples."""
    busy: dict[int, float] = {}
    for number in server.cpus:
        first, last = earlier.cpus.get(number), later.cpus.get(number)
        if first and last and last.total > first.total:
            # The idle time of a CPU can decrease a little.
            share = (last.busy - first.busy) / (last.total - first.total)
            busy[number] = min(1.0, max(0.0, share))
    cpu = max(busy, key=lambda number: busy[number], default=None)
    return AdapterReading(
        target=server.target,
        link=later.links.get(server.target),
        cpu=cpu,
        cpu_busy=None if cpu is None else busy[cpu],
        counted=later.counters.get(server.target, {}),
        risen=_compute_rises(server.target, earlier, later),
    )


def _compute_rises(target: str, earlier: Sample, later: Sample) -> dict[str, int]:
    """Return the rises of counters; a counter that fell belongs to a device that was re-added."""
    before, after = earlier.counters.get(target), later.counters.get(target)
    if before is None or after is None or before == after:
        return {}
    return {
        name: count - before[name]
        for name, count in after.items()
        if name in before and count > before[name]
    }
