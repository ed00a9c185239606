"""Tests of hbatune/act/restore.py."""

import errno
import json
from collections.abc import Callable

from msgspec.structs import replace

from hbatune.act import journal, journal_format
from hbatune.act.executor import Means
from hbatune.act.journal import Entry, Journal, Run, with_current_ids
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.facts.ids import Renaming
from hbatune.facts.model import Kind, Missing, Reason
from hbatune.plan.rows import Outcome
from hbatune.workers import find_this_process
from tests.unit.disk_files import AFFINITY, NOMERGES, SDA, Disk, filed, planned
from tests.unit.machines import machine, vector


def test_rollback_forgets_vanished_disk(disk: Callable[..., Disk], means: Means) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    rows = restore_values(plan_rollback(machine(sdb.endpoint()), filed(means), means), means)
    assert {row.target: row.outcome for row in rows} == {
        "sda": Outcome.VANISHED,
        "sdb": Outcome.WRITTEN,
    }
    assert all(row.done for row in rows), "nothing is left to put back"
    assert not filed(means).entries


def test_nameless_disk_keeps_baseline(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    host = machine(sda.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    nameless = replace(sda.endpoint(), id="unnamed@0000:01:00.0/sda")
    [row] = restore_values(plan_rollback(machine(nameless), filed(means), means), means)
    assert row.outcome is Outcome.VANISHED
    assert not row.done
    assert {entry.target for entry in filed(means).entries} == {"sda"}


def test_unreadable_disk_keeps_baselines(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    slot = "0000:01:00.0/scsi-0:1:0"
    first = replace(sda.endpoint(), id=f"naa.5a@{slot}", diskseq=4)
    host = machine(first)
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    unread = Missing(Reason.UNREADABLE, errno.EMFILE)
    for route in (slot, "0000:01:00.0/scsi-0:2:0"):
        unread_disk = replace(first, id=f"unnamed@{route}", diskseq=unread)
        [row] = restore_values(plan_rollback(machine(unread_disk), filed(means), means), means)
        assert (row.outcome, row.done) == (Outcome.VANISHED, route != slot)


def test_unreadable_map_keeps_baselines(disk: Callable[..., Disk], means: Means) -> None:
    first = replace(disk().endpoint(), id="mpath-3600a", kind=Kind.MAP, diskseq=4)
    host = machine(first)
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    unread_disk = replace(first, id="unnamed", diskseq=Missing(Reason.UNREADABLE, errno.EMFILE))
    [row] = restore_values(plan_rollback(machine(unread_disk), filed(means), means), means)
    assert (row.outcome, row.done) == (Outcome.VANISHED, False)


def test_replaced_drive_ends_baseline(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    slot = "0000:01:00.0/scsi-0:1:0"
    first = replace(sda.endpoint(), id=f"naa.5a@{slot}", diskseq=4)
    host = machine(first)
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    assert {entry.diskseq for entry in filed(means).entries} == {4}
    new_disk = replace(first, id=f"naa.5b@{slot}", diskseq=5)
    [row] = restore_values(plan_rollback(machine(new_disk), filed(means), means), means)
    assert (row.outcome, row.done, row.limit) == (
        Outcome.VANISHED,
        True,
        "the drive was replaced",
    )
    assert not means.journal.exists(), "it is said once"
    assert sda.value("queue/nomerges") == "1", "the values of another drive are not touched"


def test_diskseq_identifies_nameless_drive(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    first = replace(sda.endpoint(), id="naa.5a@0000:01:00.0/scsi-0:1:0", diskseq=4)
    host = machine(first)
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    nameless = replace(first, id="unnamed@0000:01:00.0/scsi-0:1:0")
    [row] = restore_values(plan_rollback(machine(nameless), filed(means), means), means)
    assert (row.outcome, row.done) == (Outcome.VANISHED, False)
    assert row.limit is not None
    assert "does not report its name" in row.limit
    current_journal = with_current_ids(filed(means), Renaming(machine(nameless)))
    [row] = restore_values(plan_rollback(machine(nameless), current_journal, means), means)
    assert row.outcome is Outcome.WRITTEN, "its disk sequence tells that it is the same"
    assert sda.value("queue/nomerges") == "0"


def test_new_drive_ends_unnumbered_baseline(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    place = "0000:01:00.0/sas-0x51-lun-0"
    entry = Entry(f"naa.5a@{place}", "sda", None, "nomerges", 0, 1)
    sysfs = f"/sys/devices/pci0000:00/0000:01:00.0/host0/target0:0:1/0:0:1:0/block/{sda.name}"
    drive = replace(sda.endpoint(), sysfs=sysfs)
    for id, done in ((f"naa.5b@{place}", True), (f"unnamed@{place}", False)):
        journal.save(means.journal, Journal(machine().boot_id, (entry,)))
        [row] = restore_values(
            plan_rollback(machine(replace(drive, id=id)), filed(means), means), means
        )
        assert row.done is done
        assert bool(filed(means).entries) is not done


def test_vanished_vector_needs_no_rollback(means: Means) -> None:
    entry = Entry("msix-7@0000:01:00.0", "irq47", None, "irq_affinity", "0-7", "3")
    journal.save(means.journal, Journal(machine().boot_id, (entry,)))
    [row] = restore_values(plan_rollback(machine(vectors=(vector(),)), filed(means), means), means)
    assert (row.done, row.limit) == (True, None)


def test_unreadable_interrupts_keep_baselines(means: Means) -> None:
    entry = Entry("msix-7@0000:01:00.0", "irq47", None, "irq_affinity", "0-7", "3")
    journal.save(means.journal, Journal(machine().boot_id, (entry,)))
    [row] = restore_values(plan_rollback(machine(), filed(means), means), means)
    assert (row.outcome, row.done) == (Outcome.VANISHED, False)
    assert filed(means).entries


def test_disk_rollback_spares_siblings(disk: Callable[..., Disk], means: Means) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    restore_values(plan_rollback(host, filed(means), means, ids={SDA}), means)
    assert (sda.value("queue/nomerges"), sdb.value("queue/nomerges")) == ("0", "1")
    assert {entry.target for entry in filed(means).entries} == {"sdb"}


def test_unknown_journal_fields_survive(disk: Callable[..., Disk], means: Means) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    newer = json.loads(means.journal.read_text())
    newer["pinned"] = ["wwn-1"]
    del newer["copy"], newer["sum"]
    for entry in newer["entries"]:
        del entry["sum"]
        entry["note"] = entry["target"]
    means.journal.write_bytes(journal_format.seal_document(json.dumps(newer).encode(), 1 << 62))
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES, AFFINITY), filed(means), means)
    restore_values(plan_rollback(host, filed(means), means, ids={SDA}), means)
    saved = json.loads(means.journal.read_text())
    assert [entry.get("note") for entry in saved["entries"]] == ["sdb", None]
    assert saved["pinned"] == ["wwn-1"]
    restore_values(plan_rollback(host, filed(means), means), means)
    assert json.loads(means.journal.read_text())["pinned"] == ["wwn-1"]
    # Of another boot nothing is taken over: its entries mean nothing any more.
    journal.save(means.journal, Journal("another boot", (Entry("a", "sda", None, "x", 1),)))
    assert "pinned" not in json.loads(means.journal.read_text())


def test_rollback_clears_interrupted_run(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    baseline = Entry(SDA, "sda", None, "nomerges", 0, 1)
    begun = Journal(machine().boot_id).begun(
        Run("apply", "oltp", find_this_process(), 0.0), [baseline]
    )
    journal.save(means.journal, begun)
    assert filed(means).run is not None
    (sda.path / "queue/nomerges").write_text("1")
    restore_values(plan_rollback(machine(sda.endpoint()), filed(means), means), means)
    assert sda.value("queue/nomerges") == "0"
    assert filed(means) == Journal(machine().boot_id)
