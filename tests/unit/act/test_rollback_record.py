"""The record of a rollback: written first, on a full disk too, and obeyed until it is lifted."""

import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hbatune.act import files, journal, rollback_record
from hbatune.act.executor import Means
from hbatune.act.journal import Journal
from hbatune.act.paths import Paths
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.rollback_record import RecordError, RollbackRecords
from hbatune.act.writer import UnfinishedError, write_plan
from hbatune.plan.rows import Outcome
from hbatune.policy.profile import Exactly
from hbatune.text.limit_text import describe_limit
from tests.unit.disk_files import Disk, filed, planned
from tests.unit.machines import machine

A, B = "naa.a@0000:01:00.0/0:0:0:0", "naa.b@0000:01:00.0/0:0:1:0"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state, run = tmp_path / "state", tmp_path / "run"
    for name, path in (
        ("state", state),
        ("rollbacks", state / "rollbacks"),
        ("rollbacks_now", run / "rollbacks"),
        ("hands_off", state / "hands-off"),
        ("hands_off_now", run / "hands-off"),
    ):
        monkeypatch.setattr(Paths, name, path)
    return state


def full(*args: object, **kwargs: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lift(named: list[str] | None) -> None:
    rollback_record.lift(rollback_record.load(Paths()), named, Paths())


def test_no_record_covers_nothing() -> None:
    assert rollback_record.load(Paths()) == RollbackRecords()
    assert not rollback_record.load(Paths()).covers(A)


def test_apply_lifts_global_rollback() -> None:
    rollback_record.record_rollback(Paths())
    assert rollback_record.load(Paths()).covers_all
    assert rollback_record.load(Paths()).covers(A)
    assert Paths.hands_off.exists(), "the compiled udev rules test for it"
    lift(None)
    assert rollback_record.load(Paths()) == RollbackRecords()
    assert not Paths.hands_off.exists()
    assert not Paths.hands_off_now.exists()


def test_named_apply_lifts_one_target() -> None:
    rollback_record.record_rollback(Paths())
    lift([A])
    records = rollback_record.load(Paths())
    assert (records.covers(A), records.covers(B), records.covers_all) == (False, True, False)
    assert Paths.hands_off.exists()
    rollback_record.record_rollback(Paths())
    assert rollback_record.load(Paths()).covers_all, "what was lifted is rolled back again"


def test_target_lift_needs_name() -> None:
    rollback_record.record_rollback(Paths(), (A,))
    lift(None)
    assert rollback_record.load(Paths()).covers(A)
    assert not rollback_record.load(Paths()).covers(B)
    lift([A])
    assert rollback_record.load(Paths()) == RollbackRecords()


def test_later_rollback_survives_lift() -> None:
    rollback_record.record_rollback(Paths())
    began = rollback_record.load(Paths())
    assert not rollback_record.has_later(began, Paths())
    rollback_record.record_rollback(Paths())
    rollback_record.record_rollback(Paths(), (B,))
    assert rollback_record.has_later(began, Paths())
    rollback_record.lift(began, None, Paths())
    assert rollback_record.load(Paths()).covers(A)
    assert rollback_record.load(Paths()).ids == (B,)
    assert Paths.hands_off.exists()


def test_guard_objects_to_later_rollbacks() -> None:
    rollback_record.record_rollback(Paths())
    guard = rollback_record.load(Paths()).guard(Paths(), named=False)
    assert guard.objection(A) is None
    rollback_record.record_rollback(Paths(), (B,))
    assert guard.objection(A) is None
    assert describe_limit(guard.objection(B)) == "a rollback was recorded during this run"


def test_guard_objects_to_unreadable_records(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = RollbackRecords().guard(Paths(), named=False)

    def fail(path: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "listdir", fail)
    assert "cannot be read: Input/output error" in describe_limit(guard.objection(A))
    assert rollback_record.load(Paths()).covers_all


@pytest.mark.parametrize("damaged", ["{", '{"x": ' + "[" * 5_000], ids=["cut off", "too deep"])
def test_damaged_record_covers_everything(damaged: str) -> None:
    rollback_record.record_rollback(Paths(), (A,))
    (record,) = Paths.rollbacks.iterdir()
    for folder in (Paths.rollbacks, Paths.rollbacks_now):
        (folder / record.name).write_text(damaged)
    rollback_record.record_rollback(Paths(), (B,))
    records = rollback_record.load(Paths())
    assert (records.covers_all, records.damaged) == (True, (record.name,))
    assert records.ids == (B,), "the damaged one is no rollback of everything on disk"
    assert not Paths.hands_off.exists()


def test_full_disk_accepts_global_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_make_temporary", full)
    rollback_record.record_rollback(Paths())
    assert rollback_record.load(Paths()).covers_all
    (record,) = Paths.rollbacks.iterdir()
    assert record.stat().st_size == 0, "it takes no block"


def test_unwritable_state_is_reported(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("no folder")
    with pytest.raises(RecordError, match="cannot be recorded"):
        rollback_record.record_rollback(Paths())
    folder.unlink()
    assert rollback_record.load(Paths()).covers_all


def test_full_disk_accepts_reserved_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    rollback_record.reserve_space(Paths.state, [A, B])
    monkeypatch.setattr(files, "_make_temporary", full)
    rollback_record.record_rollback(Paths(), (A, B))
    assert rollback_record.load(Paths()).ids == (A, B)


def test_run_folder_failure_preserves_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("no folder")
    rollback_record.record_rollback(Paths())
    assert rollback_record.load(Paths()).covers_all


def test_mark_without_record_is_honoured() -> None:
    for mark in (Paths.hands_off, Paths.hands_off_now):
        mark.parent.mkdir()
        mark.touch()
    assert rollback_record.load(Paths()).covers_all
    lift([A])
    records = rollback_record.load(Paths())
    assert (records.covers(A), records.covers(B)) == (False, True)
    assert Paths.hands_off.exists()
    lift(None)
    assert not rollback_record.load(Paths()).records
    assert not Paths.hands_off.exists()


def test_reserve_allows_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    files.replace(path, b"before")
    files.reserve_space(path, 10)
    monkeypatch.setattr(files, "_make_temporary", full)
    with pytest.raises(OSError, match="No space"):
        files.replace(path, b"longer than the block that is kept" * 200)
    assert path.read_bytes() == b"before"
    files.replace(path, b"after", mode=0o640)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"after", 0o640)
    with pytest.raises(OSError, match="No space"):
        files.replace(path, b"more")
    assert path.read_bytes() == b"after"


def test_small_growth_retains_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    files.reserve_space(path, 10)
    monkeypatch.setattr(files, "_make_temporary", full)
    files.reserve_space(path, 20)
    with pytest.raises(OSError, match="No space"):
        files.reserve_space(path, 8000)


# -- apply and rollback while the disk fills up ---------------------------------------------------


class Bench:
    """A disk whose nomerges an apply sets."""

    def __init__(self, tmp_path: Path) -> None:
        self.disk = Disk(tmp_path / "sys", "sda")
        self.means = Means(
            Paths.state / "journal.json", tmp_path / "run/writers", tmp_path / "spent.json", 1, 20.0
        )

    def apply(self) -> list[Outcome | None]:
        host = machine(self.disk.endpoint())
        plan = planned(host, ("nomerges", Exactly(1)))
        return [row.outcome for row in write_plan(host, plan, filed(self.means), self.means)]

    def rollback(self) -> list[Outcome | None]:
        host = machine(self.disk.endpoint())
        return [
            row.outcome
            for row in restore_values(
                plan_rollback(host, filed(self.means), self.means), self.means
            )
        ]


def test_rollback_works_on_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    bench.apply()
    monkeypatch.setattr(files, "_make_temporary", full)
    assert bench.rollback() == [Outcome.WRITTEN]
    assert bench.disk.value("queue/nomerges") == "0"
    assert not bench.means.journal.exists()


def test_apply_finishes_on_filling_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = journal.save

    def save(path: Path, saved_journal: Journal, **options: Any) -> tuple[int, int]:
        saved = real(path, saved_journal, **options)
        monkeypatch.setattr(files, "_make_temporary", full)
        return saved

    monkeypatch.setattr(journal, "save", save)
    bench = Bench(tmp_path)
    assert bench.apply() == [Outcome.WRITTEN]
    assert filed(bench.means).run is None


def test_unfinished_journal_preserves_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = journal.save

    def save(path: Path, saved_journal: Journal, **options: Any) -> tuple[int, int]:
        if saved_journal.run is None:
            raise journal.JournalError("the journal cannot be written: Input/output error")
        return real(path, saved_journal, **options)

    monkeypatch.setattr(journal, "save", save)
    bench = Bench(tmp_path)
    with pytest.raises(UnfinishedError) as caught:
        bench.apply()
    assert [row.outcome for row in caught.value.rows] == [Outcome.WRITTEN]
    entries = filed(bench.means).entries
    assert [(entry.setting, entry.before) for entry in entries] == [("nomerges", 0)]


def test_missing_reserve_prevents_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    bench = Bench(tmp_path)
    with pytest.raises(journal.JournalError, match="No space"):
        bench.apply()
    assert bench.disk.value("queue/nomerges") == "0"
