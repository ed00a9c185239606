"""The journal after damage and loss: all intact original values stay, and the rest is named."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import files, journal, journal_format
from hbatune.act.executor import Means
from hbatune.act.journal import Entry, Journal, LossKind, Run
from hbatune.act.kept_journal import KeptJournal
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.plan.rows import Outcome, RevertedValue
from hbatune.text.limit_text import describe_limit
from hbatune.workers import Process
from tests.unit.disk_files import (
    AFFINITY,
    NOMERGES,
    SDA,
    Disk,
    by_setting,
    filed,
    planned,
)
from tests.unit.machines import machine

HOST = machine()
BOOT = HOST.boot_id
ENTRIES = (
    Entry("wwn-1", "sda", "0000:01:00.0", "scheduler", "none", "mq-deadline", diskseq=4),
    Entry("wwn-1", "sda", "0000:01:00.0", "nr_requests", 256, 2048, under="none", diskseq=4),
    Entry("wwn-2", "sdb", None, "queue_depth", 32, 64, Process(7, 99), diskseq=5),
)
FULL = Journal(
    BOOT,
    ENTRIES,
    Run("apply", "oltp", Process(7, 99), 1.5),
    (RevertedValue("wwn-1", "nr_requests", 4096),),
)
OTHERS = (b"\0", b"\n", b"{", b"x")
"""Bytes that damage puts in the place of others; so does the next one by value."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.json"


def load(path: Path) -> Journal:
    return journal.load(path, BOOT)[0]


def saved(path: Path) -> bytes:
    journal.save(path, FULL)
    return path.read_bytes()


def damages(data: bytes, stop: int) -> list[tuple[int, bytes]]:
    """Return the content with one byte replaced, by each place before ``stop``."""
    variants = []
    for place in range(stop):
        old = data[place : place + 1]
        new = OTHERS[place % len(OTHERS)]
        new = bytes([old[0] ^ 1]) if new == old or place % 2 else new
        variants.append((place, data[:place] + new + data[place + 1 :]))
    return variants


def with_log(path: Path) -> tuple[bytes, tuple[Entry, ...]]:
    """Append three lines to the log of a journal; return the log and the entries of the lines."""
    kept_journal = KeptJournal(path)
    lines = tuple(replace(ENTRIES[2], value=value) for value in (65, 66))
    lines = (*lines, Entry("wwn-4", "sdc", None, "nomerges", 0, 1))
    journal.save(path, FULL, keep_room=True)
    for entry in lines:
        kept_journal.refresh(lambda: HOST)
        part = replace(kept_journal.part([entry.id]), entries=(entry,))
        kept_journal.save(part, [entry.id], keep_room=True)
    return journal.find_log(path).read_bytes(), lines


def test_damaged_byte_costs_single_entry(path: Path) -> None:
    data = saved(path)
    for place, damaged in damages(data, len(data)):
        path.write_bytes(damaged)
        loaded, line = load(path), data[:place].count(b"\n") + 1
        lost = set(ENTRIES) - set(loaded.entries)
        hit = {ENTRIES[line - 2]} if 2 <= line <= 4 else set()
        assert lost <= hit, (place, damaged)
        assert replace(loaded, entries=ENTRIES, losses=(), sequence=0) == FULL, (place, damaged)
        [loss] = loaded.losses
        assert (loss.kind, loss.file) == (LossKind.DAMAGED, str(path))
        # A line break that is damaged, or new, moves the numbers of the lines by one.
        assert {line - 1, line, line + 1} & set(loss.lines), (place, damaged)


def test_damaged_entry_names_line(path: Path) -> None:
    path.write_bytes(saved(path).replace(b'"before":256', b'"before":257'))
    loaded = load(path)
    assert loaded.entries == (ENTRIES[0], ENTRIES[2])
    loss = journal.LostError(loaded.losses).message
    assert loss.startswith(f"{path}: line 3 is damaged (sda nr_requests): ")


def test_torn_file_preserves_entries(path: Path) -> None:
    data = saved(path)
    path.write_bytes(data[: data.index(b'"sdb"')])
    assert load(path).entries == ENTRIES[:2]
    assert load(path).losses


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"[]\n", b"\n\n"])
def test_unreadable_file_is_loss(path: Path, content: bytes) -> None:
    saved(path)
    path.write_bytes(content)
    assert load(path).losses
    assert not load(path).entries


def test_damaged_log_costs_single_line(path: Path) -> None:
    log, lines = with_log(path)
    end = log.rindex(b"}") + 1
    for place, damaged in damages(log, end):
        journal.find_log(path).write_bytes(damaged)
        loaded, line = load(path), log[:place].count(b"\n") + 1
        [loss] = loaded.losses
        assert loss.file == str(journal.find_log(path))
        assert {line, line + 1} & set(loss.lines)
        assert ENTRIES[0] in loaded.entries
        assert lines[1] in loaded.entries or (line == 2 and lines[0] in loaded.entries)
        assert line == 3 or lines[2] in loaded.entries


def test_log_survives_damaged_file(path: Path) -> None:
    lines = with_log(path)[1]
    path.write_bytes(path.read_bytes().replace(b'"before":256', b'"before":257'))
    assert set(load(path).entries) == {ENTRIES[0], lines[1], lines[2]}
    assert [loss.lines for loss in load(path).losses] == [(3,)]


def test_lost_log_is_noticed(path: Path) -> None:
    with_log(path)
    journal.find_log(path).unlink()
    assert [loss.kind for loss in load(path).losses] == [LossKind.OLDER]


def test_missing_older_journals_are_losses(path: Path) -> None:
    journal.save(path, replace(FULL, entries=ENTRIES[:1]))
    backup = path.read_bytes()
    journal.save(path, FULL)
    path.write_bytes(backup)
    assert [loss.kind for loss in load(path).losses] == [LossKind.OLDER]
    assert load(path).entries == ENTRIES[:1]
    path.unlink()
    assert [loss.kind for loss in load(path).losses] == [LossKind.MISSING]
    assert journal.load(path, "another boot")[0] == Journal("another boot")


def test_earlier_boot_journal_reveals_loss(path: Path) -> None:
    journal.save(path, replace(FULL, boot_id="earlier"))
    backup = path.read_bytes()
    journal.save(path, FULL)
    path.write_bytes(backup)
    loaded, earlier = journal.load(path, BOOT)
    assert [loss.kind for loss in loaded.losses] == [LossKind.OLDER]
    assert earlier is not None


def test_empty_journal_leaves_no_trace(path: Path) -> None:
    saved(path)
    journal.save(path, Journal(BOOT))
    assert not path.exists()
    assert load(path) == Journal(BOOT)


def test_stuck_trace_preserves_empty_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(path)
    with monkeypatch.context() as patched:
        patched.setattr(journal_format, "remove_trace", lambda journal: False)
        journal.save(path, Journal(BOOT))
    assert replace(load(path), sequence=0) == Journal(BOOT)


def test_unwritable_trace_blocks_nothing(path: Path) -> None:
    trace = journal_format.find_trace(path)
    trace.mkdir(parents=True)
    saved(path)
    assert load(path).entries == ENTRIES
    path.unlink()
    assert load(path) == Journal(BOOT), "nothing is known, as before there was a trace"


def test_trace_is_below_run(tmp_path: Path) -> None:
    path = tmp_path / "var/lib/hbatune/journal.json"
    journal.save(path, FULL)
    assert (tmp_path / "run/hbatune/journal.sequence").stat().st_mode & 0o777 == files.READABLE_MODE


def test_unchanged_journal_preserves_sequence(path: Path) -> None:
    data = saved(path)
    assert saved(path) == data
    assert load(path).sequence > 0


def test_damaged_copies_are_limited(path: Path) -> None:
    contents = []
    for number in range(5):
        journal.save(
            path, replace(FULL, reverted=(RevertedValue(f"naa.{number}", "nr_requests", 64),))
        )
        contents.append(path.read_bytes().replace(b"256", b"255"))
        path.write_bytes(contents[-1])
        journal.save(path, load(path))
        assert load(path).losses, "until a rollback has reported it"
    copies = sorted(path.parent.glob("journal.json.damaged-*"))
    assert [file.read_bytes() for file in copies] == contents[:3]
    journal.settle(path, BOOT)
    assert not load(path).losses
    assert load(path).entries == (ENTRIES[0], ENTRIES[2])


def test_damaged_log_is_copied(path: Path) -> None:
    log, _ = with_log(path)
    damaged = log.replace(b'"value":65', b'"value":64')
    journal.find_log(path).write_bytes(damaged)
    journal.save(path, load(path))
    assert path.with_name("journal.log.damaged-1").read_bytes() == damaged


Disks = Callable[..., Disk]


@pytest.mark.parametrize("kind", list(LossKind))
def test_loss_blocks_new_baselines(disk: Disks, means: Means, kind: LossKind) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES), Journal(BOOT), means)
    data = means.journal.read_bytes()
    if kind is LossKind.MISSING:
        means.journal.unlink()
    elif kind is LossKind.OLDER:
        journal.save(means.journal, Journal(BOOT, run=FULL.run))
        older = means.journal.read_bytes()
        journal.save(means.journal, Journal(BOOT))
        journal.save(means.journal, FULL)
        means.journal.write_bytes(older)
    else:
        lines = data.split(b"\n")
        means.journal.write_bytes(b"\n".join([lines[0], b"x" + lines[1], *lines[2:]]))
    intact = {entry.target for entry in load(means.journal).entries}
    for device in (sda, sdb):
        (device.path / "queue/nomerges").write_text("2")
    host = machine(sda.endpoint(), sdb.endpoint())
    rows = write_plan(host, planned(host, NOMERGES), load(means.journal), means)
    for row, device in zip(rows, (sda, sdb), strict=True):
        is_known = row.target in intact
        assert row.outcome is (Outcome.WRITTEN if is_known else Outcome.REFUSED)
        assert is_known or "run `hbatune rollback`" in describe_limit(row.limit)
        assert device.value("queue/nomerges") == ("1" if is_known else "2")
    after = load(means.journal)
    assert after.losses
    assert {entry.before for entry in after.entries} <= {0}
    restore_values(plan_rollback(host, after, means), means)
    assert [device.value("queue/nomerges") for device in (sda, sdb)] == [
        "0" if device.name in intact else "2" for device in (sda, sdb)
    ]


def test_settled_loss_allows_baselines(disk: Disks, means: Means) -> None:
    sda = disk("sda")
    host = machine(sda.endpoint())
    write_plan(host, planned(host, NOMERGES), Journal(BOOT), means)
    os.unlink(means.journal)
    restore_values(plan_rollback(host, load(means.journal), means), means)
    assert load(means.journal).losses
    journal.settle(means.journal, BOOT)
    assert load(means.journal) == Journal(BOOT)
    rows = write_plan(host, planned(host, AFFINITY), load(means.journal), means)
    assert by_setting(rows) == {"rq_affinity": Outcome.WRITTEN}


def test_earlier_boot_journal_is_ignored(means: Means) -> None:
    entry = Entry(SDA, "sda", None, "nomerges", 0, 1)
    journal.save(means.journal, Journal("earlier", (entry,)))
    loaded, earlier = journal.load(means.journal, "this")
    assert loaded == Journal("this")
    assert earlier is not None
    assert earlier.entries == (entry,)


@pytest.mark.parametrize("torn", [b'{"boot_id": "x", "entr', b'{"boot_id": "\xff\xfe"}'])
def test_torn_journal_is_a_loss(means: Means, torn: bytes) -> None:
    means.journal.parent.mkdir(parents=True)
    means.journal.write_bytes(torn)
    loss = journal.LostError(filed(means).losses).message
    assert loss.startswith(f"{means.journal}: line 1 is damaged: ")
