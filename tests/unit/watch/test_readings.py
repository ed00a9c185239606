"""What went on between two samples."""

import pytest

from hbatune.facts.sampler import CpuSample, LinkSample
from hbatune.watch.latency import Interval
from hbatune.watch.readings import (
    Measure,
    Reading,
    WatchedDisk,
    read_adapter,
    read_disk,
)
from tests.unit import watch_samples as watched
from tests.unit.watch_samples import HBA, ID, counted, disk, sample, working


def read(first: object, last: object, *, of: WatchedDisk | None = None, **more: object) -> Reading:
    """Return the reading of one disk over ten seconds."""
    earlier, later = sample(10, first), sample(20, last)  # type: ignore[arg-type]
    reading = read_disk(of or disk(), earlier, later, **more)  # type: ignore[arg-type]
    assert reading is not None
    return reading


def test_readings_follow_littles_law() -> None:
    done = read(working(10, ms=2.0), working(20, ms=2.0))
    assert (done.iops, done.read_bytes_per_s, done.write_bytes_per_s) == (1000, 4_096_000, 0)
    assert done.mean_ms == 2.0
    assert done.in_flight == 2.0  # 1000 a second, 2 ms each
    assert done.utilisation == 0.5
    assert done.latency == (Measure.MEAN, 2.0)


def test_mean_is_not_p99() -> None:
    done = read(working(10, ms=2.0), working(20, ms=2.0))
    assert (done.p99_ms, done.p999_ms) == (None, None)


def test_percentiles_use_intervals_between_samples() -> None:
    slow, quick = 20_000, 1000
    intervals = [
        Interval(9, 5, {"8:0": {slow: 1000}}),
        Interval(15, 5, {"8:0": {quick: 985, slow: 15}, "8:16": {slow: 9}}),
    ]
    done = read(working(10, ms=2.0), working(20, ms=2.0), intervals=intervals)
    assert done.p99_ms == pytest.approx(20, rel=0.02)
    assert done.p999_ms == done.p99_ms


def test_sampled_p99_is_named() -> None:
    slow, quick = 20_000, 1000
    sample_of_disk = Interval(15, 15, {"8:0": {quick: 95, slow: 5}})
    done = read(working(10, ms=2.0), working(20, ms=2.0), intervals=[sample_of_disk])
    assert done.p99_ms == pytest.approx(20, rel=0.02)
    assert done.latency == (Measure.SAMPLED, done.p99_ms)
    assert done.p999_ms is None  # too few I/Os


def test_mean_outranks_lower_sampled_p99() -> None:
    """I/O of 30 s does not end within a sample."""
    sample_of_disk = Interval(15, 15, {"8:0": {1000: 95}})
    done = read(working(10, ms=30.0), working(20, ms=30.0), intervals=[sample_of_disk])
    assert done.latency == (Measure.MEAN, 30.0)
    other = read(working(10, ms=2.0), working(20, ms=2.0), of=disk(id=ID), intervals=[])
    assert not other.p99_sampled


def test_earlier_sample_is_not_of_idle_disk() -> None:
    earlier_sample = Interval(9, 15, {"8:0": {20_000: 5}})
    assert read(working(10, ms=2.0), working(20, ms=2.0), intervals=[earlier_sample]).p99_ms == 20
    idle = read(counted(), counted(), intervals=[earlier_sample])
    assert (idle.p99_ms, idle.is_idle) == (None, True)
    stuck = counted(in_flight=1)
    assert read(stuck, stuck, intervals=[earlier_sample]).stalled_ms == 10_000


def test_idle_disk_has_no_latency() -> None:
    done = read(counted(), counted())
    assert (done.mean_ms, done.stalled_ms, done.latency, done.in_flight) == (None, None, None, 0)


def test_stalled_io_counts_as_latency() -> None:
    done = read(counted(in_flight=3), counted(in_flight=3))
    assert done.latency == (Measure.LEAST, 10_000)
    assert done.in_flight == 3
    begun = read(counted(in_flight=0), counted(in_flight=3))
    assert begun.latency is None  # it may have begun a moment ago


def test_times_wrap_at_32_bits() -> None:
    first = counted(reads=10, read_ms=2**32 - 5, busy_ms=2**32 - 100)
    done = read(first, counted(reads=20, read_ms=15, busy_ms=900))
    assert (done.mean_ms, done.utilisation) == (2.0, 0.1)


def test_replaced_disk_has_no_reading() -> None:
    former, replacement = working(100, ms=2.0), working(1, ms=2.0)
    assert read_disk(disk(), sample(10, former), sample(20, replacement)) is None


def test_lowered_depth_needs_ramping_driver() -> None:
    assert read(counted(depth=32), counted(depth=31)).lowered
    assert not read(counted(depth=31), counted(depth=32)).lowered
    assert not read(counted(depth=32), counted(depth=31), of=disk(depth=None)).lowered
    assert not read(counted(depth=32), counted(depth=None)).lowered, "it could not be read"


def test_risen_counters_are_reported() -> None:
    earlier = sample(10, counters={ID: {"errors": 3, "timeouts": 2}, HBA: {"fatal": 0}})
    later = sample(20, counters={ID: {"errors": 7, "timeouts": 1}, HBA: {"fatal": 1}})
    reading = read_disk(disk(), earlier, later)
    server = read_adapter(watched.subjects().servers[0], earlier, later)
    assert reading is not None
    assert reading.risen == {"errors": 4}  # timeouts fell: another device of that name
    assert server.risen == {"fatal": 1}
    assert reading.counted == {"errors": 7, "timeouts": 1}


def test_busiest_serving_cpu_is_reported() -> None:
    earlier = sample(10, cpus={n: CpuSample(1000, 100) for n in range(3)})
    busy = {0: CpuSample(2000, 200), 1: CpuSample(2000, 1050), 2: CpuSample(2000, 1100)}
    server = read_adapter(watched.subjects().servers[0], earlier, sample(20, cpus=busy))
    assert (server.cpu, server.cpu_busy) == (1, 0.95)  # CPU 2 serves nothing of it
    assert server.link == LinkSample(8.0, 8)


def test_head_reading_sums_paths() -> None:
    head = disk(id="head", paths=("a", "b"))
    moved = {"a": working(20, ms=2.0, device="259:1"), "b": working(20, ms=4.0, device="259:2")}
    before = {"a": working(10, ms=2.0, device="259:1"), "b": working(10, ms=4.0, device="259:2")}
    earlier = sample(10, disks={"head": counted(), **before})
    later = sample(20, disks={"head": counted(), **moved})
    reading = read_disk(head, earlier, later)
    assert reading is not None
    assert (reading.iops, reading.mean_ms) == (2000, 3.0)
    slow = {9000: 5}
    intervals = [Interval(15, 5, {"259:1": slow, "259:2": slow})]
    again = read_disk(head, earlier, later, intervals)
    assert again is not None
    assert again.p99_ms == pytest.approx(9, rel=0.02)
