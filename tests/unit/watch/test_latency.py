"""From bpftrace's lines to percentiles."""

import json
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.watch import latency
from hbatune.watch.latency import (
    KEPT_INTERVALS,
    Interval,
    Latencies,
    format_script,
    load_latencies,
    make_histogram,
    publish_intervals,
    read_intervals,
    select_intervals,
)
from tests.unit.watch_samples import get_bucket

latencies = st.integers(0, (1 << 37) - 1)  # two minutes


@given(latencies)
def test_latency_lies_in_bucket(ns: int) -> None:
    low, beyond = latency.get_bucket_bounds(get_bucket(ns))
    assert low <= ns < beyond


@given(latencies)
def test_bucket_width_is_bounded(ns: int) -> None:
    low, beyond = latency.get_bucket_bounds(get_bucket(ns))
    assert beyond - low == 1 or (beyond - low) / low <= 1 / 32
    assert abs((low + beyond) // 2 - ns) <= max(1, 0.02 * ns)


def test_buckets_are_contiguous() -> None:
    ends = [latency.get_bucket_bounds(bucket) for bucket in range(1100)]
    assert all(first[1] == second[0] for first, second in pairwise(ends))


def arithmetic(ns: int) -> int:
    """Return the bucket that the script computes. Its lines are run as Python."""
    names = {"ns": ns, "rest": 0, "shift": 0}
    lines = [line.strip().rstrip(";").replace("$", "") for line in format_script(10).splitlines()]
    for line in lines:
        if line.startswith("rest = ns"):
            exec(line, {}, names)
        elif line.startswith("if (rest"):
            condition, _, then = line.removeprefix("if ").partition(" {")
            if eval(condition, {}, names):
                for statement in then.rstrip("} ").split(";"):
                    exec(statement.strip(), {}, names)
    key = next(line for line in lines if line.startswith("@latency[args->dev,"))
    return int(eval(key.partition(",")[2].partition("]")[0], {}, names))


@given(latencies)
def test_bpftrace_script_matches_buckets(ns: int) -> None:
    assert arithmetic(ns) == get_bucket(ns)


def line(**counts: int) -> bytes:
    data = {key.replace("_", ","): count for key, count in counts.items()}
    return json.dumps({"type": "map", "data": {"@latency": data}}).encode() + b"\n"


END = b'{"type": "printf", "data": "end\\n"}\n'


def test_lines_count_by_device() -> None:
    attached = b'{"type": "attached_probes", "data": {"probes": 10}}\n'
    counts = line(**{"8388656_482": 3, "8388656_7": 1, "271581184_482": 2})
    first, second = read_intervals([attached, counts, END, END])
    assert first == {"8:48": {482: 3, 7: 1}, "259:0": {482: 2}}
    assert second == {}  # an interval without I/O prints no map


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"Lost 12 events\n",
        b'{"type": "lost_events", "data": {"events": 12}}\n',
        b'{"type": "map", "data": {"@latency": {"8388656": 3, "a,b": 1, "1,2,3": 4}}}\n',
        b'{"type": "map", "data": {"@other": {"8388656,4": 3}}}\n',
        b'{"type": "map", "data": {"@latency": 3}}\n',
        b"\xff\xfe\n",
    ],
)
def test_malformed_lines_are_ignored(odd: bytes) -> None:
    assert list(read_intervals([odd])) == []
    assert list(read_intervals([odd, END])) == [{}]


def clock() -> Iterator[float]:
    return (100.0 + 10 * number for number in count())


def test_last_intervals_are_published(tmp_path: Path) -> None:
    ticks, published = clock(), list[bytes]()
    runs = [line(**{"8388608_400": number}) + END for number in range(1, KEPT_INTERVALS + 3)]
    lines = [splitline + b"\n" for run in runs for splitline in run.splitlines()]
    publish_intervals(lines, published.append, lambda: next(ticks))
    assert len(published) == KEPT_INTERVALS + 2
    file = tmp_path / "latency.json"
    file.write_bytes(published[-1])
    intervals = load_latencies(file).intervals
    assert [loaded.counts["8:0"][400] for loaded in intervals] == list(range(3, KEPT_INTERVALS + 3))
    assert [loaded.seconds for loaded in intervals] == [10.0] * KEPT_INTERVALS
    assert intervals[-1].ended == 100.0 + 10 * (KEPT_INTERVALS + 2)


def test_foreign_latency_file_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    assert load_latencies(file) == Latencies()
    for text in ("", "[]", "{", '{"schema": "hbatune.latency/2", "intervals": []}'):
        file.write_text(text)
        assert load_latencies(file) == Latencies()
    file.write_bytes(msgspec.json.encode(Latencies((interval(5),))))
    assert load_latencies(file).intervals == (interval(5),)


def interval(ended: float, seconds: float = 10.0, **counts: int) -> Interval:
    """Return an interval with I/Os of ``8:0``: ``ms20=3`` means three I/Os of 20 ms."""
    buckets = {
        get_bucket(int(name.removeprefix("ms")) * 1_000_000): ios for name, ios in counts.items()
    }
    return Interval(ended, seconds, {"8:0": buckets})


def test_only_intervals_between_samples_count() -> None:
    intervals = [interval(10), interval(20), interval(30)]
    assert select_intervals(intervals, 10, 25) == (intervals[1],)
    assert select_intervals(intervals, 5, 30) == tuple(intervals)


def test_short_window_uses_last_interval() -> None:
    intervals = [interval(10), interval(20)]
    assert select_intervals(intervals, 23, 25) == (intervals[1],)
    assert select_intervals(intervals, 49, 51) == ()  # whoever measured has stopped
    assert select_intervals(intervals, 14, 16) == (intervals[0],)


@given(st.lists(st.integers(1000, 10**11), min_size=1, max_size=200))
def test_percentiles_match_bucket_precision(sample: list[int]) -> None:
    counts: dict[int, int] = {}
    for ns in sample:
        counts[get_bucket(ns)] = counts.get(get_bucket(ns), 0) + 1
    histogram = make_histogram([Interval(1, 1, {"8:0": counts, "8:16": {1: 9}})], ["8:0"])
    exact = sorted(sample)[-(-99 * len(sample) // 100) - 1]
    assert histogram.count == len(sample)
    assert histogram.percentile(99) == pytest.approx(exact, rel=0.02)


def test_histogram_merges_intervals_and_devices() -> None:
    both = Interval(20, 10, {"8:0": {400: 1}, "8:16": {400: 2, 500: 1}})
    histogram = make_histogram([interval(10, ms20=5), both], ["8:0", "8:16", "8:32"])
    assert histogram.count == 9


def test_script_forgets_after_sixty_intervals() -> None:
    text = format_script(7)
    assert "interval:s:7\n" in text
    assert f"interval:s:{60 * 7}\n" in text
    assert "{{" not in text
    assert latency.KEPT_INTERVALS * 7 < 60 * 7
