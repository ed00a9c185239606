"""`watch` as a person and a program see it; what it reads comes from tests/hosts and the lab."""

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hbatune.act import paths
from hbatune.cli import main
from hbatune.cli.commands import watch
from hbatune.facts.sampler import Sample, SampledPlaces
from hbatune.policy.config import Config
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.watch import Alert, AlertEvent, WatchState
from tests.unit.command_runs import see_machine
from tests.unit.machines import endpoint, machine
from tests.unit.watch_samples import counted


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


def test_active_alert_exits_1_after_last_reading(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    alert = Alert(AlertCondition.P99, "sda", "sda", None, 4.0, 2.0, "p99", 1.0, "D0-7")
    alerts_by_tick: list[tuple[Alert, ...]] = [(), (alert,), ()]
    ticks: list[WatchState] = []

    def tick(*_: object) -> tuple[WatchState, tuple[AlertEvent, ...]]:
        ticks.append(WatchState(1.0, alerts=alerts_by_tick[len(ticks)]))
        return ticks[-1], ()

    monkeypatch.setattr("hbatune.watch.watch.Watcher.tick", tick)
    assert command(["--count", "1"]) == 1
    ticks.clear()
    assert command(["--count", "2"]) == 0, "it ended before the last reading"


def test_target_limits_watch(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--count", "1", "sdb"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[1] for line in out.splitlines()] == ["TARGET", "sdb"]
    assert "nothing measures latency" in err
    assert command(["--count", "1", "sdz"]) == 2


@pytest.mark.parametrize(
    ("program", "unit", "remedy"),
    [
        (None, False, "install bpftrace, then run `hbatune watch --collect` as root"),
        ("bpftrace", False, "latency; run `hbatune watch --collect` as root"),
        ("bpftrace", True, "`systemctl start hbatune-latency.service` starts that"),
    ],
)
def test_missing_p99_remedy_fits_host(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    program: str | None,
    unit: bool,
    remedy: str,
) -> None:
    monkeypatch.setattr(watch, "which", lambda name: program)
    monkeypatch.setattr(paths, "UNITS", tmp_path)
    if unit:
        (tmp_path / "hbatune-latency.service").touch()
    assert command(["--count", "1"]) == 0
    assert remedy in capsys.readouterr().err


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
