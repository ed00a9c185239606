"""`watch` as a person and a program see it; what it reads comes from tests/hosts and the lab."""

import errno
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hbatune.act.block_trace import BlockEvent, BlockTrace
from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.cli.commands import watch
from hbatune.facts import sampler
from hbatune.facts.sampler import Sample, SampledPlaces
from hbatune.policy.config import Config
from hbatune.probe.guard import Clock
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


class FakeClock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class FakeTrace(BlockTrace):
    """A trace of 1,000 reads of 3 ms each, unless it is forbidden."""

    forbidden: ClassVar[OSError | None] = None
    runs: ClassVar[list[tuple[str, float]]] = []
    clock: ClassVar[FakeClock]

    def start(self) -> None:
        if self.forbidden is not None:
            raise self.forbidden
        self.runs.append(("start", self.clock.now()))

    def stop(self) -> Iterator[BlockEvent]:
        self.runs.append(("stop", self.clock.now()))
        for number in range(1000):
            at, position = number * 100, ("8,0", number)
            yield BlockEvent("block_bio_queue", at, position, "R", 8, None)
            yield BlockEvent("block_rq_complete", at + 3000, position, "R", 8, None)

    def remove(self) -> None:
        self.runs.append(("remove", self.clock.now()))


Command = Callable[[Sequence[str]], int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Return `hbatune watch` on a described machine, with traces of a fake clock's time."""
    clock = FakeClock()
    monkeypatch.setattr(watch, "Clock", lambda: Clock(clock.now, clock.sleep))
    monkeypatch.setattr(watch, "BlockTrace", FakeTrace)
    monkeypatch.setattr(FakeTrace, "clock", clock, raising=False)
    monkeypatch.setattr(FakeTrace, "runs", [])
    monkeypatch.setattr(sampler, "TRACEFS", str(tmp_path))
    monkeypatch.setattr(Paths, "latency", tmp_path / "latency.json")
    see_machine(monkeypatch, lambda: machine(endpoint(), _second()))
    monkeypatch.setattr(watch, "Sampler", FakeSampler)
    monkeypatch.setattr(watch, "load_configuration", Config)
    return lambda words: main(["watch", *words])


def _second() -> Any:
    return endpoint(target="sdb")


def test_count_limits_readings(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--count", "3", "--json"]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[reading["target"] for reading in document["readings"]] for document in documents] == [
        ["sda", "sdb"]
    ] * 3
    assert [reading["p99_ms"] for reading in documents[0]["readings"]] == [
        pytest.approx(3, rel=0.02)
    ] * 2, "the first reading has a p99"
    assert documents[0]["readings"][0]["p99_sampled"]


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
    assert err == ""
    assert command(["--count", "1", "sdz"]) == 2


def test_samples_take_2_s_of_15(command: Command) -> None:
    assert command(["--interval", "60", "--count", "2"]) == 0
    assert FakeTrace.runs[1:] == [
        *(("start", 100.0), ("stop", 102.0)),
        *(("start", 160.0), ("stop", 162.0)),
        *(("start", 220.0), ("remove", 220.0)),
    ]
    del FakeTrace.runs[:]
    assert command(["--interval", "1", "--count", "18"]) == 0
    assert FakeTrace.runs[1:] == [
        *(("start", 220.0), ("stop", 222.0)),
        *(("start", 235.0), ("stop", 237.0)),
        ("remove", 238.0),
    ]


@pytest.mark.parametrize(
    ("user", "error", "remedy"),
    [
        (0, None, ""),
        (0, errno.ENOENT, "`mount -t tracefs tracefs /sys/kernel/tracing`"),
        (0, errno.EPERM, "forbids traces (Operation not permitted); leave the container"),
        (1000, errno.EACCES, "no p99: only root can trace I/O; use sudo"),
    ],
)
def test_missing_p99_has_remedy(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    user: int,
    error: int | None,
    remedy: str,
) -> None:
    if error is not None:
        monkeypatch.setattr(FakeTrace, "forbidden", OSError(error, os.strerror(error)))
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert command(["--count", "1"]) == 0
    out, err = capsys.readouterr()
    assert (err == "") == (error is None)
    assert remedy in " ".join(err.split())
    assert (" 2.98" in out) == (error is None)


def test_short_watch_explains_missing_p99(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["--interval", "0.5", "--count", "3"]) == 0
    assert "no p99 yet: it takes 2 s" in capsys.readouterr().err


def test_traces_of_killed_runs_are_removed(command: Command, tmp_path: Path) -> None:
    for name in ("hbatune", "hbatune-watch-17", "hbatune-watch-18"):
        (tmp_path / "instances" / name).mkdir(parents=True)
    assert command(["--count", "1"]) == 0
    assert [path.name for path in (tmp_path / "instances").iterdir()] == ["hbatune"]


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
