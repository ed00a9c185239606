"""What a run costs the CPUs, on a clock and counters that are made up."""

from pathlib import Path

import pytest

from hbatune.facts import sampler
from hbatune.facts.sampler import CpuTime, read_cpu_time, read_temperature

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


@pytest.mark.parametrize("sensor", ["device/hwmon3", "device/hwmon/hwmon3"])
def test_drive_temperature_is_read(tmp_path: Path, sensor: str) -> None:
    assert read_temperature(tmp_path) is None
    (tmp_path / sensor).mkdir(parents=True)
    (tmp_path / sensor / "temp1_input").write_text("41850\n")
    assert read_temperature(tmp_path) == 41.85
    (tmp_path / sensor / "temp1_input").write_text("warm\n")
    assert read_temperature(tmp_path) is None
