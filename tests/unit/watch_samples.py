"""Samples and subjects for tests of the watch: a SAS SSD and its HBA unless told otherwise."""

from collections.abc import Callable
from typing import Any

import msgspec

from hbatune.facts.sampler import CpuSample, DiskSample, LinkSample, Sample
from hbatune.policy.config import WatchConfig as Config
from hbatune.watch.readings import Reading, Subjects, WatchedAdapter, WatchedDisk

ID = "wwn-0x5000@0000:01:00.0/0:0:0:0"
HBA = "0000:01:00.0"


def disk(**overrides: Any) -> WatchedDisk:
    """Return the subject ``sda``: p99 within 2 ms, knee at 64, depth 32."""
    subject = WatchedDisk(
        id=ID,
        target="sda",
        adapter=HBA,
        objective_ms=2.0,
        knee=64,
        depth=32,
        by_busy_time=True,
        paths=(),
    )
    return msgspec.structs.replace(subject, **overrides)


def subjects(*disks: WatchedDisk) -> Subjects:
    """Return these disks (sda where none) behind one HBA, which CPUs 0 and 1 serve."""
    return Subjects(disks or (disk(),), (WatchedAdapter(HBA, (0, 1)),))


def counted(**overrides: Any) -> DiskSample:
    """Return the counters of a disk that has done nothing yet."""
    counters = DiskSample("8:0", 0, 0, 0, 0, 0, 0, 0, 0, 32)
    return msgspec.structs.replace(counters, **overrides)


def sample(at: float, disk_sample: DiskSample | None = None, **overrides: Any) -> Sample:
    """Return a sample with one disk, at ``at`` by both clocks."""
    watch_sample = Sample(
        at=at,
        time=1e9 + at,
        disks={ID: disk_sample or counted()},
        links={HBA: LinkSample(8.0, 8)},
        cpus={0: CpuSample(100 * int(at), 0), 1: CpuSample(100 * int(at), 0)},
        counters={},
    )
    return msgspec.structs.replace(watch_sample, **overrides)


def working(at: float, *, ms: float, ios: int = 1000, **overrides: Any) -> DiskSample:
    """Return what a disk has counted at ``at`` that reads so many I/Os a second of so many ms."""
    total = int(at * ios)
    return counted(
        reads=total,
        read_bytes=total * 4096,
        read_ms=int(total * ms),
        **{"busy_ms": int(at * 500), **overrides},
    )


def reading(target: str, **overrides: Any) -> Reading:
    """Return the reading of an idle disk, with its name as its id and a goal of 2 ms."""
    idle = Reading(
        id=target,
        target=target,
        adapter=HBA,
        seconds=2.0,
        iops=0.0,
        read_bytes_per_s=0.0,
        write_bytes_per_s=0.0,
        mean_ms=None,
        p99_ms=None,
        p999_ms=None,
        stalled_ms=None,
        in_flight=0.0,
        utilisation=0.0,
        depth=32,
        lowered=False,
        counted={},
        risen={},
        objective_ms=2.0,
        knee=None,
    )
    return msgspec.structs.replace(idle, **overrides)


PLAIN = Config()


def every(seconds: float, make: Callable[[float], Sample], *, start: float = 0) -> list[Sample]:
    """Return a sample each ten seconds for so long."""
    return [make(start + 10 * number) for number in range(int(seconds // 10) + 1)]
