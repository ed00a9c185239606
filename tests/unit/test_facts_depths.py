"""What is read without a worker: depths of disks, and the driver of a host."""

from pathlib import Path

import pytest

from hbatune.agent.events import DeviceEvent, _resets_settings
from hbatune.facts import depths
from hbatune.settings.table import Cause


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(depths, "_BLOCK", str(tmp_path))
    monkeypatch.setattr(depths, "_HOSTS", str(tmp_path))
    return tmp_path


def test_depths_are_read_and_what_is_gone_is_left_out(folders: Path) -> None:
    for name, text in (("sda", "64\n"), ("sdb", "nonsense\n")):
        (folders / name / "device").mkdir(parents=True)
        (folders / name / "device" / "queue_depth").write_text(text)
    assert depths.queue_depths(["sda", "sdb", "sdc"]) == {"sda": 64}


@pytest.mark.parametrize(("driver", "heard"), [("mpi3mr\n", True), ("mpt3sas\n", False)])
def test_a_reset_is_an_event_only_where_the_driver_sets_anything(
    folders: Path, driver: str, heard: bool
) -> None:
    (folders / "host0").mkdir()
    (folders / "host0" / "proc_name").write_text(driver)
    assert _resets_settings(DeviceEvent("host0", Cause.RESET)) is heard
    assert not _resets_settings(DeviceEvent("host1", Cause.RESET)), "it is gone"
    assert _resets_settings(DeviceEvent("host0", None))
