"""Samples of latencies: their beginning, their end, and their publication."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hbatune.act.block_trace import BlockEvent, BlockTrace
from hbatune.watch.latency import (
    KEPT_INTERVALS,
    RETRY_S,
    Interval,
    Latencies,
    LatencyReader,
    LatencySampler,
    load_latencies,
    make_histogram,
)

NEVER = math.inf


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
        self.sampler = LatencySampler(self.trace, path)

    def sample(self, current_time: float) -> None:
        self.sampler.plan(current_time)
        self.sampler.advance(current_time)
        self.sampler.advance(current_time + 2.0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "latency.json")


def test_sample_takes_2_s_of_15(bench: Bench) -> None:
    assert bench.sampler.due == NEVER
    bench.sampler.plan(10.0)
    assert bench.sampler.due == 10.0
    bench.sampler.advance(10.0)
    assert (bench.sampler.due, bench.trace.exists) == (12.0, True)
    bench.sampler.plan(11.0)
    assert bench.sampler.due == 12.0  # in progress
    bench.sampler.advance(12.0)
    assert bench.sampler.due == NEVER  # until a disk is busy
    bench.sampler.plan(20.0)
    assert bench.sampler.due == 25.0


def test_sample_is_published_with_p99(bench: Bench) -> None:
    for number in range(KEPT_INTERVALS + 1):
        bench.sample(15.0 * number)
    intervals = load_latencies(bench.path).intervals
    assert [interval.ended for interval in intervals] == [17.0, 32.0, 47.0, 62.0]
    assert intervals == bench.sampler.intervals
    assert bench.path.stat().st_mode & 0o777 == 0o600
    histogram = make_histogram(intervals[-1:], ["8:0"])
    assert histogram.percentile(99) == pytest.approx(30_000_000, rel=0.03)
    assert histogram.percentile(50) == pytest.approx(1_000_000, rel=0.03)


def test_forbidden_trace_is_tried_again_later(bench: Bench) -> None:
    bench.sample(0.0)
    bench.trace.forbidden = True
    bench.sampler.plan(20.0)
    bench.sampler.advance(20.0)
    assert (bench.sampler.due, bench.trace.exists) == (NEVER, False)
    assert not bench.path.exists()  # the alerts compare the mean
    assert isinstance(bench.sampler.problem, PermissionError)
    bench.sampler.plan(30.0)
    assert bench.sampler.due == 20.0 + RETRY_S
    bench.trace.forbidden = False
    bench.sampler.advance(20.0 + RETRY_S)
    assert bench.sampler.problem is None


def test_killed_daemon_leaves_nothing(bench: Bench) -> None:
    assert not bench.trace.exists
    bench.sample(0.0)
    bench.sampler.plan(20.0)
    bench.sampler.advance(20.0)
    killed = bench.trace
    LatencySampler(killed, bench.path)
    assert not killed.exists
    assert not bench.path.exists()


def test_reader_samples_without_daemon(tmp_path: Path) -> None:
    trace, path = FakeTrace(), tmp_path / "latency.json"
    reader = LatencyReader(trace, path)
    assert not trace.exists
    assert reader.read(100.0) == ()
    assert (reader.is_daemon, trace.exists) == (False, True)
    [sample] = reader.read(102.0)
    assert (sample.ended, reader.is_daemon) == (102.0, False)
    assert not path.exists(), "the daemon's file has only its samples"
    reader.close()
    assert not trace.exists


def test_reader_uses_recent_samples_of_daemon(tmp_path: Path) -> None:
    trace, path = FakeTrace(), tmp_path / "latency.json"
    published = Latencies((Interval(95.0, 15.0, {}),))
    path.write_bytes(msgspec.json.encode(published))
    reader = LatencyReader(trace, path)
    assert reader.read(100.0) == published.intervals
    assert (reader.is_daemon, trace.exists) == (True, False)
    assert reader.read(150.0) == ()  # the daemon was killed
    assert (reader.is_daemon, trace.exists) == (False, True)
    assert reader.read(152.0)[0].ended == 152.0
    reader.close()
    assert load_latencies(path) == published, "the daemon removes its file"
