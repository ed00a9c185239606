import msgspec
import pytest

from hbatune.cli.text.probes import HEADERS, READS_ONLY, before_after, why_not
from hbatune.probe.model import (
    Failed,
    Failure,
    Figures,
    Load,
    ProbeResult,
    Skip,
    Skipped,
    Workload,
)
from hbatune.workers import Process

FIGURES = Figures(
    iops=60_000.0,
    bandwidth=245_760_000.0,
    mean_us=400.0,
    p50_us=380.0,
    p95_us=700.0,
    p99_us=900.0,
    p999_us=2000.0,
    cpu_us_per_io=7.5,
    ios=180_000,
    runtime=3.0,
    job_iops=(60_000.0,),
)


def result(target: str = "sda", **overrides: object) -> ProbeResult:
    """Return a probe that measured FIGURES, changed by ``overrides``."""
    figures = msgspec.structs.replace(FIGURES, **overrides)
    return ProbeResult(target, "wwn-1", Workload(), figures, "3.33", ())


def test_before_after_and_change_stand_below_each_other() -> None:
    table = before_after([(result(), result(iops=66_000.0, mean_us=363.6, p99_us=450.0))])
    assert [dict(zip(HEADERS, row, strict=True)) for row in table.rows] == [
        {
            "target": "sda",
            "probe": "before",
            "IOPS": "60000",
            "mean µs": "400",
            "p50 µs": "380",
            "p95 µs": "700",
            "p99 µs": "900",
            "p99.9 µs": "2000",
            "CPU µs/IO": "7.50",
        },
        {
            "target": "",
            "probe": "after",
            "IOPS": "66000",
            "mean µs": "364",
            "p50 µs": "380",
            "p95 µs": "700",
            "p99 µs": "450",
            "p99.9 µs": "2000",
            "CPU µs/IO": "7.50",
        },
        {
            "target": "",
            "probe": "change",
            "IOPS": "+10 %",
            "mean µs": "-9 %",
            "p50 µs": "+0 %",
            "p95 µs": "+0 %",
            "p99 µs": "-50 %",
            "p99.9 µs": "+0 %",
            "CPU µs/IO": "+0 %",
        },
    ]


def test_a_table_of_reads_says_that_it_does_not_see_writes() -> None:
    assert before_after([(result(), result())]).notes == (READS_ONLY,)


def test_without_figures_there_are_only_reasons() -> None:
    skipped = Skipped("sda", Skip.BUSY, load=Load(0.374, 5))
    table = before_after([(skipped, None)])
    assert table.rows == ()
    assert table.notes == ("sda: not probed: it is busy (37% utilised, 5 in flight).",)


def test_a_second_probe_that_failed_leaves_the_first_and_says_why() -> None:
    table = before_after([(result(), Failed("sda", Failure.IO, errno=5))])
    assert [row[1] for row in table.rows] == ["before", "after"]
    assert set(table.rows[1][2:]) == {"-"}
    assert "sda: the probe after failed: I/O error (Input/output error)." in table.notes


def test_a_first_probe_without_a_second_is_said() -> None:
    assert "sda: there was no second probe." in before_after([(result(), None)]).notes


def test_a_pipe_that_was_not_full_is_said() -> None:
    (_, note) = before_after([(result(), result(mean_us=200.0))]).notes
    assert "24 I/Os" in note
    assert "12.0" in note
    assert "after" in note


def test_a_tail_of_few_ios_is_said() -> None:
    notes = before_after([(result(ios=300), result())]).notes
    assert any("300 I/Os" in note and "before" in note for note in notes)


def test_nothing_measured_before_gives_no_change() -> None:
    (*_, change) = before_after([(result(cpu_us_per_io=0.0), result())]).rows
    assert change[-1] == "-"


@pytest.mark.parametrize("reason", Skip)
def test_every_reason_to_skip_has_its_own_words(reason: Skip) -> None:
    others = {why_not(Skipped("sda", other)) for other in Skip if other is not reason}
    assert why_not(Skipped("sda", reason)) not in others


@pytest.mark.parametrize("reason", Failure)
def test_every_failure_has_its_own_words(reason: Failure) -> None:
    others = {why_not(Failed("sda", other)) for other in Failure if other is not reason}
    assert why_not(Failed("sda", reason)) not in others


def test_a_fio_that_could_not_be_killed_is_named() -> None:
    stuck = Failed("sda", Failure.STUCK, process=Process(4711, 1))
    assert "4711" in why_not(stuck)


def test_words_of_others_stay_on_their_line_and_away_from_the_terminal() -> None:
    said = why_not(Failed("sda", Failure.EXIT, status=1, text="bad\n\x1b[2Jengine"))
    assert said.isprintable()
    assert "engine" in said
