"""From the latencies of a sample to percentiles."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.watch.latency import (
    Interval,
    Latencies,
    load_latencies,
    make_histogram,
    round_latency,
    select_intervals,
)


@given(st.integers(0, 120_000_000))
def test_rounding_is_bounded(micros: int) -> None:
    assert abs(round_latency(micros) - micros) <= 0.016 * micros


def test_sample_has_few_latencies() -> None:
    assert len({round_latency(micros) for micros in range(1_000_000)}) < 600


def test_foreign_latency_file_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    assert load_latencies(file) == Latencies()
    for text in ("", "[]", "{", '{"schema": "hbatune.latency/1", "intervals": []}'):
        file.write_text(text)
        assert load_latencies(file) == Latencies()
    file.write_bytes(msgspec.json.encode(Latencies((interval(5),))))
    assert load_latencies(file).intervals == (interval(5),)


def interval(ended: float, seconds: float = 10.0, **counts: int) -> Interval:
    """Return an interval with I/Os of ``8:0``: ``ms20=3`` means three I/Os of 20 ms."""
    latencies = {int(name.removeprefix("ms")) * 1000: ios for name, ios in counts.items()}
    return Interval(ended, seconds, {"8:0": latencies})


def test_only_intervals_between_samples_count() -> None:
    intervals = [interval(10), interval(20), interval(30)]
    assert select_intervals(intervals, 10, 25) == (intervals[1],)
    assert select_intervals(intervals, 5, 30) == tuple(intervals)


def test_short_window_uses_last_interval() -> None:
    intervals = [interval(10), interval(20)]
    assert select_intervals(intervals, 23, 25) == (intervals[1],)
    assert select_intervals(intervals, 49, 51) == ()  # whoever measured has stopped
    assert select_intervals(intervals, 14, 16) == (intervals[0],)


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=200))
def test_percentiles_match_rounding(sample: list[int]) -> None:
    counts: dict[int, int] = {}
    for micros in sample:
        latency = round_latency(micros)
        counts[latency] = counts.get(latency, 0) + 1
    histogram = make_histogram([Interval(1, 1, {"8:0": counts, "8:16": {1: 9}})], ["8:0"])
    exact = sorted(sample)[-(-99 * len(sample) // 100) - 1] * 1000
    assert histogram.count == len(sample)
    assert histogram.percentile(99) == pytest.approx(exact, rel=0.02)


def test_histogram_merges_intervals_and_devices() -> None:
    both = Interval(20, 10, {"8:0": {400: 1}, "8:16": {400: 2, 500: 1}})
    histogram = make_histogram([interval(10, ms20=5), both], ["8:0", "8:16", "8:32"])
    assert histogram.count == 9
