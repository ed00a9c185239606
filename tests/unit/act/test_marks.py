"""Which disks are new: by the kernel's number of each, and not because they were announced."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import marks
from hbatune.facts.model import Endpoint, Machine
from tests.unit.machines import control, endpoint, machine


def disk(name: str, number: int) -> Endpoint:
    """A disk with this sequence number."""
    return endpoint(target=name, id=f"id-{name}", diskseq=number)


def test_disk_is_new_until_marked(tmp_path: Path) -> None:
    host = machine(disk("sda", 1), disk("sdb", 2))
    assert marks.find_unseen_targets(tmp_path / "seen", host) == {"id-sda", "id-sdb"}
    marks.remember_disks(tmp_path / "seen", host, ["id-sda"])
    assert marks.find_unseen_targets(tmp_path / "seen", host) == {"id-sdb"}
    assert [mark.name for mark in (tmp_path / "seen").iterdir()] == ["1"], "a udev rule asks for it"


def test_returning_disk_is_new(tmp_path: Path) -> None:
    marks.remember_disks(tmp_path, machine(disk("sda", 1)))
    assert marks.find_unseen_targets(tmp_path, machine(disk("sda", 3))) == {"id-sda"}


def test_numberless_target_uses_id(tmp_path: Path) -> None:
    host = machine(endpoint(), controls=(control(),))
    marks.remember_disks(tmp_path, host)
    assert marks.find_unseen_targets(tmp_path, host) == frozenset()
    second_host = replace(host, controls=(control(id="nvme1@0000:02:00.0"),))
    assert marks.find_unseen_targets(tmp_path, second_host) == {"nvme1@0000:02:00.0"}


def test_full_pass_removes_stale_marks(tmp_path: Path) -> None:
    marks.remember_disks(tmp_path, machine(disk("sda", 1), disk("sdb", 2)))
    host = machine(disk("sda", 1), disk("sdb", 3))
    marks.remember_disks(tmp_path, host, ["id-sdb"])
    assert {mark.name for mark in tmp_path.iterdir()} == {"1", "2", "3"}
    marks.remember_disks(tmp_path, host)
    assert {mark.name for mark in tmp_path.iterdir()} == {"1", "3"}


def test_unfinished_disk_stays_new(tmp_path: Path) -> None:
    host = machine(disk("sda", 1), disk("sdb", 2))
    marks.remember_disks(tmp_path, host, unfinished=["id-sdb"])
    assert marks.find_unseen_targets(tmp_path, host) == {"id-sdb"}


def test_failed_mark_raises_but_counts(tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    folder.write_text("no folder")
    host: Machine = machine(disk("sda", 1), disk("sdb", 2))
    with pytest.raises(marks.MarkError, match="disks cannot be marked as seen"):
        marks.remember_disks(folder, host, ["id-sda"])
    # A disk that stays new would be tuned again at each pass, over an administrator's values.
    assert marks.find_unseen_targets(folder, host) == {"id-sdb"}
    folder.unlink()
    marks.remember_disks(folder, host, ["id-sda"])
    assert (folder / "1").exists(), "tried again"


def test_marks_survive_disk_turnover(tmp_path: Path) -> None:
    old = machine(*(disk(f"sd{number}", number) for number in range(100)))
    new = machine(*(disk(f"sd{number}", 50 + number) for number in range(100)))
    marks.remember_disks(tmp_path, old)
    assert marks.find_unseen_targets(tmp_path, new) >= {
        f"id-sd{number}" for number in range(50, 100)
    }
    assert not marks.find_unseen_targets(tmp_path, new) & {f"id-sd{number}" for number in range(50)}
    marks.remember_disks(tmp_path, new)
    assert not marks.find_unseen_targets(tmp_path, new)
    assert {f"id-sd{number}" for number in range(50)} <= marks.find_unseen_targets(tmp_path, old)
