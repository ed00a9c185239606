import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.probe.fio import LATE_FACTOR
from hbatune.probe.result import (
    BulkWriter,
    Histogram,
    ProbeResult,
    Window,
    Workload,
    merge_histograms,
)
from tests.unit.probe_results import FIGURES

COUNTS = st.dictionaries(st.integers(1, 10**9), st.integers(1, 50), min_size=1)


@given(COUNTS, st.floats(1, 100))
def test_percentile_matches_definition(counts: dict[int, int], percent: float) -> None:
    value = Histogram(counts).percentile(percent)
    total = sum(counts.values())
    within = sum(count for value_ns, count in counts.items() if value_ns <= value)
    below = sum(count for value_ns, count in counts.items() if value_ns < value)
    assert below < percent / 100 * total <= within


@given(COUNTS)
def test_summary_matches_values(counts: dict[int, int]) -> None:
    values = [value for value, count in counts.items() for _ in range(count)]
    histogram = Histogram(counts)
    assert histogram.percentile(50) == statistics.median_low(values)
    assert histogram.count == len(values)


@given(COUNTS, COUNTS)
def test_subtraction_undoes_merge(first: dict[int, int], second: dict[int, int]) -> None:
    both = merge_histograms([Histogram(first), Histogram(second)])
    assert both.count == sum(first.values()) + sum(second.values())
    assert both.minus(Histogram(first)) == Histogram(second)


def test_decreasing_counters_raise() -> None:
    with pytest.raises(ValueError, match="below zero"):
        Histogram({5: 1}).minus(Histogram({5: 2}))


def test_empty_histogram_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="nothing"):
        Histogram().percentile(50)


@given(COUNTS)
def test_window_survives_json(counts: dict[int, int]) -> None:
    window = Window(1.5, 10, Histogram(counts), 0.25, 0.5)
    assert msgspec.json.decode(msgspec.json.encode(window), type=Window) == window


@pytest.mark.parametrize(("share", "doubt"), [(1.04, None), (1.06, "too_many"), (0.89, "too_few")])
def test_littles_law_raises_doubt(share: float, doubt: str | None) -> None:
    workload = Workload(depth=24)
    figures = msgspec.structs.replace(FIGURES, mean_us=share * 24 / FIGURES.iops * 1e6)
    assert ProbeResult("sda", "id", workload, figures, "3.33", ()).doubt == doubt


@pytest.mark.parametrize(("share", "doubt"), [(1.14, None), (1.16, "too_many"), (0.79, "too_few")])
def test_short_run_tolerates_one_latency(share: float, doubt: str | None) -> None:
    figures = msgspec.structs.replace(FIGURES, mean_us=share * 24 / FIGURES.iops * 1e6)
    mean = figures.mean_us
    figures = msgspec.structs.replace(figures, runtime=mean / 1e6 * 10, p999_us=mean)
    result = ProbeResult("sda", "id", Workload(depth=24), figures, "3.33", ())
    assert result.doubt == doubt


@pytest.mark.parametrize(("longest", "doubt"), [(1, "too_many"), (3, None)])
def test_run_tolerates_edge_latencies(longest: int, doubt: str | None) -> None:
    mean = 1.3 * 24 / FIGURES.iops * 1e6
    figures = msgspec.structs.replace(
        FIGURES, mean_us=mean, runtime=mean / 1e6 * 10, p999_us=longest * mean
    )
    assert ProbeResult("sda", "id", Workload(depth=24), figures, "3.33", ()).doubt == doubt


@given(st.integers(250, 10_000))
def test_last_status_is_in_time(milliseconds: int) -> None:
    """A status after the end includes the wait for the last I/Os, and a run without it is lost."""
    window = Workload(runtime=milliseconds / 1000).window_ms
    last = milliseconds // window * window
    if last + 15 > LATE_FACTOR * milliseconds:
        last -= window
    assert last >= 0.85 * milliseconds


def test_each_io_fits_block() -> None:
    assert Workload(block_size=8192).fits_block(4096)
    assert not Workload(block_size=2048).fits_block(4096)
    assert not Workload(block_size=6144).fits_block(4096)
    assert not Workload(block_size=65536, writer=BulkWriter(block_size=4096)).fits_block(16384)
