"""Reads fio's JSON and merges its jobs. Pure.

fio's json+ has the latency histogram of every job (``bins``: nanoseconds → I/Os), so percentiles
of several jobs come from one merged histogram: percentiles themselves cannot be averaged.

What is in flight when the time is up is waited for. fio counts that wait in the runtime, and those
I/Os among the latencies, but not in ``total_ios``, ``iops`` and ``bw_bytes`` (seen with fio 3.33):
128 reads of a disk with 400 a second would cost it a tenth. So I/Os are counted by their latencies.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from hbatune.probe.histogram import Histogram, merge
from hbatune.probe.model import Failed, Failure, Figures, Window
from hbatune.probe.windows import Count, documents, windows

QUOTED = 500  # characters of somebody else's words that are kept


class _Latency(Struct, frozen=True):
    mean: float
    count: int = field(name="N")
    bins: dict[int, int] = field(default_factory=dict)


class _Side(Struct, frozen=True):
    runtime: int  # ms
    total_ios: int
    io_bytes: int  # of total_ios
    lat_ns: _Latency

    @property
    def bytes(self) -> float:
        """What all its I/Os moved."""
        return self.io_bytes / self.total_ios * self.lat_ns.count

    @property
    def seconds(self) -> float:
        """How long it took, the wait for what was in flight at the end included."""
        return self.runtime / 1000

    @property
    def iops(self) -> float:
        """I/Os a second."""
        return self.lat_ns.count / self.seconds if self.seconds else 0.0


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


def figures(target: str, output: str) -> Figures | Failed:
    """Return what fio's json+ ``output`` says; warnings before the JSON are passed over.

    The last document is the whole run; those before it are its state at intervals.
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
    return _figures(jobs, counts[-1].histogram, windows(counts))


def _count(jobs: Sequence[_Job]) -> Count:
    sides = [side for job in jobs for side in job.sides]
    return Count(
        seconds=max((side.seconds for side in sides), default=0.0),
        ios=sum(side.lat_ns.count for side in sides),
        bytes=round(sum(side.bytes for side in sides)),
        histogram=merge(Histogram(side.lat_ns.bins) for side in sides),
        user=sum(job.usr_cpu * job.job_runtime for job in jobs) / 100_000,
        system=sum(job.sys_cpu * job.job_runtime for job in jobs) / 100_000,
    )


def _figures(jobs: Sequence[_Job], histogram: Histogram, stretches: tuple[Window, ...]) -> Figures:
    sides = [side for job in jobs for side in job.sides]
    ios = sum(side.lat_ns.count for side in sides)
    mean_ns = sum(side.lat_ns.mean * side.lat_ns.count for side in sides) / ios
    user = sum(job.usr_cpu * job.job_runtime for job in jobs) / 100_000
    system = sum(job.sys_cpu * job.job_runtime for job in jobs) / 100_000
    return Figures(
        iops=sum(side.iops for side in sides),
        bandwidth=sum(side.bytes / side.seconds for side in sides if side.seconds),
        mean_us=mean_ns / 1000,
        p50_us=histogram.percentile(50) / 1000,
        p95_us=histogram.percentile(95) / 1000,
        p99_us=histogram.percentile(99) / 1000,
        p999_us=histogram.percentile(99.9) / 1000,
        cpu_us_per_io=(user + system) * 1_000_000 / ios,
        ios=ios,
        runtime=max(side.seconds for side in sides),
        job_iops=tuple(sum(side.iops for side in job.sides) for job in jobs),
        windows=stretches,
    )
