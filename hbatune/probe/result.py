"""The values of a probe: workload, subject, figures, histogram, outcome.

A latency histogram: how many I/Os took how long. Pure.

Percentiles and means of several runs come from their merged histogram, since percentiles
themselves cannot be averaged. The bins are fio's, under 2 % wide (stat.h: FIO_IO_U_PLAT_BITS).

The values of a probe: workload, subject, figures, outcome. Frozen; ``cli`` makes the text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from hbatune.facts.model import Adapter, Endpoint, Link, Missing
from hbatune.loader import Count, Figure, Seconds
from hbatune.settings.setting import Value
from hbatune.workers import Process


class Histogram(Struct, frozen=True):
    """Latency in nanoseconds → I/Os, in rising order; no bin is empty or negative."""

    counts: dict[int, int] = {}

    def __post_init__(self) -> None:
        if any(value < 0 or count < 0 for value, count in self.counts.items()):
            raise ValueError("a latency or a count below zero")
        rising = {value: self.counts[value] for value in sorted(self.counts) if self.counts[value]}
        # Sorted, for percentiles in one walk; without empty bins, so that equals compare as such.
        force_setattr(self, "counts", rising)

    @property
    def count(self) -> int:
        """The number of I/Os in it."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """The mean in nanoseconds, as exact as the bins. Raises ``ValueError`` if empty."""
        if not self.counts:
            raise ValueError("the mean of nothing")
        return sum(value * count for value, count in self.counts.items()) / self.count

    def percentile(self, percent: float) -> int:
        """Return the lowest latency in ns that ``percent`` of the I/Os do not exceed.

        The same counting as fio's (stat.c: calc_clat_percentiles). Raises ``ValueError`` if empty.
        """
        return percentile(self.counts, percent)

    def minus(self, earlier: "Histogram") -> "Histogram":
        """Return the difference to ``earlier``, an older state of the same counters.

        Raises ``ValueError`` where a counter went back: then it is not the same run.
        """
        left = Counter(self.counts)
        left.subtract(earlier.counts)
        return Histogram(dict(left))


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram.counts)
    return Histogram(dict(total))


def percentile(rising: Mapping[int, int], percent: float) -> int:
    """Return the lowest value of a rising histogram that ``percent`` of the counts do not exceed.

    Raises ``ValueError`` if empty.
    """
    needed = percent / 100 * sum(rising.values())
    seen = 0
    for value, count in rising.items():
        seen += count
        if seen >= needed:
            return value
    raise ValueError("a percentile of nothing")


WINDOWS = 4  # parts that a run is cut into
MOST_WINDOWS = 64
LITTLE_MARGIN = 0.05  # more in flight than issued by this share cannot be
LEAST_WINDOW_MS = 250  # shorter ones would measure fio's own bookkeeping
FILE_ID = "file:"
"""Begins the id of a result that was measured on a file: it is no disk's, its folder follows."""
ADAPTER_ID = "adapter:"
"""Begins the id of a result of all disks of an adapter at once: the adapter's name follows."""
HELD = 0.95
"""Share of an open loop's rate from which on it counts as held."""
FULL = 0.9  # D3-6: above this share of the depth issued, the pipe is full


class Pattern(StrEnum):
    """The order of the addresses and the direction, in fio's words."""

    RANDOM_READ = "randread"
    READ = "read"
    RANDOM_WRITE = "randwrite"
    WRITE = "write"
    RANDOM_MIX = "randrw"  # reads and writes, by the workload's share of reads


class Zone(Struct, frozen=True, forbid_unknown_fields=True):
    """The percentage of I/Os that go to the next so many bytes; None for all the rest."""

    share: Annotated[int, Meta(ge=0, le=100)]
    bytes: Annotated[int, Meta(ge=4096, multiple_of=4096)] | None = None


class BulkWriter(Struct, frozen=True, forbid_unknown_fields=True):
    """A job that writes in order beside the readers: bytes per I/O, I/Os kept in flight."""

    block_size: Annotated[int, Meta(ge=4096, le=16 << 20, multiple_of=4096)] = 1 << 20
    depth: Annotated[int, Meta(ge=1, le=1024)] = 32


class Workload(Struct, frozen=True):
    """The load to put on an endpoint: bytes per I/O, I/Os kept in flight per job, seconds.

    ``reads`` is the percentage of reads in a mix. Where there are ``zones``, I/Os go to each of
    them by its share, reads as writes. ``queue_depth`` is the value to give the endpoint's own for
    the run, None to leave it. With a ``rate`` the loop is open: so many I/Os per second of all jobs
    together are begun when they are due, as long as no more than ``depth`` wait. Runs with the same
    ``seed`` go to the same addresses in the same order; without one they are drawn anew. Beside a
    ``writer`` the figures are those of the rest alone: what a bulk writer on the same disk costs a
    reader. The defaults are the short form: real workloads queue about 24 deep (D4-11).
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

    @property
    def job_rates(self) -> tuple[int, ...]:
        """The I/Os per second of each job, in a mix its reads and its writes; empty without a rate.

        fio takes zero for no limit, so that each is one at least.
        """
        if self.rate is None:
            return ()
        own = self.rate / self.jobs
        if self.pattern is not Pattern.RANDOM_MIX:
            return (max(1, round(own)),)
        return tuple(max(1, round(own * share / 100)) for share in (self.reads, 100 - self.reads))

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
        """The size that an endpoint needs to hold all zones."""
        beside = self.writer.block_size if self.writer else 0
        return sum(zone.bytes or 0 for zone in self.zones) + max(self.block_size, beside)

    @property
    def seconds(self) -> float:
        """The run's length in seconds, warm-up included."""
        return self.ramp + self.runtime

    @property
    def ramp_ms(self) -> int:
        """The warm-up in milliseconds."""
        return round(self.ramp * 1000)

    @property
    def runtime_ms(self) -> int:
        """The measured time in milliseconds."""
        return max(1, round(self.runtime * 1000))

    @property
    def window_ms(self) -> int:
        """The length of one window of the measured time, in milliseconds."""
        return max(LEAST_WINDOW_MS, round(self.runtime * 1000 / WINDOWS))


class InForce(Struct, frozen=True):
    """The value that a setting had on a target while it was measured."""

    target: str
    setting: str
    value: Value


class Subject(Struct, frozen=True):
    """An endpoint to probe, with its paths where it is a map and the adapters that serve it.

    ``cpus`` are the CPUs that serve none of the adapters' interrupts and are not isolated: the
    load of a probe must not compete with the work that it measures (D0-13). ``serving`` are the
    CPUs that do serve them. ``settings`` are the values in force when the facts were gathered.
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


class Served(Struct, frozen=True):
    """The driver and firmware of an adapter: a change of either makes a result stale (D1-3).

    ``link`` is its PCI Express link as it ran, None where it has none.
    """

    adapter: str
    driver: str | Missing
    driver_version: str | Missing
    firmware: str | Missing
    link: Link | None = None


class Window(Struct, frozen=True):
    """One part of a run, without its warm-up: its I/Os, their latencies and their CPU time.

    ``histogram`` holds latencies from submission to completion. ``user`` and ``system`` are CPU
    seconds of fio's own threads.
    """

    seconds: Seconds
    ios: Count
    bytes: Count
    histogram: Histogram
    user: Figure
    system: Figure

    @property
    def iops(self) -> float:
        """I/Os per second."""
        return self.ios / self.seconds

    @property
    def mean_us(self) -> float:
        """The mean latency in µs. Raises ``ValueError`` where no I/O was completed."""
        return self.histogram.mean / 1000

    def percentile_us(self, percent: float) -> float:
        """Return a latency in µs. Raises ``ValueError`` where no I/O was completed."""
        return self.histogram.percentile(percent) / 1000


class Figures(Struct, frozen=True):
    """The figures of a run: latencies in µs from submission to completion, bandwidth in bytes/s.

    ``cpu_us_per_io`` is the CPU time of fio's own threads, system calls included.
    ``interrupt_us_per_io`` is the time that the cores involved spent in hard and soft interrupts,
    and ``busy`` the share of their time (0 to 1) in which they were not idle; both are None where
    they were not counted. ``runtime`` is in seconds, without the warm-up; ``job_iops`` has one
    value for each job (D3-7). ``windows`` are the parts of the run; the percentiles are those of
    their merged histograms. ``written_beside`` are the bytes/s of the workload's bulk writer, of
    which nothing else here tells.
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
    windows: Annotated[tuple[Window, ...], Meta(max_length=MOST_WINDOWS)] = ()
    interrupt_us_per_io: Figure | None = None
    busy: Figure | None = None
    written_beside: Figure | None = None

    @property
    def iops_per_cpu_percent(self) -> float | None:
        """I/Os per second for each percent of one CPU (D1-1), None where none was counted."""
        return 10_000 / self.cost_us_per_io if self.cost_us_per_io else None

    @property
    def cost_us_per_io(self) -> float:
        """CPU time per I/O in µs, that of interrupts included where it was counted."""
        return self.cpu_us_per_io + (self.interrupt_us_per_io or 0)

    @property
    def concurrency(self) -> float:
        """Little's law, L = λW: how many I/Os were in flight on average (D3-6)."""
        return self.iops * self.mean_us / 1_000_000

    @property
    def ends(self) -> float:
        """The share of the run that lies within the longest latencies of its end."""
        return self.p999_us / 1_000_000 / self.runtime


class Doubt(StrEnum):
    """How a probe breaks Little's law or misses its rate: it does not show what was asked for."""

    TOO_MANY = "too_many"  # more in flight than issued: rate or latency is wrong
    TOO_FEW = "too_few"  # less in flight than issued: the depth was never reached
    RATE = "rate"  # not Little's law: the rate asked for was not held, so I/Os were begun late


def find_doubt(workload: Workload, figures: Figures, *, disks: int = 1) -> Doubt | None:
    """Return why the figures of so many disks must not be trusted, None where nothing says so.

    By Little's law (D3-6) a closed loop keeps as many in flight as it issues: 5 % more is
    impossible, and under 90 % fio did not keep up or could not queue. I/Os in flight at either
    end of a run count fully or not at all, so that a run of a few latencies may be further off.
    An open loop has to keep its rate instead.
    """
    issued = disks * workload.issued
    if figures.concurrency > (1 + LITTLE_MARGIN + figures.ends) * issued:
        return Doubt.TOO_MANY
    if workload.rate is not None:
        return None if figures.iops >= HELD * disks * workload.rate else Doubt.RATE
    full = figures.concurrency >= (FULL - figures.ends) * issued
    return None if full else Doubt.TOO_FEW


class ProbeResult(Struct, frozen=True, tag="result"):
    """A probe with figures: its target, workload, and the driver and firmware at the time.

    ``cpus`` are the CPUs that fio was kept on, None where too few are free of the adapter's
    interrupts. ``blank`` says whether all blocks sampled are zeros, so that the disk may have
    answered without reading its medium; None where no blocks were sampled. ``settings`` are the
    values in force, ``temperature`` the drive's in °C right after the run, None where it has none.
    """

    target: str
    id: str
    workload: Workload
    figures: Figures
    fio_version: str
    served: tuple[Served, ...]
    cpus: str | None = None
    blank: bool | None = None
    settings: tuple[InForce, ...] = ()
    temperature: Figure | None = None

    @property
    def doubt(self) -> Doubt | None:
        """Why the figures must not be trusted, None where nothing speaks against them."""
        return find_doubt(self.workload, self.figures)


class Load(Struct, frozen=True):
    """How busy a device was: share of time with I/O in flight (0 to 1), and most in flight."""

    utilisation: float
    in_flight: int


class Skip(StrEnum):
    """Why an endpoint was not probed."""

    NO_FIO = "no_fio"
    OLD_FIO = "old_fio"  # detail: the version found
    BROKEN_FIO = "broken_fio"  # it tells no version; detail: what it or the kernel says
    NOT_ASKED = "not_asked"  # fc and iscsi share their array; detail: the protocol
    EXCLUDED = "excluded"  # in [site]
    UNCLASSIFIED = "unclassified"
    ZONED = "zoned"
    NOT_RUNNING = "not_running"  # detail: the kernel's word for its state
    UNREADABLE = "unreadable"  # its state, size or counters could not be read
    NO_SIZE = "no_size"
    TOO_SMALL = "too_small"  # for the zones of the workload
    NO_NODE = "no_node"
    UNSAFE_NAME = "unsafe_name"  # detail: the name
    FIXED_DEPTH = "fixed_depth"  # the LUN's own cannot be set so; detail: why
    BUSY = "busy"  # load: how busy
    NOT_NAMED = "not_named"  # to be written to, and not named itself
    MOUNTED = "mounted"  # detail: where
    SWAP = "swap"
    HELD = "held"  # detail: by which devices
    MULTIPATH = "multipath"  # detail: the map
    PARTITIONED = "partitioned"
    SIGNED = "signed"  # detail: what its first blocks say that it holds
    UNKNOWN_CONTENT = "unknown_content"  # detail: why it could not be read
    TAKEN = "taken"  # another process has it open exclusively (O_EXCL)
    NOT_COUNTED = "not_counted"  # iostats is off, so whether it is busy is unknown
    NO_TIME = "no_time"  # other representatives took what there is
    CONFLICT = "conflict"  # others changed its queue depth during the runs; detail: the value
    NOT_RESTORED = "not_restored"  # its queue depth; detail: the outcome of the write
    UNSWITCHABLE = "unswitchable"  # what was changed cannot go back and forth under load


class Skipped(Struct, frozen=True, tag="skipped"):
    """An endpoint that was not probed, and why."""

    target: str
    reason: Skip
    detail: str | None = None
    load: Load | None = None


class Failure(StrEnum):
    """How a probe failed."""

    LAUNCH = "launch"  # fio could not be started, or the device is gone; errno
    IO = "io"  # fio reported an error; errno
    EXIT = "exit"  # fio ended with a status; text
    GARBAGE = "garbage"  # fio's output cannot be parsed; text
    NO_IO = "no_io"  # not one I/O was completed in time
    TIMEOUT = "timeout"  # passed its deadline and was killed
    STUCK = "stuck"  # passed its deadline, and SIGKILL did not end it either


class Failed(Struct, frozen=True, tag="failed"):
    """A probe without figures: fio's errno, exit status or output, as far as there are any.

    ``process`` is set where fio may still be waiting in the kernel.
    """

    target: str
    reason: Failure
    errno: int | None = None
    status: int | None = None
    text: str | None = None
    process: Process | None = None


ProbeOutcome = ProbeResult | Skipped | Failed


class ProbePair(Struct, frozen=True):
    """The outcome before a change, which tells why there is none after it."""

    before: ProbeOutcome
    after: ProbeOutcome | None
