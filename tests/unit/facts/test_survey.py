"""Reading many devices' attributes at once."""

import errno
import os
from pathlib import Path

import pytest

from hbatune.facts.attributes import read_attributes
from hbatune.facts.model import Attribute, Missing, Reason
from hbatune.facts.survey import NoWorkerError, survey_requests
from hbatune.workers import pool
from tests.unit.sysfs_disks import hang_queue, make_disk

TIMED_OUT = Missing(Reason.UNREADABLE, errno.ETIMEDOUT)


def test_survey_matches_single_reads(tmp_path: Path) -> None:
    """Of disks that differ in their values, in the files they have and in their tunables."""
    disks = [make_disk(tmp_path / f"sd{n}") for n in range(100)]
    for number, disk in enumerate(disks):
        if number % 3 == 0:
            (disk / "queue/nr_requests").unlink()
        elif number % 5 == 0:
            (disk / "queue/nr_requests").write_text(f"{number}\n")
        if number % 4 == 0:
            (disk / "queue/iosched/depth").write_text("48\n")
    wanted = ("queue/nr_requests", "queue/iosched/*", "queue/nothing")
    surveyed = survey_requests(dict.fromkeys(map(str, disks), wanted), deadline=10)
    assert surveyed == {str(disk): read_attributes(str(disk), wanted) for disk in disks}
    has = [isinstance(surveyed[str(disk)]["queue/nr_requests"], Attribute) for disk in disks]
    assert has == [number % 3 != 0 for number in range(100)]


def test_empty_survey_returns_nothing() -> None:
    assert survey_requests({}, deadline=10) == {}


def test_hanging_disk_loses_queue(tmp_path: Path) -> None:
    disks = [make_disk(tmp_path / "host0" / "a" / f"sd{n}") for n in range(10)]
    hang_queue(disks[3])
    wanted = ("queue/nr_requests", "device/state")
    surveyed = survey_requests(dict.fromkeys(map(str, disks), wanted), deadline=3)
    state = Attribute("running", True)
    assert surveyed.pop(str(disks[3])) == {"device/state": state, "queue/nr_requests": TIMED_OUT}
    assert len(surveyed) == 9
    for attributes in surveyed.values():
        assert attributes == {"device/state": state, "queue/nr_requests": Attribute("256", True)}


def test_silent_disk_times_out(tmp_path: Path) -> None:
    disk = make_disk(tmp_path / "sda")
    (disk / "device" / "state").unlink()
    os.mkfifo(disk / "device" / "state")
    wanted = ("device/state", "queue/nr_requests")
    surveyed = survey_requests({str(disk): wanted}, deadline=0.3)
    assert surveyed == {str(disk): {"device/state": TIMED_OUT, "queue/nr_requests": TIMED_OUT}}


def test_avoided_disk_reports_reason(tmp_path: Path) -> None:
    disk = make_disk(tmp_path / "sda")
    hang_queue(disk)
    wanted = {str(disk): ("queue/nr_requests", "device/state")}
    surveyed = survey_requests(wanted, deadline=10, avoid={str(disk): "a writer is at it"})
    assert surveyed[str(disk)] == {
        "device/state": Attribute("running", True),
        "queue/nr_requests": Missing(Reason.UNREADABLE, text="a writer is at it"),
    }


def test_survey_without_processes_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(pool, "START_PATIENCE_S", 0.05)
    with pytest.raises(NoWorkerError, match="Resource temporarily unavailable"):
        survey_requests({str(tmp_path): ("size",)}, deadline=20)
