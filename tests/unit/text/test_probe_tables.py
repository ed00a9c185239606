import pytest

from hbatune.probe.result import (
    Failed,
    Failure,
    Pattern,
    Skip,
    Skipped,
    Workload,
)
from hbatune.text.probe_tables import explain_missing_result, format_shape
from hbatune.workers import Process


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (Workload(), "4K random reads, 24 in flight"),
        (Workload(Pattern.READ, 1 << 20, 2, 4), "1024K sequential reads, 8 in flight in 4 jobs"),
        (
            Workload(Pattern.RANDOM_MIX, 512, 8, reads=70),
            "512 bytes random 70 % reads and 30 % writes, 8 in flight",
        ),
        (Workload(Pattern.WRITE), "4K sequential writes, 24 in flight"),
    ],
)
def test_workload_shape_is_concise(workload: Workload, said: str) -> None:
    assert format_shape(workload) == said


@pytest.mark.parametrize("reason", Skip)
def test_skip_reasons_have_distinct_texts(reason: Skip) -> None:
    others = {
        explain_missing_result(Skipped("sda", other)) for other in Skip if other is not reason
    }
    assert explain_missing_result(Skipped("sda", reason)) not in others


@pytest.mark.parametrize("reason", Failure)
def test_failures_have_distinct_texts(reason: Failure) -> None:
    others = {
        explain_missing_result(Failed("sda", other)) for other in Failure if other is not reason
    }
    assert explain_missing_result(Failed("sda", reason)) not in others


def test_unkillable_pid_is_named() -> None:
    stuck = Failed("sda", Failure.STUCK, process=Process(4711, 1))
    assert "4711" in explain_missing_result(stuck)


def test_foreign_text_is_printable() -> None:
    said = explain_missing_result(Failed("sda", Failure.EXIT, status=1, text="bad\n\x1b[2Jengine"))
    assert said.isprintable()
    assert "engine" in said
