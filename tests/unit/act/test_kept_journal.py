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


class JournalHarness:
    """A journal of many targets, a process that appends to it, and the expected content."""

    def __init__(self, folder: Path, further_count: int = 100) -> None:
        self.path = folder / "state" / "journal.json"
        self.log = self.path.with_suffix(".log")
        further = (entry(f"other-{number}") for number in range(further_count))
        entries = (*(entry(id) for id in "abcd"), *further)
        self.expected = Journal(HOST.boot_id, entries)
        journal.save(self.path, self.expected, keep_room=True)
        self.kept_journal = KeptJournal(self.path)

    def put(self, *changed: Entry, removed_ids: str = "", run: Run | None = None) -> None:
        """Replace the entries of the changed and removed targets, as a pass does."""
        self.kept_journal.refresh(lambda: HOST)
        ids = {change.id for change in changed} | set(removed_ids)
        before = {
            stored.key: stored
            for stored in self.kept_journal.part(ids).entries
            if stored.id not in removed_ids
        }
        part = self.kept_journal.part(ids)
        after = before | {change.key: change for change in changed}
        self.kept_journal.save(
            replace(part, entries=tuple(after.values()), run=run), ids, keep_room=True
        )
        all_of = {
            stored.key: stored for stored in self.expected.entries if stored.id not in removed_ids
        }
        all_of |= {change.key: change for change in changed}
        if (
            all_of == {stored.key: stored for stored in self.expected.entries}
            and not self.expected.run
        ):
            run = None  # it changes nothing, and is not recorded
        self.expected = replace(self.expected, entries=tuple(all_of.values()), run=run)

    def load(self) -> Journal:
        return replace(journal.load(self.path, HOST.boot_id)[0], sequence=0)

    def is_right(self) -> bool:
        loaded, wanted = self.load(), self.expected
        return {stored.key: stored for stored in loaded.entries} == {
            stored.key: stored for stored in wanted.entries
        } and replace(loaded, entries=()) == replace(wanted, entries=())


@pytest.fixture
def harness(tmp_path: Path) -> JournalHarness:
    return JournalHarness(tmp_path)


def test_change_appends_line_only(harness: JournalHarness) -> None:
    before = harness.path.read_bytes()
    harness.put(entry("b", value=2), run=RUN)
    harness.put(entry("b", value=2), entry("b", "rq_affinity"))
    assert harness.path.read_bytes() == before
    assert harness.is_right()
    assert journal.list_changed_settings(harness.path, HOST.boot_id) == {"nomerges", "rq_affinity"}
    assert harness.log.stat().st_mode & 0o777 == files.READABLE_MODE


def test_unchanged_entry_writes_nothing(harness: JournalHarness) -> None:
    harness.put(entry("b"))
    assert not harness.log.exists()


def test_repeated_run_writes_nothing(harness: JournalHarness) -> None:
    harness.put(entry("b"), run=RUN)
    harness.put(entry("b"))
    assert not harness.log.exists()
    harness.put(entry("b", value=2), run=RUN)
    assert harness.load().run == RUN
    harness.put(entry("b", value=2))
    assert harness.load().run is None, "the end of a run that is on record is recorded"


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 2), st.booleans()), max_size=12
    ),
    lost=st.integers(0, 2000) | st.integers(3000, 6000),
)
def test_crash_leaves_earlier_state(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]], lost: int
) -> None:
    harness = JournalHarness(tmp_path_factory.mktemp("kept"))
    states = [harness.load()]
    for id, value, back in steps:
        if back:
            harness.put(removed_ids=id)
        else:
            harness.put(entry(id, value=value), run=RUN if value else None)
        assert harness.is_right()
        states.append(harness.load())
    # The crash of the machine takes the trace: after one of hbatune the log is whole.
    harness.path.with_suffix(".sequence").unlink()
    if harness.log.exists():
        os.truncate(harness.log, max(0, harness.log.stat().st_size - lost))
    assert harness.load() in states
    after = JournalHarness.__new__(JournalHarness)  # another process goes on
    after.path, after.log, after.expected = harness.path, harness.log, harness.load()
    after.kept_journal = KeptJournal(harness.path)
    after.put(entry("z"))
    assert after.is_right()


def test_stale_log_is_ignored(harness: JournalHarness) -> None:
    harness.put(entry("b", value=2))
    log = harness.log.read_bytes()
    journal.save(harness.path, Journal(HOST.boot_id, (entry("a", value=7),)))
    assert not harness.log.exists()
    harness.log.write_bytes(log)  # as a crash between the two leaves it
    assert harness.load().entries == (entry("a", value=7),)


def test_damaged_line_costs_only_itself(harness: JournalHarness) -> None:
    harness.put(entry("b", value=2))
    harness.put(entry("c", value=2))
    harness.log.write_bytes(harness.log.read_bytes().replace(b'"entries"', b'"entryes', 1))
    loaded = harness.load()
    loss = journal.LostError(loaded.losses).message
    assert loss.startswith(f"{harness.log}: line 1 is damaged (b nomerges): ")
    assert {entry("b"), entry("c", value=2)} <= set(loaded.entries)


def test_foreign_write_triggers_reread(harness: JournalHarness) -> None:
    harness.put(entry("b", value=2))
    harness.expected = Journal(HOST.boot_id, (entry("a", value=7), entry("b", value=7)))
    journal.save(harness.path, harness.expected)
    harness.put(entry("b", value=8))
    assert harness.is_right()


@pytest.mark.parametrize("bound", ["MAX_LOG_BYTES", "MAX_NEW_IDS"])
def test_grown_log_is_compacted(
    harness: JournalHarness, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(kept_journal, bound, 2 if bound == "MAX_NEW_IDS" else 1000)
    before = harness.path.read_bytes()
    for number in range(9):
        harness.put(entry(f"new-{number}"), run=RUN)
        assert harness.is_right()
    assert harness.path.read_bytes() != before
    assert not harness.log.exists() or harness.log.stat().st_size <= 1000


@pytest.mark.parametrize("further_count", [0, 100])
def test_log_fits_in_reserve(tmp_path: Path, further_count: int) -> None:
    """A rollback on a full disk writes the file and the log into the reserve of the file."""
    harness = JournalHarness(tmp_path, further_count)
    reserve = harness.path.with_name(".journal.json.reserve")
    for number in range(300):
        harness.put(entry("a", f"s{number}"), run=RUN)
        assert len(msgspec.json.encode(harness.expected)) <= reserve.stat().st_size
    assert harness.is_right()


def test_small_journal_avoids_rewrites(tmp_path: Path) -> None:
    small, sizes = JournalHarness(tmp_path, further_count=0), set[int]()
    before = small.path.read_bytes()
    for number in range(20):
        small.put(entry("b", value=number), run=RUN)
        small.put(entry("b", value=number))
        sizes.add(small.log.stat().st_size)
    assert all(size % 4096 == 0 for size in sizes), "no event makes the file longer by itself"
    assert small.path.read_bytes() == before
    assert small.is_right()


def test_compaction_removes_log(harness: JournalHarness) -> None:
    harness.put(entry("b", value=2))
    KeptJournal(harness.path).compact(HOST)
    assert not harness.log.exists()
    assert harness.is_right()


def test_failed_write_is_not_remembered(
    harness: JournalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    harness.put(entry("b", value=2))
    expected = harness.expected
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_at", full)
        with pytest.raises(JournalError, match="No space left"):
            harness.put(entry("b", value=3))
    assert harness.expected == expected
    assert harness.is_right()
    harness.put(entry("c", value=4))
    assert harness.is_right()


RECORD = RollbackRecords()


def damage(harness: JournalHarness) -> None:
    harness.path.write_bytes(harness.path.read_bytes().replace(b'"before":0', b'"before":1', 1))


def lose(harness: JournalHarness) -> None:
    harness.path.unlink()
    harness.log.unlink(missing_ok=True)


@pytest.mark.parametrize("happens", [damage, lose, lambda harness: harness.log.unlink()])
def test_memory_restores_lost_journal(
    harness: JournalHarness, happens: Callable[[JournalHarness], None]
) -> None:
    harness.kept_journal.recover(RECORD)
    harness.put(entry("b", value=2))
    happens(harness)
    assert harness.load().losses
    assert harness.kept_journal.recover(RECORD)
    assert harness.is_right()
    assert harness.kept_journal.recover(RECORD) == ()
    harness.put(entry("c", value=3))
    assert harness.is_right()


def test_older_memory_loses_to_journal(harness: JournalHarness) -> None:
    harness.kept_journal.recover(RECORD)
    harness.put(entry("b", value=2))
    journal.save(harness.path, Journal(HOST.boot_id, (entry("a", value=7),)))
    lose(harness)
    assert harness.kept_journal.recover(RECORD) == ()
    assert not harness.path.exists()
    harness.kept_journal.refresh(lambda: HOST)
    assert harness.kept_journal.part(["b"]).losses


def test_older_memory_loses_to_rollback(harness: JournalHarness) -> None:
    harness.kept_journal.recover(RECORD)
    harness.put(entry("b", value=2))
    lose(harness)
    assert (
        harness.kept_journal.recover(RollbackRecords((RollbackRecord("targets-1", ("b",)),))) == ()
    )
    assert not harness.path.exists()


def test_removed_journal_stays_removed(harness: JournalHarness) -> None:
    harness.kept_journal.recover(RECORD)
    harness.put(entry("b", value=2))
    journal.save(harness.path, Journal(HOST.boot_id))
    assert harness.kept_journal.recover(RECORD) == ()
    assert not harness.path.exists()
