"""Samples of latencies: their beginning, their end, and their publication."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hbatune.act.block_trace import BlockEvent, BlockTrace
from hbatune.agent.monitor import NEVER, RETRY_S, LatencySampler
from hbatune.watch.latency import (
    KEPT_INTERVALS,
    Interval,
    Latencies,
    find_bucket,
    load_latencies,
    make_histogram,
)
from tests.unit.watch_samples import get_bucket


class FakeTrace(BlockTrace):
    """A trace of a hundred reads: two take 30 ms, the others 1 ms."""

    def __init__(self) -> None:
        self.exists = True  # a killed daemon has left it
        self.forbidden = False

    def start(self) -> None:
        if self.forbidden:
            raise PermissionError
        self.exists = True

    def stop(self) -> Iterator[BlockEvent]:
        for number in range(100):
            at, took = number * 50_000, 30_000 if number % 50 == 0 else 1000
            position = ("8,0", number)
            yield BlockEvent("block_bio_queue", at, position, "R", 8, None)
            yield BlockEvent("block_rq_complete", at + took, position, "R", 8, None)

    def remove(self) -> None:
        self.exists = False


class Bench:
    def __init__(self, path: Path) -> None:
        self.path, self.trace = path, FakeTrace()
        self.sampler = LatencySampler(path, self.trace)

    def plan(self, current_time: float) -> None:
        self.sampler.plan(current_time, load_latencies(self.path).intervals)

    def sample(self, current_time: float) -> None:
        self.plan(current_time)
        self.sampler.advance(current_time)
        self.sampler.advance(current_time + 2.0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "latency.json")


@pytest.mark.parametrize("ns", [0, 63, 64, 1000, 12_345_678, 2**40 + 1])
def test_buckets_are_those_of_bpftrace(ns: int) -> None:
    assert find_bucket(ns) == get_bucket(ns)


def test_sample_takes_2_s_of_15(bench: Bench) -> None:
    assert bench.sampler.due == NEVER
    bench.plan(10.0)
    assert bench.sampler.due == 10.0
    bench.sampler.advance(10.0)
    assert (bench.sampler.due, bench.trace.exists) == (12.0, True)
    bench.plan(11.0)
    assert bench.sampler.due == 12.0  # in progress
    bench.sampler.advance(12.0)
    assert bench.sampler.due == NEVER  # until a disk is busy
    bench.plan(20.0)
    assert bench.sampler.due == 25.0


def test_sample_is_published_with_p99(bench: Bench) -> None:
    for number in range(KEPT_INTERVALS + 1):
        bench.sample(15.0 * number)
    intervals = load_latencies(bench.path).intervals
    assert [interval.ended for interval in intervals] == [17.0, 32.0, 47.0, 62.0]
    assert all(interval.sampled for interval in intervals)
    assert bench.path.stat().st_mode & 0o777 == 0o600
    histogram = make_histogram(intervals[-1:], ["8:0"])
    assert histogram.percentile(99) == pytest.approx(30_000_000, rel=0.03)
    assert histogram.percentile(50) == pytest.approx(1_000_000, rel=0.03)


def test_bpftrace_needs_no_samples(bench: Bench) -> None:
    measured = Latencies((Interval(95.0, 10.0, {}),))
    bench.path.write_bytes(msgspec.json.encode(measured))
    bench.plan(100.0)
    assert bench.sampler.due == NEVER
    bench.plan(200.0)  # bpftrace was killed
    assert bench.sampler.due == 200.0
    bench.sampler.close()
    assert load_latencies(bench.path) == measured


def test_forbidden_trace_is_tried_again_later(bench: Bench) -> None:
    bench.sample(0.0)
    bench.trace.forbidden = True
    bench.plan(20.0)
    bench.sampler.advance(20.0)
    assert (bench.sampler.due, bench.trace.exists) == (NEVER, False)
    assert not bench.path.exists()  # the alerts compare the mean
    bench.plan(30.0)
    assert bench.sampler.due == 20.0 + RETRY_S


def test_killed_daemon_leaves_nothing(bench: Bench) -> None:
    assert not bench.trace.exists
    bench.sample(0.0)
    bench.plan(20.0)
    bench.sampler.advance(20.0)
    killed = bench.trace
    LatencySampler(bench.path, killed)
    assert not killed.exists
    assert not bench.path.exists()
