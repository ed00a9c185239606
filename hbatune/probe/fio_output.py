"""Parses fio's JSON: merges its jobs and cuts a run into windows. Pure.

fio's json+ has the latency histogram of every job (``bins``: nanoseconds → I/Os), so percentiles
of several jobs come from one merged histogram: percentiles themselves cannot be averaged.

With ``--status-interval`` fio writes one JSON document after another, each counting from the end
of the warm-up. Those written during the warm-up count the warm-up's I/Os, hold no latencies, and
the counters start again after it (seen with fio 3.33; stat.c: reset_io_stats).

When the time is up, fio waits for the I/Os in flight. ``runtime`` then includes that wait and the
histogram includes those latencies, which are too long, but ``total_ios`` does not count these I/Os
(seen with fio 3.33). With 128 reads in flight on a disk that does 400 a second, the rate would come
out a tenth too low. So the figures are those of the last status within the time, not of the end.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.probe.histogram import Histogram, merge_histograms
from hbatune.probe.model import Failed, Failure, Figures, Window

BESIDE = "beside"
"""The name of the job of a bulk writer, which is not among the figures."""
QUOTED = 500  # characters of another program's output that are kept
SHORTEST = 0.5
"""Share of the longest window: a shorter one, such as the last, is joined to the one before."""
LATE = 1.02
"""Share of the time asked for: a later status includes the wait for the last I/Os in flight."""


class Count(Struct, frozen=True):
    """The counters of a run at one moment, all jobs together; seconds since warm-up."""

    seconds: float
    by_job: tuple[int, ...]
    bytes: int
    histogram: Histogram
    mean_ns: float
    user: float
    system: float

    @property
    def ios(self) -> int:
        """The I/Os of all jobs."""
        return sum(self.by_job)


def parse_figures(target: str, output: str, asked: float) -> Figures | Failed:
    """Return the figures in fio's json+ ``output``; warnings before the JSON are skipped.

    The last document is the whole run; those before it are its state at intervals. ``asked`` is
    the measured time that the job file asked for, in seconds.
    """
    try:
        seen = [msgspec.convert(one, _Output, strict=False).jobs for one in json_documents(output)]
        if not seen:
            raise ValueError(output.strip() or "fio wrote nothing")
        counts = [_count(_measured(jobs)) for jobs in seen]
    except ValueError as error:  # not JSON at all, or not fio's
        return Failed(target, Failure.GARBAGE, text=str(error)[:QUOTED])
    jobs = seen[-1]
    for job in jobs:
        if job.error:
            return Failed(target, Failure.IO, errno=job.error)
    if not any(side.lat_ns.count for job in _measured(jobs) for side in job.sides):
        return Failed(target, Failure.NO_IO)
    if not counts[-1].histogram.counts:
        return Failed(target, Failure.GARBAGE, text="no latency histogram")
    if counts[-1].seconds <= 0:
        return Failed(target, Failure.GARBAGE, text="I/Os that took no time")
    return replace(_figures(counts_in_time(counts, asked)), written_beside=_written_beside(jobs))


def json_documents(output: str) -> Iterator[object]:
    """Yield the JSON objects in fio's output; text between them is skipped.

    A truncated or broken object ends the search: its end cannot be found.
    """
    decoder = json.JSONDecoder()
    start = re.compile(r"^\{", re.MULTILINE)
    found = start.search(output)
    while found:
        try:
            document, end = decoder.raw_decode(output, found.start())
        except (ValueError, RecursionError):
            return
        yield document
        found = start.search(output, end)


def counts_in_time(counts: Sequence[Count], asked: float) -> list[Count]:
    """Return the counts of a run that lie within the ``asked`` seconds after its warm-up.

    The last one, of the whole run, is used only where the others cover less than half of the time.
    It may have more latencies than I/Os: fio waited for those when the time was up.
    """
    *told, whole = _after_warm_up(counts)
    found = [count for count in told if count.seconds <= LATE * asked]
    if not found or found[-1].seconds < SHORTEST * asked:
        waited = whole.histogram.count > whole.ios
        # With fio's own runtime, which includes the wait, the rate would be too low.
        found.append(replace(whole, seconds=min(whole.seconds, asked)) if waited else whole)
    return found


def cut_windows(counts: Sequence[Count]) -> tuple[Window, ...]:
    """Return the windows between the counts of one run; their sum is the last count."""
    return tuple(_between(first, second) for first, second in pairwise(_marks(counts)))


class _Latency(Struct, frozen=True):
    mean: float
    count: int = field(name="N")
    bins: dict[int, int] = field(default_factory=dict)


class _Side(Struct, frozen=True):
    runtime: int  # ms
    total_ios: int
    io_bytes: int
    lat_ns: _Latency


class _Job(Struct, frozen=True):
    error: int
    job_runtime: int  # ms
    usr_cpu: float  # percent of job_runtime
    sys_cpu: float
    read: _Side
    write: _Side | None = None  # some versions leave out a direction without I/O
    jobname: str = ""

    @property
    def sides(self) -> tuple[_Side, ...]:
        """The directions in which it did I/O."""
        both = (self.read, *((self.write,) if self.write else ()))
        return tuple(side for side in both if side.total_ios)


class _Output(Struct, frozen=True):
    jobs: tuple[_Job, ...]


def _measured(jobs: Sequence[_Job]) -> list[_Job]:
    return [job for job in jobs if job.jobname != BESIDE]


def _written_beside(jobs: Sequence[_Job]) -> float | None:
    """Return the bytes/s of the bulk writer, None where there is none."""
    sides = [job.write for job in jobs if job.jobname == BESIDE and job.write is not None]
    return sum(side.io_bytes * 1000 / side.runtime for side in sides if side.runtime) or None


def _count(jobs: Sequence[_Job]) -> Count:
    sides = [side for job in jobs for side in job.sides]
    timed = sum(side.lat_ns.count for side in sides)
    waited = sum(side.lat_ns.mean * side.lat_ns.count for side in sides)
    return Count(
        seconds=max((side.runtime for side in sides), default=0) / 1000,
        by_job=tuple(sum(side.total_ios for side in job.sides) for job in jobs),
        bytes=sum(side.io_bytes for side in sides),
        histogram=merge_histograms(Histogram(side.lat_ns.bins) for side in sides),
        mean_ns=waited / timed if timed else 0.0,
        user=sum(job.usr_cpu * job.job_runtime for job in jobs) / 100_000,
        system=sum(job.sys_cpu * job.job_runtime for job in jobs) / 100_000,
    )


def _figures(counts: Sequence[Count]) -> Figures:
    run = counts[-1]
    return Figures(
        iops=run.ios / run.seconds,
        bandwidth=run.bytes / run.seconds,
        mean_us=run.mean_ns / 1000,
        p50_us=run.histogram.percentile(50) / 1000,
        p95_us=run.histogram.percentile(95) / 1000,
        p99_us=run.histogram.percentile(99) / 1000,
        p999_us=run.histogram.percentile(99.9) / 1000,
        cpu_us_per_io=(run.user + run.system) * 1_000_000 / run.ios,
        ios=run.ios,
        runtime=run.seconds,
        job_iops=tuple(ios / run.seconds for ios in run.by_job),
        windows=cut_windows(counts),
    )


def _after_warm_up(counts: Iterable[Count]) -> list[Count]:
    kept: list[Count] = []
    for count in counts:
        # Counters that went back were reset after the warm-up: everything before belongs to it.
        if kept and not _follows(kept[-1], count):
            kept = []
        if count.histogram.counts:
            kept.append(count)
    return kept


def _follows(earlier: Count, later: Count) -> bool:
    return later.seconds >= earlier.seconds and all(
        later.histogram.counts.get(value, 0) >= count
        for value, count in earlier.histogram.counts.items()
    )


def _marks(counts: Sequence[Count]) -> list[Count]:
    """Return the counts at which to cut, from zero to the last one."""
    if not counts:
        return []
    ends = [0.0, *(count.seconds for count in counts)]
    longest = max(second - first for first, second in pairwise(ends))
    marks = [Count(0.0, (), 0, Histogram(), 0.0, 0.0, 0.0)]
    for count in counts:
        if count.seconds - marks[-1].seconds >= SHORTEST * longest:
            marks.append(count)
    if len(marks) > 1:
        # The rest at the end joins the last window, so that no I/O is lost between two windows.
        marks[-1] = counts[-1]
    return marks


def _between(first: Count, second: Count) -> Window:
    return Window(
        seconds=second.seconds - first.seconds,
        ios=max(0, second.ios - first.ios),
        bytes=max(0, second.bytes - first.bytes),
        histogram=second.histogram.minus(first.histogram),
        user=max(0.0, second.user - first.user),
        system=max(0.0, second.system - first.system),
    )
