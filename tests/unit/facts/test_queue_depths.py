"""What is read without a worker: depths of disks, and the driver of a host."""

import os
from pathlib import Path

import pytest

from hbatune.agent.events import DeviceEvent, _resets_settings
from hbatune.facts import queue_depths
from hbatune.facts.model import TargetKind
from hbatune.settings.table import Cause


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(queue_depths, "_BLOCK", str(tmp_path))
    monkeypatch.setattr(queue_depths, "_HOSTS", str(tmp_path))
    return tmp_path


def put(folders: Path, **depths: str) -> None:
    for name, text in depths.items():
        (folders / name / "device").mkdir(parents=True, exist_ok=True)
        (folders / name / "device" / "queue_depth").write_text(text)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_readable_depths_are_returned(folders: Path) -> None:
    put(folders, sda="64\n", sdb="nonsense\n")
    files = queue_depths.DepthFiles()
    assert files.read(["sda", "sdb", "sdc"]) == {"sda": 64}
    put(folders, sda="32\n", sdb="16\n", sdc="8\n")
    assert files.read(["sda", "sdb", "sdc"]) == {"sda": 32, "sdb": 16, "sdc": 8}


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        (TargetKind.ENDPOINT, "block"),
        (TargetKind.CONTROLLER, "nvme"),
        (TargetKind.HOST, "scsi_host"),
    ],
)
def test_files_of_target_have_inodes(
    folders: Path, monkeypatch: pytest.MonkeyPatch, kind: TargetKind, folder: str
) -> None:
    monkeypatch.setattr(queue_depths, "SYSFS", str(folders))
    file = folders / "class" / folder / "x0" / "one"
    file.parent.mkdir(parents=True)
    file.touch()
    assert queue_depths.find_inodes(kind, "x0", ["missing", "one"]) == [file.stat().st_ino]
    assert queue_depths.find_inodes(TargetKind.VECTOR, "x0", ["one"]) == []


def test_open_files_are_limited(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_depths, "MAX_OPEN_FILES", 2)
    names = ["sda", "sdb", "sdc", "sdd"]
    put(folders, **dict.fromkeys(names, "64\n"))
    files, before = queue_depths.DepthFiles(), descriptors()
    assert files.read(names) == dict.fromkeys(names, 64)
    assert descriptors() == before + 2
    assert files.read(["sdd"]) == {"sdd": 64}
    assert descriptors() == before + 1
    assert files.read([]) == {}
    assert descriptors() == before


@pytest.mark.parametrize(
    ("driver", "heard"), [("mpi3mr\n", True), ("mpt3sas\n", True), ("smartpqi\n", False)]
)
def test_reset_event_depends_on_driver(folders: Path, driver: str, heard: bool) -> None:
    (folders / "host0").mkdir()
    (folders / "host0" / "proc_name").write_text(driver)
    assert _resets_settings(DeviceEvent("host0", Cause.RESET)) is heard
    assert not _resets_settings(DeviceEvent("host1", Cause.RESET)), "it is gone"
    assert _resets_settings(DeviceEvent("host0", None))
