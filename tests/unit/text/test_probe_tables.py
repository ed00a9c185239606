import pytest

from hbatune.probe.result import (
    Failed,
    Failure,
    Pattern,
    Skip,
    Skipped,
    Workload,
)
from hbatune.probe.sweeps import Sweep, SweptParameter
from hbatune.text.probe_tables import draw_curve, explain_missing_result, format_shape
from hbatune.workers import Process
from tests.unit import report_server as reported


@pytest.mark.parametrize(
    ("workload", "shape"),
    [
        (Workload(), "4K random reads, 24 in flight"),
        (Workload(Pattern.READ, 1 << 20, 2, 4), "1M sequential reads, 8 in flight in 4 jobs"),
        (
            Workload(Pattern.RANDOM_MIX, 512, 8, reads=70),
            "512 random I/O, 70 % reads, 8 in flight",
        ),
        (Workload(Pattern.WRITE), "4K sequential writes, 24 in flight"),
    ],
)
def test_workload_shape_is_concise(workload: Workload, shape: str) -> None:
    assert format_shape(workload) == shape


@pytest.mark.parametrize("reason", Skip)
def test_skip_reasons_have_distinct_texts(reason: Skip) -> None:
    other_texts = {
        explain_missing_result(Skipped("sda", other_reason))
        for other_reason in Skip
        if other_reason is not reason
    }
    assert explain_missing_result(Skipped("sda", reason)) not in other_texts


@pytest.mark.parametrize("reason", Failure)
def test_failures_have_distinct_texts(reason: Failure) -> None:
    other_texts = {
        explain_missing_result(Failed("sda", other_failure))
        for other_failure in Failure
        if other_failure is not reason
    }
    assert explain_missing_result(Failed("sda", reason)) not in other_texts


def draw(width: int) -> list[str]:
    records = reported.depth_sweep(reported.host())
    results = tuple(record.result for record in records if record.result)
    return list(draw_curve("sda", Sweep(SweptParameter.DEPTH, results), width))


def test_chart_grows_with_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbatune.text.terminal.can_show_symbols", lambda: True)
    _, name, heading, *rows, _ = draw(80)
    assert (name, heading.split()) == ("sda", ["DEPTH", "IOPS", "P99", "MS"])
    lengths = [row.count("█") for row in rows]
    assert lengths[0] < lengths[-1]
    assert all(len(row) <= 80 for row in rows)


def test_chart_needs_no_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbatune.text.terminal.can_show_symbols", lambda: False)
    assert all(line.isascii() for line in draw(80))
    assert any("####" in line for line in draw(80))


def test_pipe_gets_no_chart() -> None:
    assert draw(0) == []


def test_unkillable_pid_is_named() -> None:
    stuck = Failed("sda", Failure.STUCK, process=Process(4711, 1))
    assert "4711" in explain_missing_result(stuck)


def test_foreign_text_is_printable() -> None:
    explanation = explain_missing_result(
        Failed("sda", Failure.EXIT, status=1, text="bad\n\x1b[2Jengine")
    )
    assert explanation.isprintable()
    assert "engine" in explanation
