"""`watch` as a person and a program see it; what it reads comes from tests/hosts and the lab."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hbatune.cli import main
from hbatune.cli.commands import watch
from hbatune.facts.sampler import Sample, SampledPlaces
from hbatune.policy.config import Config
from hbatune.text.watch_view import format_reading, make_json_printer, make_plain_printer
from hbatune.watch.watch import AlertEvent, Watcher, WatchState
from tests.documented import validate
from tests.unit import watch_samples as watched
from tests.unit.command_runs import see_machine
from tests.unit.machines import endpoint, machine
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
    assert [line.split(": ")[1] for line in err.splitlines()] == ["alert", "over"]


def test_mean_column_shows_mean() -> None:
    watcher = Watcher(PLAIN, watched.subjects())
    watcher.tick(sample(10, working(10, ms=2.0)))
    state, _ = watcher.tick(sample(20, working(20, ms=2.0)))
    assert format_reading(state.disks[0]) == [
        *("sda", "1000", "4.1", "2", "-", "-", "2", "2.0", "64", "50 %"),
    ]


class FakeSampler:
    """Samples of a disk that is stuck, without a machine."""

    def __init__(self, places: SampledPlaces, *, every: float) -> None:
        self.ids = list(places.disks.values())

    def sample(self, current_time: float, time: float) -> Sample:
        return Sample(current_time, time, dict.fromkeys(self.ids, counted(in_flight=1)))


Command = Callable[[Sequence[str]], int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return `hbatune watch` on a described machine."""
    see_machine(monkeypatch, lambda: machine(endpoint(), _second()))
    monkeypatch.setattr(watch, "Sampler", FakeSampler)
    monkeypatch.setattr(watch, "load_configuration", Config)
    return lambda words: main(["watch", "--interval", "0.1", *words])


def _second() -> Any:
    return endpoint(target="sdb")


def test_count_limits_readings(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--count", "3", "--json"]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[reading["target"] for reading in document["readings"]] for document in documents] == [
        ["sda", "sdb"]
    ] * 3
    assert documents[0]["readings"][0]["stalled_ms"] >= 100


def test_target_limits_watch(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--count", "1", "sdb"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[1] for line in out.splitlines()] == ["TARGET", "sdb"]
    assert "nothing measures latency" in err
    assert command(["--count", "1", "sdz"]) == 2


def test_ctrl_c_exits_0(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> Sample:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was not heard")

    monkeypatch.setattr(FakeSampler, "sample", interrupted)
    assert command([]) == 0


@pytest.mark.parametrize("words", [["--interval", "0"], ["--interval", "nan"], ["--count", "0"]])
def test_invalid_numbers_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *words]) == 2
    assert "at least" in capsys.readouterr().err
