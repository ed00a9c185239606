"""The record of a rollback: written first, on a full disk too, and obeyed until it is lifted."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hbatune.act import files, hands_off, journal, paths
from hbatune.act.apply import UnfinishedError, apply
from hbatune.act.hands_off import HandsOff, RecordError
from hbatune.act.journal import Entry, Journal
from hbatune.act.means import Means
from hbatune.act.paths import Paths
from hbatune.act.rollback import rollback
from hbatune.plan.rows import Outcome
from hbatune.policy.model import Exactly
from tests.unit.factory import machine
from tests.unit.test_act import Disk, filed, planned

A, B = "naa.a@0000:01:00.0/0:0:0:0", "naa.b@0000:01:00.0/0:0:1:0"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    for name, path in (
        ("STATE", state),
        ("HANDS_OFF", state / "hands-off"),
        ("HANDS_OFF_NOW", tmp_path / "run/hands-off"),
        ("HANDS_OFF_TARGETS", state / "hands-off.json"),
    ):
        monkeypatch.setattr(paths, name, path)
    return state


def full(*args: object, **kwargs: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_nothing_is_recorded_at_first() -> None:
    assert hands_off.load(Paths()) == HandsOff()
    assert not hands_off.load(Paths()).covers(A)


def test_everything_is_covered_until_an_apply_to_everything_lifts_it() -> None:
    hands_off.roll_back_everything(Paths())
    assert hands_off.load(Paths()).whole
    assert hands_off.load(Paths()).covers(A)
    hands_off.save(hands_off.load(Paths()).applied(None), Paths())
    assert hands_off.load(Paths()) == HandsOff()


def test_an_apply_that_names_a_target_lifts_it_alone() -> None:
    hands_off.roll_back_everything(Paths())
    hands_off.save(hands_off.load(Paths()).applied([A]), Paths())
    record = hands_off.load(Paths())
    assert (record.covers(A), record.covers(B), record.whole) == (False, True, False)
    hands_off.roll_back_everything(Paths())
    assert hands_off.load(Paths()).whole, "what was lifted is rolled back again"


def test_a_target_that_was_rolled_back_by_name_is_lifted_by_its_name_alone() -> None:
    hands_off.save(hands_off.load(Paths()).with_targets([A]), Paths())
    hands_off.save(hands_off.load(Paths()).applied(None), Paths())
    assert hands_off.load(Paths()).covers(A)
    assert not hands_off.load(Paths()).covers(B)
    hands_off.save(hands_off.load(Paths()).applied([A]), Paths())
    assert hands_off.load(Paths()) == HandsOff()
    assert not paths.HANDS_OFF_TARGETS.exists()


def test_a_list_that_cannot_be_read_means_hands_off_everything() -> None:
    paths.STATE.mkdir(parents=True)
    paths.HANDS_OFF_TARGETS.write_text("{")
    assert (hands_off.load(Paths()).whole, hands_off.load(Paths()).damaged) == (True, True)


def test_a_full_disk_takes_the_record_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkstemp", full)
    hands_off.roll_back_everything(Paths())
    assert hands_off.load(Paths()).whole
    assert paths.HANDS_OFF.stat().st_size == 0, "it takes no block"


def test_where_even_that_fails_it_holds_for_this_boot_and_is_said(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("no folder")
    with pytest.raises(RecordError, match="cannot be recorded"):
        hands_off.roll_back_everything(Paths())
    folder.unlink()
    assert hands_off.load(Paths()).whole


def test_a_full_disk_takes_a_list_that_room_was_kept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hands_off.keep_room(paths.STATE, [A, B])
    monkeypatch.setattr(tempfile, "mkstemp", full)
    hands_off.save(HandsOff().with_targets([A, B]), Paths())
    assert hands_off.load(Paths()).ids == (A, B)


def test_a_file_is_replaced_on_a_full_disk_where_room_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    files.replace(path, b"before")
    files.keep_room(path, 10)
    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(OSError, match="No space"):
        files.replace(path, b"longer than the block that is kept" * 200)
    assert path.read_bytes() == b"before"
    files.replace(path, b"after", mode=0o640)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"after", 0o640)
    with pytest.raises(OSError, match="No space"):
        files.replace(path, b"more")
    assert path.read_bytes() == b"after"


def test_a_file_that_grows_by_a_few_bytes_keeps_its_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    files.keep_room(path, 10)
    monkeypatch.setattr(tempfile, "mkstemp", full)
    files.keep_room(path, 20)
    with pytest.raises(OSError, match="No space"):
        files.keep_room(path, 8000)


# -- apply and rollback while the disk fills up ---------------------------------------------------


class Bench:
    """A disk whose nomerges an apply sets."""

    def __init__(self, tmp_path: Path) -> None:
        self.disk = Disk(tmp_path / "sys", "sda")
        self.means = Means(
            paths.STATE / "journal.json", tmp_path / "run/writers", tmp_path / "spent.json", 1, 20.0
        )

    def apply(self) -> list[Outcome | None]:
        host = machine(self.disk.endpoint())
        plan = planned(host, ("nomerges", Exactly(1)))
        return [row.outcome for row in apply(host, plan, filed(self.means), self.means)]

    def rollback(self) -> list[Outcome | None]:
        host = machine(self.disk.endpoint())
        return [row.outcome for row in rollback(host, filed(self.means), self.means)]


def test_a_disk_that_fills_up_after_an_apply_keeps_nothing_from_going_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.apply()
    monkeypatch.setattr(tempfile, "mkstemp", full)
    assert bench.rollback() == [Outcome.WRITTEN]
    assert bench.disk.value("queue/nomerges") == "0"
    assert not bench.means.journal.exists()


def test_a_disk_that_fills_up_during_an_apply_lets_it_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = journal.save

    def save(path: Path, what: Journal, **options: Any) -> bytes:
        data = real(path, what, **options)
        monkeypatch.setattr(tempfile, "mkstemp", full)
        return data

    monkeypatch.setattr(journal, "save", save)
    bench = Bench(tmp_path)
    assert bench.apply() == [Outcome.WRITTEN]
    assert filed(bench.means).run is None


def test_an_apply_whose_journal_cannot_be_finished_still_has_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = journal.save

    def save(path: Path, what: Journal, **options: Any) -> bytes:
        if what.run is None:
            raise journal.JournalError("the journal cannot be written: Input/output error")
        return real(path, what, **options)

    monkeypatch.setattr(journal, "save", save)
    bench = Bench(tmp_path)
    with pytest.raises(UnfinishedError) as caught:
        bench.apply()
    assert [row.outcome for row in caught.value.rows] == [Outcome.WRITTEN]
    entries = filed(bench.means).entries
    assert [(entry.setting, entry.before) for entry in entries] == [("nomerges", 0)]


def test_without_room_for_the_way_back_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    bench = Bench(tmp_path)
    with pytest.raises(journal.JournalError, match="No space"):
        bench.apply()
    assert bench.disk.value("queue/nomerges") == "0"


def test_what_an_earlier_version_kept_in_the_journal_is_rolled_back_still(tmp_path: Path) -> None:
    old = Journal("boot", (Entry(B, "sdb", None, "nomerges", 0, 1),), excluded=(A,))
    assert journal.rollback_record(old, HandsOff(), machine()).covers(A)
