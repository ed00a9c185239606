"""Reads fio's JSON and merges its jobs. Pure.

fio's json+ has the latency histogram of every job (``bins``: nanoseconds → I/Os), so percentiles
of several jobs come from one merged histogram: percentiles themselves cannot be averaged.

What is in flight when the time is up is waited for, and read only once the last of it is there:
``runtime`` has the wait, the histogram those latencies, too long, and ``total_ios`` none of these
I/Os (seen with fio 3.33). 128 reads of a disk that does 400 a second would cost it a tenth of its
rate. So the figures are those of the last status within the time, not those of the end.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from hbatune.probe.histogram import Histogram, merge
from hbatune.probe.model import Failed, Failure, Figures
from hbatune.probe.windows import Count, documents, in_time, windows

QUOTED = 500  # characters of somebody else's words that are kept


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
    write: _Side | None = None  # other versions leave out what was not done

    @property
    def sides(self) -> tuple[_Side, ...]:
        """What it did, reading or writing."""
        both = (self.read, *((self.write,) if self.write else ()))
        return tuple(side for side in both if side.total_ios)


class _Output(Struct, frozen=True):
    jobs: tuple[_Job, ...]


def figures(target: str, output: str, asked: float) -> Figures | Failed:
    """Return what fio's json+ ``output`` says; warnings before the JSON are passed over.

    The last document is the whole run; those before it are its state at intervals. ``asked`` are
    the seconds that it was to measure.
    """
    try:
        seen = [msgspec.convert(one, _Output, strict=False).jobs for one in documents(output)]
        if not seen:
            raise ValueError(output.strip() or "fio wrote nothing")
        counts = [_count(jobs) for jobs in seen]
    except ValueError as error:  # not JSON at all, or not fio's
        return Failed(target, Failure.GARBAGE, text=str(error)[:QUOTED])
    jobs = seen[-1]
    for job in jobs:
        if job.error:
            return Failed(target, Failure.IO, errno=job.error)
    if not any(side.lat_ns.count for job in jobs for side in job.sides):
        return Failed(target, Failure.NO_IO)
    if not counts[-1].histogram.counts:
        return Failed(target, Failure.GARBAGE, text="no latency histogram")
    if counts[-1].seconds <= 0:
        return Failed(target, Failure.GARBAGE, text="I/Os that took no time")
    return _figures(in_time(counts, asked))


def _count(jobs: Sequence[_Job]) -> Count:
    sides = [side for job in jobs for side in job.sides]
    timed = sum(side.lat_ns.count for side in sides)
    waited = sum(side.lat_ns.mean * side.lat_ns.count for side in sides)
    return Count(
        seconds=max((side.runtime for side in sides), default=0) / 1000,
        by_job=tuple(sum(side.total_ios for side in job.sides) for job in jobs),
        bytes=sum(side.io_bytes for side in sides),
        histogram=merge(Histogram(side.lat_ns.bins) for side in sides),
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
        windows=windows(counts),
    )
