"""What a run costs the CPUs, on a clock and counters that are made up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hbatune.facts import sampler
from hbatune.facts.sampler import CpuTime, read_cpu_time, read_temperature
from hbatune.probe import fio
from hbatune.probe.fio import Meter
from hbatune.probe.result import Workload

STAT = """cpu  300 0 100 1000 200 30 70 0 0 0
cpu0 100 0 50 600 100 10 40 0 0 0
cpu1 200 0 50 400 100 20 30 0 0 0
intr 12345 0
"""


@pytest.fixture
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "stat"
    path.write_text(STAT)
    monkeypatch.setattr(sampler, "_STAT", str(path))
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    return path


def test_cpu_time_covers_selection(stat: Path) -> None:
    assert read_cpu_time() == CpuTime(17.0, 12.0, 1.0)
    assert read_cpu_time([1]) == CpuTime(8.0, 5.0, 0.5)
    assert read_cpu_time([0, 1]) == CpuTime(17.0, 12.0, 1.0)


def test_unreadable_time_is_none(stat: Path) -> None:
    assert read_cpu_time([7]) is None
    stat.write_text("cpu  nonsense\n")
    assert read_cpu_time() is None
    stat.unlink()
    assert read_cpu_time() is None


def measured(
    monkeypatch: pytest.MonkeyPatch, seen: Iterator[CpuTime | None], ends: float = 9.0
) -> tuple[Meter, list[float]]:
    """Return the meter of a run that ends after so many seconds, and how long was waited."""
    now, waits = [0.0], list[float]()

    def wait(seconds: float) -> int | None:
        waits.append(seconds)
        now[0] += seconds
        return 0 if now[0] >= ends else None

    monkeypatch.setattr(fio, "read_cpu_time", lambda cpus: next(seen))
    made = Meter(Workload(ramp=0.5, runtime=2.0), (0, 1), clock=lambda: now[0])
    assert made.during(wait, 10.0) == 0
    return made, waits


def test_interrupts_are_measured_during_io(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([CpuTime(100.0, 50.0, 1.0), CpuTime(103.5, 50.7, 1.35)])
    made, waits = measured(monkeypatch, seen)
    assert waits == [0.75, 1.75, 7.5], "from after the warm-up to the end of the runtime"
    assert made.cost is not None
    assert made.cost.interrupts == pytest.approx(0.2)
    assert made.cost.busy == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("seen", "ends"),
    [([CpuTime(1, 0, 0)], 1.0), ([None, None], 9.0), ([CpuTime(1, 0, 0)] * 2, 9.0)],
)
def test_incomplete_run_has_no_cost(
    monkeypatch: pytest.MonkeyPatch, seen: list[CpuTime | None], ends: float
) -> None:
    assert measured(monkeypatch, iter(seen), ends)[0].cost is None


@pytest.mark.parametrize("sensor", ["device/hwmon3", "device/hwmon/hwmon3"])
def test_drive_temperature_is_read(tmp_path: Path, sensor: str) -> None:
    assert read_temperature(tmp_path) is None
    (tmp_path / sensor).mkdir(parents=True)
    (tmp_path / sensor / "temp1_input").write_text("41850\n")
    assert read_temperature(tmp_path) == 41.85
    (tmp_path / sensor / "temp1_input").write_text("warm\n")
    assert read_temperature(tmp_path) is None
