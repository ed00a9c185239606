import json

import pytest

from hbatune.probe.fio import Count, cut_windows, parse_documents, select_counts
from hbatune.probe.result import Histogram, merge_histograms


def count(seconds: float, ios: int, *, latencies: bool = True) -> Count:
    """Return the state of a run after so many seconds."""
    histogram = Histogram({1000: ios} if latencies else {})
    cpu_time = seconds / 10, seconds / 5
    return Count(seconds, ios, histogram, *cpu_time, (ios,), 1000.0)


def test_counts_cut_run_into_windows() -> None:
    windows = cut_windows([count(0.5, 50), count(1.0, 110), count(1.5, 150)])
    assert [(window.seconds, window.ios) for window in windows] == [(0.5, 50), (0.5, 60), (0.5, 40)]
    assert merge_histograms(window.histogram for window in windows) == Histogram({1000: 150})
    assert sum(window.system for window in windows) == pytest.approx(0.3)


def test_warm_up_is_excluded() -> None:
    warm = [count(0.4, 900, latencies=False), count(0.8, 1800, latencies=False)]
    counts = select_counts([*warm, count(0.5, 50), count(1.0, 100), count(1.2, 100)], 1.0)
    assert [window.ios for window in cut_windows(counts)] == [50, 50]


def test_reset_counters_start_run() -> None:
    counts = select_counts([count(0.4, 900), count(0.5, 50), count(1.0, 100), count(1.2, 100)], 1.0)
    assert [window.ios for window in cut_windows(counts)] == [50, 50]


def test_late_counts_fill_short_runs() -> None:
    at_end, waiting, last = count(3.5, 350), count(4.5, 400), count(5.0, 400)
    assert select_counts([at_end, waiting, last], 4.0) == [at_end]
    assert select_counts([count(1.0, 100), waiting, last], 4.0) == [count(1.0, 100), last]
    assert select_counts([last], 4.0) == [last]


def test_short_remainder_joins_last_window() -> None:
    windows = cut_windows([count(0.5, 50), count(1.0, 100), count(1.001, 101)])
    assert [window.ios for window in windows] == [50, 51]


def test_one_document_is_one_window() -> None:
    assert [window.ios for window in cut_windows([count(2, 80)])] == [80]
    assert cut_windows([]) == ()


def test_broken_document_is_skipped() -> None:
    text = f'note: x\n{json.dumps({"a": 1}, indent=1)}\nfio: warning {{\n{{"b": \n{{"c": 3}}\n'
    assert list(parse_documents(text)) == [{"a": 1}, {"c": 3}]


def test_broken_last_document_raises() -> None:
    with pytest.raises(ValueError, match="the last document is broken"):
        list(parse_documents('{"a": 1}\n{"b": '))
