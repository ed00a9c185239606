"""The values of a probe: workload, subject, figures, histogram, outcome. Frozen and pure.

A histogram counts the I/Os by latency. Percentiles of several runs come from their merged
histogram, since percentiles cannot be averaged. The bins are fio's, under 2 % wide (stat.h:
FIO_IO_U_PLAT_BITS).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from hbatune.facts.model import Adapter, Endpoint, Link, Missing
from hbatune.loader import Count, ErrorNumber, Figure, LongText, Seconds, ShortText
from hbatune.settings.setting import Value
from hbatune.workers import Process


class Histogram(Struct, frozen=True):
    """Latency in nanoseconds → I/Os, in rising order; no bin is empty or negative."""

    counts: dict[int, int] = {}

    def __post_init__(self) -> None:
        rising = {}
        for value, count in sorted(self.counts.items()):
            if value < 0 or count < 0:
                raise ValueError("a latency or a count below zero")
            if count:
                rising[value] = count
        # Sorted, for percentiles in one walk; no empty bins, so equal histograms compare equal.
        force_setattr(self, "counts", rising)

    @property
    def count(self) -> int:
        """The number of I/Os."""
        return sum(self.counts.values())

    def percentile(self, percent: float) -> int:
        """Return the lowest latency in ns that ``percent`` of the I/Os do not exceed.

        Counts as fio does (stat.c: calc_clat_percentiles). Raises ``ValueError`` if empty.
        """
        needed = percent / 100 * self.count
        counted = 0
        for value, count in self.counts.items():
            counted += count
            if counted >= needed:
                return value
        raise ValueError("a percentile of nothing")

    def minus(self, earlier: "Histogram") -> "Histogram":
        """Return the difference to ``earlier``, an older state of the same counters.

        Raises ``ValueError`` if a counter decreased: then it is not the same run.
        """
        difference = Counter(self.counts)
        difference.subtract(earlier.counts)
        return Histogram(dict(difference))


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram.counts)
    return Histogram(dict(total))


RUN_WINDOWS = 6  # parts of a run
MAX_WINDOWS = 64
LITTLE_MARGIN = 0.05  # more in flight than issued by this fraction is impossible
MIN_WINDOW_MS = 250  # shorter ones would measure fio's own bookkeeping
STATUS_DELAY_MS = 20  # the delay of fio's statuses; the last one must not come after the run
FILE_ID = "file:"
"""Prefix of the id of a result that was measured on a file, not a disk; its directory follows."""
ADAPTER_ID = "adapter:"
"""Prefix of the id of a result of all disks of an adapter in parallel; its name follows."""
REPLAY_GRACE_S = 0.1  # seconds after the end of a replayed trace, for I/Os that are late
MIN_RATE_FRACTION = 0.95  # minimum fraction of an open loop's rate to count as achieved
FULL_FRACTION = 0.9  # D3-6: above this fraction of the issued depth, the pipe is full


class Pattern(StrEnum):
    """The order of the addresses and the direction, as fio names them."""

    RANDOM_READ = "randread"
    READ = "read"
    RANDOM_WRITE = "randwrite"
    WRITE = "write"
    RANDOM_MIX = "randrw"  # reads and writes, by the workload's percentage of reads

    @property
    def is_sequential(self) -> bool:
        """Whether the addresses are in order."""
        return self in (Pattern.READ, Pattern.WRITE)


class Zone(Struct, frozen=True, forbid_unknown_fields=True):
    """The percentage of I/Os to a zone of this many bytes; None for the remaining bytes."""

    share: Annotated[int, Meta(ge=0, le=100)]
    bytes: Annotated[int, Meta(ge=4096, multiple_of=4096)] | None = None


class BulkWriter(Struct, frozen=True, forbid_unknown_fields=True):
    """A sequential write job that runs with the readers: bytes per I/O, I/Os kept in flight."""

    block_size: Annotated[int, Meta(ge=4096, le=16 << 20, multiple_of=4096)] = 1 << 20
    depth: Annotated[int, Meta(ge=1, le=1024)] = 32


class TracePart(Struct, frozen=True):
    """The part of a trace that a workload replays: the file, and the I/Os per second.

    All I/Os begin and end at multiples of ``unit`` bytes. ``unwritten`` is the fraction that writes
    and is left out. ``lost`` is the fraction of events that the capture lost.
    """

    path: ShortText
    rate: Annotated[float, Meta(gt=0, le=1e15)]
    unit: Annotated[int, Meta(ge=512)]
    unwritten: Figure
    lost: Figure


class Workload(Struct, frozen=True):
    """The load to put on an endpoint: bytes per I/O, I/Os kept in flight per job, seconds.

    ``reads`` is the percentage of reads in a mix. With ``zones``, reads and writes go to each zone
    by its percentage. ``queue_depth`` is the endpoint's own for the run, or None to leave it
    unchanged.

    With a ``rate`` the loop is open: all jobs together start this many I/Os per second on schedule,
    as long as at most ``depth`` of them wait. Runs with the same ``seed`` use the same addresses in
    the same order; without a seed, each run draws new ones. With a ``writer`` the figures cover
    only the other jobs: the cost of a bulk writer for a reader on the same disk.

    With a ``trace``, the run replays its busiest ``runtime`` seconds. The other fields describe the
    I/Os: their mean size, and the maximum in flight. fio reads their logs during the ``ramp``.

    The defaults are the short form: real workloads queue about 24 deep (D4-11).
    """

    pattern: Pattern = Pattern.RANDOM_READ
    block_size: Annotated[int, Meta(ge=512, le=1 << 30)] = 4096
    depth: Annotated[int, Meta(ge=1, le=1 << 20)] = 24
    jobs: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    ramp: Annotated[float, Meta(ge=0, le=1e6)] = 0.5
    runtime: Annotated[float, Meta(gt=0, le=1e6)] = 2.0
    reads: Annotated[int, Meta(ge=0, le=100)] = 100
    zones: tuple[Zone, ...] = ()
    queue_depth: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    seed: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    rate: Annotated[int, Meta(ge=1, le=1 << 30)] | None = None
    writer: BulkWriter | None = None
    trace: TracePart | None = None

    @property
    def job_rates(self) -> tuple[int, ...]:
        """The I/Os per second of each job, in a mix its reads and its writes; empty without a rate.

        fio interprets zero as no limit, so each value is at least one.
        """
        if self.rate is None:
            return ()
        job_rate = self.rate / self.jobs
        if self.pattern is not Pattern.RANDOM_MIX:
            return (max(1, round(job_rate)),)
        shares = (self.reads, 100 - self.reads)
        return tuple(max(1, round(job_rate * share / 100)) for share in shares)

    @property
    def writes(self) -> bool:
        """Whether it destroys data on the endpoint."""
        return self.writer is not None or self.pattern not in (Pattern.RANDOM_READ, Pattern.READ)

    @property
    def issued(self) -> int:
        """The number of I/Os that all jobs together keep in flight."""
        return self.depth * self.jobs

    @property
    def least_bytes(self) -> int:
        """The minimum size of an endpoint to hold all zones."""
        writer_block = self.writer.block_size if self.writer else 0
        return sum(zone.bytes or 0 for zone in self.zones) + max(self.block_size, writer_block)

    def fits_block(self, size: int | Missing) -> bool:
        """Return whether its I/Os are multiples of a logical block of ``size`` bytes, if known."""
        if isinstance(size, Missing) or size < 1:
            return True
        if self.trace is not None:
            return self.trace.unit % size == 0
        writer_block = self.writer.block_size if self.writer else 0
        return self.block_size % size == 0 and writer_block % size == 0

    @property
    def seconds(self) -> float:
        """The run's length in seconds, warm-up included."""
        return self.ramp + self.runtime

    @property
    def window_ms(self) -> int:
        """The length of one window of the measured time, in milliseconds."""
        length = self.runtime * 1000 / RUN_WINDOWS
        if length < MIN_WINDOW_MS:
            usable = max(MIN_WINDOW_MS, self.runtime * 1000) - STATUS_DELAY_MS
            length = usable / max(1, usable // MIN_WINDOW_MS)
        return int(length)


class InForce(Struct, frozen=True):
    """The value of a setting on a target during the measurement."""

    target: ShortText
    setting: ShortText
    value: Value


class Subject(Struct, frozen=True):
    """An endpoint to probe, with its paths if it is a map and the adapters that serve it.

    ``cpus`` are the CPUs that serve no interrupts of the adapters and are not isolated. The load of
    a probe must not compete with the work that it measures (D0-13). ``serving`` are the CPUs that
    do serve them. ``settings`` are the current values when the facts were gathered.
    """

    endpoint: Endpoint
    paths: tuple[Endpoint, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    cpus: tuple[int, ...] = ()
    serving: tuple[int, ...] = ()
    settings: tuple[InForce, ...] = ()

    @property
    def target(self) -> str:
        """The endpoint's kernel name."""
        return self.endpoint.target

    @property
    def members(self) -> tuple[Endpoint, ...]:
        """The endpoint, and the paths below it."""
        return (self.endpoint, *self.paths)


class Served(Struct, frozen=True):
    """The driver and firmware of an adapter: a change of either makes a result stale (D1-3).

    ``link`` is the state of its PCI Express link, or None if it has no link.
    """

    adapter: ShortText
    driver: ShortText | Missing
    driver_version: ShortText | Missing
    firmware: ShortText | Missing
    link: Link | None = None


class Window(Struct, frozen=True):
    """One part of a run, without its warm-up: its I/Os, their latencies and their CPU time.

    ``histogram`` holds latencies from submission to completion. ``user`` and ``system`` are CPU
    seconds of fio's threads.
    """

    seconds: Seconds
    ios: Count
    histogram: Histogram
    user: Figure
    system: Figure

    @property
    def iops(self) -> float:
        """I/Os per second."""
        return self.ios / self.seconds


class Figures(Struct, frozen=True):
    """The figures of a run: latencies in µs from submission to completion, bandwidth in bytes/s.

    ``cpu_us_per_io`` is the CPU time of fio's threads, system calls included.
    ``interrupt_us_per_io`` is the time of the cores involved in hard and soft interrupts. ``busy``
    is the fraction of their time (0 to 1) in which they were not idle. Both are None if not
    counted. ``runtime`` is in seconds, without the warm-up; ``job_iops`` has one value for each job
    (D3-7). ``windows`` are the parts of the run; the percentiles come from their merged histograms.
    ``written_beside`` is the rate of the workload's bulk writer in bytes/s, which no other field
    includes. ``moved`` I/Os of a replay were beyond the end of the disk.
    """

    iops: Figure
    bandwidth: Figure
    mean_us: Figure
    p50_us: Figure
    p95_us: Figure
    p99_us: Figure
    p999_us: Figure
    cpu_us_per_io: Figure
    ios: Count
    runtime: Seconds
    job_iops: tuple[Figure, ...]
    windows: Annotated[tuple[Window, ...], Meta(max_length=MAX_WINDOWS)] = ()
    interrupt_us_per_io: Figure | None = None
    busy: Figure | None = None
    written_beside: Figure | None = None
    moved: Count = 0

    def list_windows(self) -> tuple[list[float], list[float]]:
        """Return the IOPS, and the p99 in µs, of each window with I/O."""
        windows = [window for window in self.windows if window.ios]
        times = [window.histogram.percentile(99) / 1000 for window in windows]
        return [window.iops for window in windows], times

    @property
    def iops_per_cpu_percent(self) -> float | None:
        """I/Os per second for each percent of one CPU (D1-1), or None if none was counted."""
        return 10_000 / self.cost_us_per_io if self.cost_us_per_io else None

    @property
    def cost_us_per_io(self) -> float:
        """CPU time per I/O in µs, including interrupts if they were counted."""
        return self.cpu_us_per_io + (self.interrupt_us_per_io or 0)

    @property
    def concurrency(self) -> float:
        """The average number of I/Os in flight by Little's law, L = λW (D3-6)."""
        return self.iops * self.mean_us / 1_000_000

    @property
    def ends(self) -> float:
        """The fraction of the run that lies within the longest latencies of its end."""
        return self.p999_us / 1_000_000 / self.runtime


class Doubt(StrEnum):
    """How a probe breaks Little's law or misses its rate: it does not show the requested load."""

    TOO_MANY = "too_many"  # more in flight than issued: rate or latency is wrong
    TOO_FEW = "too_few"  # less in flight than issued: the depth was never reached
    RATE = "rate"  # not Little's law: the requested rate was not achieved, so I/Os started late


def find_doubt(workload: Workload, figures: Figures, *, disks: int = 1) -> Doubt | None:
    """Return why the figures of ``disks`` disks must not be trusted, or None if they are plausible.

    By Little's law (D3-6) a closed loop keeps as many in flight as it issues. 5 % more is
    impossible; with less than 90 % fio did not keep up or could not queue. I/Os in flight at either
    end of a run count fully or not at all, so a run of a few latencies may be further off. An open
    loop has to keep its rate instead, and a replay has to do its I/Os.
    """
    if workload.trace is not None:
        return Doubt.RATE if figures.iops < MIN_RATE_FRACTION * workload.trace.rate else None
    issued = disks * workload.issued
    if figures.concurrency > (1 + LITTLE_MARGIN + figures.ends) * issued:
        return Doubt.TOO_MANY
    if workload.rate is not None:
        return None if figures.iops >= MIN_RATE_FRACTION * disks * workload.rate else Doubt.RATE
    full = figures.concurrency >= (FULL_FRACTION - figures.ends) * issued
    return None if full else Doubt.TOO_FEW


class ProbeResult(Struct, frozen=True, tag="result"):
    """A probe with figures: its target, workload, and the driver and firmware at the time.

    ``cpus`` are the CPUs that fio was pinned to, or None if too few are free of the adapter's
    interrupts. ``blank`` is whether all sampled blocks are zeros, so the disk may have answered
    without reading its medium; None without samples. ``settings`` are the current values.
    ``temperature`` is the drive's in °C right after the run, or None if it has no sensor.
    """

    target: ShortText
    id: ShortText
    workload: Workload
    figures: Figures
    fio_version: ShortText
    served: tuple[Served, ...]
    cpus: LongText | None = None
    blank: bool | None = None
    settings: tuple[InForce, ...] = ()
    temperature: Figure | None = None

    @property
    def doubt(self) -> Doubt | None:
        """Why the figures must not be trusted, or None if they are plausible."""
        return find_doubt(self.workload, self.figures)


class Load(Struct, frozen=True):
    """The load of a device: fraction of time with I/O in flight (0 to 1), and maximum in flight."""

    utilisation: float
    in_flight: int


class Skip(StrEnum):
    """The reason why an endpoint was not probed."""

    NO_FIO = "no_fio"
    OLD_FIO = "old_fio"  # detail: the version found
    BROKEN_FIO = "broken_fio"  # it reports no version; detail: its message or the kernel's
    NOT_ASKED = "not_asked"  # fc and iscsi share their array; detail: the protocol
    EXCLUDED = "excluded"  # in [site]
    UNCLASSIFIED = "unclassified"
    ZONED = "zoned"
    NOT_RUNNING = "not_running"  # detail: its state as the kernel names it
    UNREADABLE = "unreadable"  # its state, size or counters could not be read
    NO_SIZE = "no_size"
    TOO_SMALL = "too_small"  # for the zones of the workload
    BLOCK_SIZE = "block_size"  # no multiple of its logical block; detail: the workload's sizes
    NO_NODE = "no_node"
    UNSAFE_NAME = "unsafe_name"  # detail: the name
    FIXED_DEPTH = "fixed_depth"  # the LUN's own cannot be set; detail: why
    BUSY = "busy"  # load: how busy
    NOT_NAMED = "not_named"  # would be written to, but was not named
    MOUNTED = "mounted"  # detail: where
    SWAP = "swap"
    HELD = "held"  # by other devices; detail: their names
    MULTIPATH = "multipath"  # detail: the map
    PARTITIONED = "partitioned"
    SIGNED = "signed"  # detail: its content according to its first blocks
    UNKNOWN_CONTENT = "unknown_content"  # detail: why it could not be read
    TAKEN = "taken"  # another process has it open exclusively (O_EXCL)
    NOT_COUNTED = "not_counted"  # iostats is off, so whether it is busy is unknown
    NO_TIME = "no_time"  # other representatives used the available time
    CONFLICT = "conflict"  # another tool changed its depth during the runs; detail: the value
    NOT_RESTORED = "not_restored"  # its queue depth; detail: the outcome of the write
    UNSWITCHABLE = "unswitchable"  # the changed settings cannot be switched under load


class Skipped(Struct, frozen=True, tag="skipped"):
    """An endpoint that was not probed, and why."""

    target: ShortText
    reason: Skip
    detail: LongText | None = None
    load: Load | None = None


class Failure(StrEnum):
    """The way in which a probe failed."""

    LAUNCH = "launch"  # fio could not be started, or the device is missing; errno
    IO = "io"  # fio reported an error; errno
    EXIT = "exit"  # fio ended with a status; text
    GARBAGE = "garbage"  # fio's output cannot be parsed; text
    NO_IO = "no_io"  # not one I/O was completed in time
    TIMEOUT = "timeout"  # passed its deadline and was killed
    STUCK = "stuck"  # passed its deadline, and SIGKILL did not end it either


class Failed(Struct, frozen=True, tag="failed"):
    """A probe without figures, with fio's errno, exit status or output if available.

    ``process`` is set if fio may still be waiting in the kernel.
    """

    target: ShortText
    reason: Failure
    errno: ErrorNumber | None = None
    status: int | None = None
    text: LongText | None = None
    process: Process | None = None


ProbeOutcome = ProbeResult | Skipped | Failed
Prepare = Callable[[], Skipped | None]
"""Is called while fio starts, before it gets its job; returns a reason not to run the job."""


class ProbePair(Struct, frozen=True):
    """The outcomes before and after a change; the first explains why there is no second."""

    before: ProbeOutcome
    after: ProbeOutcome | None
