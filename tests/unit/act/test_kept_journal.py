"""The journal that is appended to: what it holds after any changes, crashes and other writers."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.act import files, journal, kept_journal
from hbatune.act.journal import Entry, Journal, JournalError, Run
from hbatune.act.kept_journal import KeptJournal
from hbatune.act.rollback_record import RollbackRecord, RollbackRecords
from hbatune.workers import Process
from tests.unit.machines import machine

HOST = machine()
RUN = Run("apply", "oltp", Process(1, 1), 0.0)


def entry(id: str, setting: str = "nomerges", value: int = 1) -> Entry:
    return Entry(id, id, None, setting, 0, value)


class Kept:
    """A file of many targets, a process that appends to it, and what has to be in it."""

    def __init__(self, folder: Path, others: int = 100) -> None:
        self.path = folder / "state" / "journal.json"
        self.log = self.path.with_suffix(".log")
        further = (entry(f"other-{number}") for number in range(others))
        entries = (*(entry(id) for id in "abcd"), *further)
        self.expected = Journal(HOST.boot_id, entries)
        journal.save(self.path, self.expected, keep_room=True)
        self.kept = KeptJournal(self.path)

    def put(self, *changed: Entry, gone: str = "", run: Run | None = None) -> None:
        """Replace the entries of these, as a pass does over the targets that they are of."""
        self.kept.refresh(lambda: HOST)
        ids = {each.id for each in changed} | set(gone)
        before = {each.key: each for each in self.kept.part(ids).entries if each.id not in gone}
        part = self.kept.part(ids)
        after = before | {each.key: each for each in changed}
        self.kept.save(replace(part, entries=tuple(after.values()), run=run), ids, keep_room=True)
        all_of = {each.key: each for each in self.expected.entries if each.id not in gone}
        all_of |= {each.key: each for each in changed}
        if all_of == {each.key: each for each in self.expected.entries} and not self.expected.run:
            run = None  # it changes nothing, and is not recorded
        self.expected = replace(self.expected, entries=tuple(all_of.values()), run=run)

    def found(self) -> Journal:
        return replace(journal.load(self.path, HOST.boot_id)[0], sequence=0)

    def is_right(self) -> bool:
        found, wanted = self.found(), self.expected
        return {each.key: each for each in found.entries} == {
            each.key: each for each in wanted.entries
        } and replace(found, entries=()) == replace(wanted, entries=())


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_change_appends_line_only(kept: Kept) -> None:
    before = kept.path.read_bytes()
    kept.put(entry("b", value=2), run=RUN)
    kept.put(entry("b", value=2), entry("b", "rq_affinity"))
    assert kept.path.read_bytes() == before
    assert kept.is_right()
    assert journal.list_changed_settings(kept.path, HOST.boot_id) == {"nomerges", "rq_affinity"}
    assert kept.log.stat().st_mode & 0o777 == files.READABLE_MODE


def test_unchanged_entry_writes_nothing(kept: Kept) -> None:
    kept.put(entry("b"))
    assert not kept.log.exists()


def test_repeated_run_writes_nothing(kept: Kept) -> None:
    kept.put(entry("b"), run=RUN)
    kept.put(entry("b"))
    assert not kept.log.exists()
    kept.put(entry("b", value=2), run=RUN)
    assert kept.found().run == RUN
    kept.put(entry("b", value=2))
    assert kept.found().run is None, "the end of a run that is on record is recorded"


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 2), st.booleans()), max_size=12
    ),
    lost=st.integers(0, 2000) | st.integers(3000, 6000),
)
def test_crash_leaves_earlier_state(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]], lost: int
) -> None:
    kept = Kept(tmp_path_factory.mktemp("kept"))
    states = [kept.found()]
    for id, value, back in steps:
        if back:
            kept.put(gone=id)
        else:
            kept.put(entry(id, value=value), run=RUN if value else None)
        assert kept.is_right()
        states.append(kept.found())
    # The crash of the machine takes the trace: after one of hbatune the log is whole.
    kept.path.with_suffix(".sequence").unlink()
    if kept.log.exists():
        os.truncate(kept.log, max(0, kept.log.stat().st_size - lost))
    assert kept.found() in states
    after = Kept.__new__(Kept)  # another process goes on
    after.path, after.log, after.expected = kept.path, kept.log, kept.found()
    after.kept = KeptJournal(kept.path)
    after.put(entry("z"))
    assert after.is_right()


def test_stale_log_is_ignored(kept: Kept) -> None:
    kept.put(entry("b", value=2))
    log = kept.log.read_bytes()
    journal.save(kept.path, Journal(HOST.boot_id, (entry("a", value=7),)))
    assert not kept.log.exists()
    kept.log.write_bytes(log)  # as a crash between the two leaves it
    assert kept.found().entries == (entry("a", value=7),)


def test_damaged_line_costs_only_itself(kept: Kept) -> None:
    kept.put(entry("b", value=2))
    kept.put(entry("c", value=2))
    kept.log.write_bytes(kept.log.read_bytes().replace(b'"of"', b'"if', 1))
    found = kept.found()
    loss = journal.LostError(found.losses).message
    assert loss.startswith(f"{kept.log}: line 1 is damaged (b nomerges): ")
    assert {entry("b"), entry("c", value=2)} <= set(found.entries)


def test_foreign_write_triggers_reread(kept: Kept) -> None:
    kept.put(entry("b", value=2))
    kept.expected = Journal(HOST.boot_id, (entry("a", value=7), entry("b", value=7)))
    journal.save(kept.path, kept.expected)
    kept.put(entry("b", value=8))
    assert kept.is_right()


@pytest.mark.parametrize("bound", ["MAX_LOG_BYTES", "MAX_NEW_IDS"])
def test_grown_log_is_compacted(kept: Kept, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(kept_journal, bound, 2 if bound == "MAX_NEW_IDS" else 1000)
    before = kept.path.read_bytes()
    for number in range(9):
        kept.put(entry(f"new-{number}"), run=RUN)
        assert kept.is_right()
    assert kept.path.read_bytes() != before
    assert not kept.log.exists() or kept.log.stat().st_size <= 1000


@pytest.mark.parametrize("others", [0, 100])
def test_log_fits_in_reserve(tmp_path: Path, others: int) -> None:
    """A rollback on a full disk writes the file and the log into the reserve of the file."""
    kept = Kept(tmp_path, others)
    reserve = kept.path.with_name(".journal.json.reserve")
    for number in range(300):
        kept.put(entry("a", f"s{number}"), run=RUN)
        assert len(msgspec.json.encode(kept.expected)) <= reserve.stat().st_size
    assert kept.is_right()


def test_small_journal_avoids_rewrites(tmp_path: Path) -> None:
    small, sizes = Kept(tmp_path, others=0), set[int]()
    before = small.path.read_bytes()
    for number in range(20):
        small.put(entry("b", value=number), run=RUN)
        small.put(entry("b", value=number))
        sizes.add(small.log.stat().st_size)
    assert all(size % 4096 == 0 for size in sizes), "no event makes the file longer by itself"
    assert small.path.read_bytes() == before
    assert small.is_right()


def test_compaction_removes_log(kept: Kept) -> None:
    kept.put(entry("b", value=2))
    other = KeptJournal(kept.path)
    other.refresh(lambda: HOST)
    other.compact()
    assert not kept.log.exists()
    assert kept.is_right()


def test_failed_write_is_not_remembered(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept.put(entry("b", value=2))
    expected = kept.expected
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_at", full)
        with pytest.raises(JournalError, match="No space left"):
            kept.put(entry("b", value=3))
    assert kept.expected == expected
    assert kept.is_right()
    kept.put(entry("c", value=4))
    assert kept.is_right()


RECORD = RollbackRecords()


def damage(kept: Kept) -> None:
    kept.path.write_bytes(kept.path.read_bytes().replace(b'"before":0', b'"before":1', 1))


def lose(kept: Kept) -> None:
    kept.path.unlink()
    kept.log.unlink(missing_ok=True)


@pytest.mark.parametrize("happens", [damage, lose, lambda kept: kept.log.unlink()])
def test_memory_restores_lost_journal(kept: Kept, happens: Callable[[Kept], None]) -> None:
    kept.kept.recover(RECORD)
    kept.put(entry("b", value=2))
    happens(kept)
    assert kept.found().losses
    assert kept.kept.recover(RECORD)
    assert kept.is_right()
    assert kept.kept.recover(RECORD) == ()
    kept.put(entry("c", value=3))
    assert kept.is_right()


def test_older_memory_loses_to_journal(kept: Kept) -> None:
    kept.kept.recover(RECORD)
    kept.put(entry("b", value=2))
    journal.save(kept.path, Journal(HOST.boot_id, (entry("a", value=7),)))
    lose(kept)
    assert kept.kept.recover(RECORD) == ()
    assert not kept.path.exists()
    kept.kept.refresh(lambda: HOST)
    assert kept.kept.part(["b"]).losses


def test_older_memory_loses_to_rollback(kept: Kept) -> None:
    kept.kept.recover(RECORD)
    kept.put(entry("b", value=2))
    lose(kept)
    assert kept.kept.recover(RollbackRecords((RollbackRecord("targets-1", ("b",)),))) == ()
    assert not kept.path.exists()


def test_removed_journal_stays_removed(kept: Kept) -> None:
    kept.kept.recover(RECORD)
    kept.put(entry("b", value=2))
    journal.save(kept.path, Journal(HOST.boot_id))
    assert kept.kept.recover(RECORD) == ()
    assert not kept.path.exists()
