"""Readings and alerts of `watch` as lines of text and of JSON."""

import json
from collections.abc import Iterator

import pytest

from hbatune.text.watch_view import (
    describe_alert,
    format_reading,
    make_json_printer,
    make_plain_printer,
)
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.watch import Alert, AlertEvent, Watcher, WatchState
from tests.documented import validate
from tests.unit import watch_samples as watched
from tests.unit.watch_samples import PLAIN, counted, every, sample, working


def stuck() -> Iterator[tuple[WatchState, tuple[AlertEvent, ...]]]:
    """Yield the states of a watched disk until its alert is raised and over again."""
    watcher = Watcher(PLAIN, watched.subjects())
    for reading in every(250, lambda at: sample(at, counted(in_flight=4))):
        yield watcher.tick(reading)
    for reading in every(200, sample, start=260):
        yield watcher.tick(reading)


def test_json_lines_match_schema(capsys: pytest.CaptureFixture[str]) -> None:
    show = make_json_printer("db1")
    for state, events in stuck():
        show(state, events)
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for document in documents:
        validate(document)
    changes = [event["change"] for document in documents for event in document["events"]]
    assert changes == ["raised", "cleared"]
    assert {document["schema"] for document in documents} == {"hbatune.watch/1"}


def test_piped_alerts_use_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show = make_plain_printer()
    for state, events in stuck():
        show(state, events)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["TIME", "TARGET", "IOPS"]
    assert len({len(line.rstrip()) for line in lines}) == 1
    assert ">10000" in out
    assert [line.split(": ")[1] for line in err.splitlines()] == ["alert", "alert ended"]


def test_mean_column_shows_mean() -> None:
    watcher = Watcher(PLAIN, watched.subjects())
    watcher.tick(sample(10, working(10, ms=2.0)))
    state, _ = watcher.tick(sample(20, working(20, ms=2.0)))
    assert format_reading(state.disks[0]) == [
        *("sda", "1000", "4.1", "2", "-", "-", "2", "2.0", "64", "50 %"),
    ]


@pytest.mark.parametrize(
    ("condition", "detail", "value", "text"),
    [
        ("p99", "p99", 4.0, "p99 is 4 ms; the objective is a p99 of 0.85 ms"),
        ("p99", "mean", None, "p99 is not measured; the mean is unknown ms; the objective"),
        ("p99", "least", 4.0, "nothing was done in 4 ms, and something waits; the objective"),
        ("utilisation", None, 0.9, "busy 90 % of the time, more than 85 %"),
        ("utilisation", "32", None, "unknown of 32 commands in flight, more than 85 %"),
        ("link-degraded", "width", 4.0, "the link runs at 4 lanes; it has run at 0.85"),
        ("link-degraded", "speed", 8.0, "the link runs at 8 GT/s; it has run at 0.85"),
        ("counters-rising", "errors", 7.0, "errors rose by 7"),
    ],
)
def test_alert_has_text_of_detail(
    condition: str, detail: str | None, value: float | None, text: str
) -> None:
    alert = Alert(AlertCondition(condition), "id", "sda", None, value, 0.85, detail, 1.0, "D0-7")
    assert describe_alert(alert).startswith(text)
