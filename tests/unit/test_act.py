"""Writing and putting back, on plain files in place of sysfs: outcomes, guards, the journal.

What the kernel does with a write is the lab's to show; here it is a file that takes everything.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act import journal, lock
from hbatune.act.chain import (
    Chain,
    ChainWriter,
    Step,
    WriteResult,
    add_jitter,
    encode_result,
)
from hbatune.act.executor import Executor, Means, Report
from hbatune.act.journal import Entry, Journal, JournalError, Run, with_current_ids
from hbatune.act.restore import restore_values
from hbatune.act.writer import add_outcomes, execute_chains, write_plan
from hbatune.facts.attributes import reread_attribute
from hbatune.facts.ids import Renaming
from hbatune.facts.model import Attribute, Endpoint, Kind, Machine, Missing, Reason
from hbatune.facts.survey import survey_requests
from hbatune.plan.make import PlanLimits, make_plan
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.profile import Exactly
from hbatune.settings.setting import Limit, LimitReason
from hbatune.text.limit_text import describe_limit
from hbatune.workers import Finished, Pool, Replied, WorkerPool, find_this_process
from tests.kernel.chains import write_chain
from tests.unit.factory import endpoint, machine, vector
from tests.unit.test_plan import profile

SCHEDULER = ("scheduler", Exactly("mq-deadline"))
NOMERGES = ("nomerges", Exactly(1))
AFFINITY = ("rq_affinity", Exactly(2))


SDA = "id-sda@0000:01:00.0/sda"


class Disk:
    """A block device's directory of plain files."""

    def __init__(self, top: Path, name: str, **files: str) -> None:
        self.name = name
        self.path = top / name
        (self.path / "queue/iosched").mkdir(parents=True)
        (self.path / "device").mkdir()
        values = {"queue/nomerges": "0", "queue/rq_affinity": "1"}
        values |= {path.replace("__", "/"): text for path, text in files.items()}
        for path, text in values.items():
            (self.path / path).parent.mkdir(parents=True, exist_ok=True)
            (self.path / path).write_text(text)

    def value(self, path: str) -> str:
        return (self.path / path).read_text()

    def endpoint(self, adapter: str = "0000:01:00.0", map: str | None = None) -> Endpoint:
        found: dict[str, Attribute | Missing] = {}
        for file in sorted(self.path.rglob("*")):
            if file.is_file():
                found[str(file.relative_to(self.path))] = Attribute(file.read_text(), True)
        return endpoint(
            target=self.name,
            id=f"id-{self.name}@0000:01:00.0/{self.name}",
            sysfs=str(self.path),
            attributes=found,
            adapter=adapter,
            map=map,
        )


@pytest.fixture
def disk(tmp_path: Path) -> Callable[..., Disk]:
    def make_disk(name: str = "sda", **files: str) -> Disk:
        return Disk(tmp_path / "sys", name, **files)

    return make_disk


@pytest.fixture
def means(tmp_path: Path) -> Means:
    return Means(
        journal=tmp_path / "state/journal.json",
        claims=tmp_path / "run/claims",
        spent=tmp_path / "run/spent.json",
        workers=4,
        deadline=20.0,
    )


def planned(host: Machine, *effects: tuple[str, Exactly]) -> Plan:
    return make_plan(host, profile(*effects))


def filed(means: Means) -> Journal:
    return journal.load(means.journal, machine().boot_id)[0]


def by_setting(rows: tuple[Row, ...]) -> dict[str, Outcome | None]:
    return {row.setting: row.outcome for row in rows}


def test_rollback_restores_applied_changes(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    host = machine(sda.endpoint())
    rows = write_plan(host, planned(host, NOMERGES, AFFINITY), filed(means), means)
    assert by_setting(rows) == {"nomerges": Outcome.WRITTEN, "rq_affinity": Outcome.WRITTEN}
    assert (sda.value("queue/nomerges"), sda.value("queue/rq_affinity")) == ("1", "2")
    restored = restore_values(machine(sda.endpoint()), filed(means), means)
    assert {row.outcome for row in restored} == {Outcome.WRITTEN}
    assert (sda.value("queue/nomerges"), sda.value("queue/rq_affinity")) == ("0", "1")
    assert not means.journal.exists(), "what was restored is taken out of the journal"


def test_correct_values_stay_unjournaled(disk: Callable[..., Disk], means: Means) -> None:
    host = machine(disk(queue__nomerges="1").endpoint())
    rows = write_plan(host, planned(host, NOMERGES), filed(means), means)
    assert by_setting(rows) == {"nomerges": Outcome.KEPT}
    assert not means.journal.exists()


def test_first_baseline_survives_reapply(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    for value in (1, 2):
        host = machine(sda.endpoint())
        write_plan(host, planned(host, ("nomerges", Exactly(value))), filed(means), means)
    assert sda.value("queue/nomerges") == "2"
    restore_values(machine(sda.endpoint()), filed(means), means)
    assert sda.value("queue/nomerges") == "0"


def test_baseline_precedes_write(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    seen: list[tuple[str, tuple[Entry, ...]]] = []
    real = journal.save

    def save(path: Path, what: Journal, **options: Any) -> bytes:
        data = real(path, what, **options)
        seen.append((sda.value("queue/nomerges"), filed(means).entries))
        return data

    monkeypatch.setattr(journal, "save", save)
    host = machine(sda.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    first_value, first_entries = seen[0]
    assert first_value == "0"
    assert [(entry.setting, entry.before, entry.value) for entry in first_entries] == [
        ("nomerges", 0, 1)
    ]


def test_unwritable_journal_prevents_writes(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    means.journal.parent.parent.joinpath("state").write_text("not a folder")
    host = machine(sda.endpoint())
    with pytest.raises(JournalError):
        write_plan(host, planned(host, NOMERGES), Journal(host.boot_id), means)
    assert sda.value("queue/nomerges") == "0"


def test_changed_value_conflicts(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    host = machine(sda.endpoint())
    plan = planned(host, NOMERGES, AFFINITY)
    (sda.path / "queue/nomerges").write_text("2")
    rows = write_plan(host, plan, filed(means), means)
    assert by_setting(rows) == {"nomerges": Outcome.CONFLICT, "rq_affinity": Outcome.WRITTEN}
    assert sda.value("queue/nomerges") == "2"


def test_changed_scheduler_cancels_dependent_rows(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk(queue__scheduler="[none] mq-deadline kyber", queue__nr_requests="256")
    host = machine(sda.endpoint())
    plan = planned(host, SCHEDULER, ("nr_requests", Exactly(2048)))
    (sda.path / "queue/scheduler").write_text("none mq-deadline [kyber]")
    rows = write_plan(host, plan, filed(means), means)
    assert by_setting(rows) == {"scheduler": Outcome.CONFLICT, "nr_requests": Outcome.CANCELLED}
    assert sda.value("queue/nr_requests") == "256"


def test_scheduler_reset_respects_changed_tunable(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk(queue__scheduler="[none] mq-deadline kyber", queue__nr_requests="256")
    host = machine(sda.endpoint())
    plan = planned(host, SCHEDULER, ("nr_requests", Exactly(2048)))
    (sda.path / "queue/nr_requests").write_text("100")
    rows = {row.setting: row for row in write_plan(host, plan, filed(means), means)}
    assert {row.outcome for row in rows.values()} == {Outcome.CONFLICT}
    assert rows["nr_requests"].found == 100
    assert (
        describe_limit(rows["scheduler"].limit)
        == "it would reset nr_requests, which was changed to 100"
    )
    assert sda.value("queue/scheduler") == "[none] mq-deadline kyber"
    assert sda.value("queue/nr_requests") == "100"


def test_value_already_set_stays(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    host = machine(sda.endpoint())
    plan = planned(host, NOMERGES)
    (sda.path / "queue/nomerges").write_text("1")
    assert by_setting(write_plan(host, plan, filed(means), means)) == {"nomerges": Outcome.KEPT}


def test_ineffective_write_is_ignored(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    monkeypatch.setattr("hbatune.act.chain._store", lambda path, text: None)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("rq_affinity", 2, 1),))
    [result] = write_chain(chain)
    assert (result.outcome, result.found) == (Outcome.IGNORED, 1)


def test_refusal_carries_errno(disk: Callable[..., Disk]) -> None:
    sda = disk()
    path = sda.path / "queue/nomerges"
    path.unlink()
    path.mkdir()  # opening it for writing is EISDIR, reading it as well
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("nomerges", 1, 0),))
    [result] = write_chain(chain)
    assert result.outcome is Outcome.REFUSED
    assert result.errno


def busy(monkeypatch: pytest.MonkeyPatch, times: int) -> list[float]:
    """Have the kernel answer EBUSY so many times to a write; return the pauses in between."""
    pauses: list[float] = []
    left = iter(range(times))
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if next(left, None) is not None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return real(descriptor, data)

    monkeypatch.setattr("hbatune.act.chain.os.write", write)
    monkeypatch.setattr("hbatune.act.chain.time.sleep", pauses.append)
    return pauses


def test_busy_queue_gets_retries(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    pauses = busy(monkeypatch, times=2)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("rq_affinity", 2, 1),))
    [result] = write_chain(chain)
    assert (result.outcome, sda.value("queue/rq_affinity")) == (Outcome.WRITTEN, "2")
    assert len(pauses) == 2
    assert 0 < pauses[0] < pauses[1] * 3, "longer each time, on average"


def test_retry_pauses_are_jittered() -> None:
    pauses = [add_jitter(0.1) for _ in range(200)]
    assert 0.05 <= min(pauses) < 0.07
    assert 0.13 < max(pauses) <= 0.15


def test_busy_queue_finally_refuses(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    pauses = busy(monkeypatch, times=1000)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("rq_affinity", 2, 1),))
    [result] = write_chain(chain)
    assert (result.outcome, result.errno) == (Outcome.REFUSED, errno.EBUSY)
    assert sda.value("queue/rq_affinity") == "1"
    assert 0 < sum(pauses) < 5


@pytest.mark.parametrize(
    ("raised", "outcome", "writes"),
    [
        ([0], Outcome.WRITTEN, 1),
        ([1], Outcome.WRITTEN, 2),
        ([2, 1, 1], Outcome.WRITTEN, 4),
        ([131], Outcome.WRITTEN, 2),  # a raise that began before it was lowered
        ([1] * 100, Outcome.IGNORED, 6),
        ([-4], Outcome.IGNORED, 1),  # a driver's clamp, which stays the same however often
    ],
)
def test_depth_bounce_repeats_lowering(
    disk: Callable[..., Disk],
    monkeypatch: pytest.MonkeyPatch,
    raised: list[int],
    outcome: Outcome,
    writes: int,
) -> None:
    sda = disk(device__queue_depth="150")
    written: list[str] = []

    def store(path: str, text: str) -> int | None:
        by = raised[len(written)] if len(written) < len(raised) else 0
        written.append(text)
        Path(path).write_text(str(int(text) + by))
        return None

    monkeypatch.setattr("hbatune.act.chain._store", store)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("queue_depth", 20, 150),))
    [result] = write_chain(chain)
    assert (result.outcome, written) == (outcome, ["20"] * writes)
    assert result.found == int(sda.value("device/queue_depth"))


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        (151, Outcome.WRITTEN),
        (148, Outcome.WRITTEN),
        (139, Outcome.CONFLICT),
        (161, Outcome.CONFLICT),
    ],
)
def test_ramp_step_is_no_conflict(disk: Callable[..., Disk], now: int, outcome: Outcome) -> None:
    sda = disk(device__queue_depth=str(now))
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("queue_depth", 200, 150),))
    [result] = write_chain(chain)
    assert result.outcome is outcome


@pytest.mark.parametrize("raised", [("sda",), ("sda", "sdb")])
def test_sibling_write_relowers_depth(
    disk: Callable[..., Disk],
    monkeypatch: pytest.MonkeyPatch,
    means: Means,
    raised: tuple[str, ...],
) -> None:
    """It was read back before the other LUN of its target was written."""
    luns = [disk(name, device__queue_depth="150") for name in ("sda", "sdb", "sdc")]
    pending = list(raised)

    def store(path: str, text: str) -> int | None:
        Path(path).write_text(text)
        while "sdc" in path and pending:
            (luns[0].path.parent / pending.pop() / "device/queue_depth").write_text("21")
        return None

    monkeypatch.setattr("hbatune.act.chain._store", store)
    report = lower_depths(luns, means)
    assert {each.outcome for each in report.results.values()} == {Outcome.WRITTEN}
    assert [lun.value("device/queue_depth") for lun in luns] == ["20"] * 3


def lower_depths(luns: Sequence[Disk], means: Means) -> Report:
    """Lower the depth of these LUNs of one target from 150 to 20, one after the other."""
    chains = [
        Chain(lun.name, lun.name, None, None, str(lun.path), (Step("queue_depth", 20, 150),))
        for lun in luns
    ]
    return execute_chains(chains, replace(means, workers=1))


def test_administrator_depth_survives_lowering(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch, means: Means
) -> None:
    luns = [disk(name, device__queue_depth="150") for name in ("sda", "sdb")]

    def store(path: str, text: str) -> int | None:
        Path(path).write_text(text)
        if "sdb" in path:
            (luns[0].path / "device/queue_depth").write_text("90")
        return None

    monkeypatch.setattr("hbatune.act.chain._store", store)
    report = lower_depths(luns, means)
    result = report.results["sda", "queue_depth"]
    assert (result.outcome, result.found) == (Outcome.CONFLICT, 90)
    assert luns[0].value("device/queue_depth") == "90"


def test_vanished_disk_spares_siblings(disk: Callable[..., Disk], means: Means) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    plan = planned(host, NOMERGES)
    os.rename(sda.path, sda.path.with_name("gone"))
    rows = write_plan(host, plan, filed(means), means)
    assert {row.target: row.outcome for row in rows} == {
        "sda": Outcome.VANISHED,
        "sdb": Outcome.WRITTEN,
    }
    assert {entry.target for entry in filed(means).entries} == {"sdb"}


def test_unknown_baseline_prevents_write(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    real = survey_requests

    def without_sda(*args: Any, **kwargs: Any) -> Any:
        return {**real(*args, **kwargs), str(sda.path): {}}

    monkeypatch.setattr("hbatune.act.writer.survey_requests", without_sda)
    rows = write_plan(host, planned(host, NOMERGES), filed(means), means)
    assert {row.target: row.outcome for row in rows} == {
        "sda": Outcome.REFUSED,
        "sdb": Outcome.WRITTEN,
    }
    assert sda.value("queue/nomerges") == "0"


def test_rollback_forgets_vanished_disk(disk: Callable[..., Disk], means: Means) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    rows = restore_values(machine(sdb.endpoint()), filed(means), means)
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
    [row] = restore_values(machine(nameless), filed(means), means)
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
        other = replace(first, id=f"unnamed@{route}", diskseq=unread)
        [row] = restore_values(machine(other), filed(means), means)
        assert (row.outcome, row.done) == (Outcome.VANISHED, route != slot)


def test_unreadable_map_keeps_baselines(disk: Callable[..., Disk], means: Means) -> None:
    first = replace(disk().endpoint(), id="mpath-3600a", kind=Kind.MAP, diskseq=4)
    host = machine(first)
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    other = replace(first, id="unnamed", diskseq=Missing(Reason.UNREADABLE, errno.EMFILE))
    [row] = restore_values(machine(other), filed(means), means)
    assert (row.outcome, row.done) == (Outcome.VANISHED, False)


def test_replaced_drive_ends_baseline(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    slot = "0000:01:00.0/scsi-0:1:0"
    first = replace(sda.endpoint(), id=f"naa.5a@{slot}", diskseq=4)
    host = machine(first)
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    assert {entry.diskseq for entry in filed(means).entries} == {4}
    other = replace(first, id=f"naa.5b@{slot}", diskseq=5)
    [row] = restore_values(machine(other), filed(means), means)
    assert (row.outcome, row.done, row.limit) == (
        Outcome.VANISHED,
        True,
        "another drive is in its place",
    )
    assert not means.journal.exists(), "it is said once"
    assert sda.value("queue/nomerges") == "1", "the values of another drive are not touched"


def test_diskseq_identifies_nameless_drive(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    first = replace(sda.endpoint(), id="naa.5a@0000:01:00.0/scsi-0:1:0", diskseq=4)
    host = machine(first)
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    nameless = replace(first, id="unnamed@0000:01:00.0/scsi-0:1:0")
    [row] = restore_values(machine(nameless), filed(means), means)
    assert (row.outcome, row.done) == (Outcome.VANISHED, False)
    assert row.limit is not None
    assert "does not report its name" in row.limit
    here = with_current_ids(filed(means), Renaming(machine(nameless)))
    [row] = restore_values(machine(nameless), here, means)
    assert row.outcome is Outcome.WRITTEN, "its disk sequence tells that it is the same"
    assert sda.value("queue/nomerges") == "0"


def test_new_drive_ends_unnumbered_baseline(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    place = "0000:01:00.0/0:0:1:0"  # as an earlier version filed it
    entry = Entry(f"naa.5a@{place}", "sda", None, "nomerges", 0, 1)
    sysfs = f"/sys/devices/pci0000:00/0000:01:00.0/host0/target0:0:1/0:0:1:0/block/{sda.name}"
    here = replace(sda.endpoint(), sysfs=sysfs)
    for id, done in (("naa.5b@0000:01:00.0/sas-0x5b-lun-0", True), ("unnamed@0000:01:00.0", False)):
        journal.save(means.journal, Journal(machine().boot_id, (entry,)))
        [row] = restore_values(machine(replace(here, id=id)), filed(means), means)
        assert row.done is done
        assert bool(filed(means).entries) is not done


def test_vanished_vector_needs_no_rollback(means: Means) -> None:
    entry = Entry("msix-7@0000:01:00.0", "irq47", None, "irq_affinity", "0-7", "3")
    journal.save(means.journal, Journal(machine().boot_id, (entry,)))
    [row] = restore_values(machine(vectors=(vector(),)), filed(means), means)
    assert (row.done, row.limit) == (True, None)


def test_unreadable_interrupts_keep_baselines(means: Means) -> None:
    entry = Entry("msix-7@0000:01:00.0", "irq47", None, "irq_affinity", "0-7", "3")
    journal.save(means.journal, Journal(machine().boot_id, (entry,)))
    [row] = restore_values(machine(), filed(means), means)
    assert (row.outcome, row.done) == (Outcome.VANISHED, False)
    assert filed(means).entries


def test_disk_rollback_spares_siblings(disk: Callable[..., Disk], means: Means) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    restore_values(host, filed(means), means, ids={SDA})
    assert (sda.value("queue/nomerges"), sdb.value("queue/nomerges")) == ("0", "1")
    assert {entry.target for entry in filed(means).entries} == {"sdb"}


def test_unknown_journal_fields_survive(disk: Callable[..., Disk], means: Means) -> None:
    sda, sdb = disk("sda"), disk("sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    newer = json.loads(means.journal.read_text())
    newer["pinned"] = ["wwn-1"]
    for each in newer["entries"]:
        each["note"] = each["target"]
    means.journal.write_text(json.dumps(newer))
    host = machine(sda.endpoint(), sdb.endpoint())
    write_plan(host, planned(host, NOMERGES, AFFINITY), filed(means), means)
    restore_values(host, filed(means), means, ids={SDA})
    now = json.loads(means.journal.read_text())
    assert [each.get("note") for each in now["entries"]] == ["sdb", None]
    assert now["pinned"] == ["wwn-1"]
    restore_values(host, filed(means), means)
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
    restore_values(machine(sda.endpoint()), filed(means), means)
    assert sda.value("queue/nomerges") == "0"
    assert filed(means) == Journal(machine().boot_id)


def test_earlier_boot_journal_is_ignored(means: Means) -> None:
    entry = Entry(SDA, "sda", None, "nomerges", 0, 1)
    journal.save(means.journal, Journal("earlier", (entry,)))
    now, earlier = journal.load(means.journal, "this")
    assert now == Journal("this")
    assert earlier is not None
    assert earlier.entries == (entry,)


@pytest.mark.parametrize("torn", [b'{"boot_id": "x", "entr', b'{"boot_id": "\xff\xfe"}'])
def test_torn_journal_is_a_loss(means: Means, torn: bytes) -> None:
    means.journal.parent.mkdir(parents=True)
    means.journal.write_bytes(torn)
    loss = journal.LostError(filed(means).losses).message
    assert loss.startswith(f"{means.journal}: line 1 is damaged: ")


# --- many disks at once ---


def _hang_on_fifo(chain: Chain) -> Iterator[bytes]:
    """Write as a worker does; a fifo without a reader stands for a queue that never drains."""
    for step in chain.steps:
        with open(f"{chain.sysfs}/gate", "w"):
            yield encode_result(WriteResult(step.setting, Outcome.WRITTEN))


def chains(tmp_path: Path, hung: int, fine: int, map: str | None = None) -> list[Chain]:
    made = []
    for number in range(hung + fine):
        folder = tmp_path / f"disk{number}"
        folder.mkdir()
        if number < hung:
            os.mkfifo(folder / "gate")
        name = f"sd{number}"
        step = Step("nomerges", 1, 0)
        made.append(Chain(name, name, "adapter", map, str(folder), (step,)))
    return made


def test_three_stuck_disks_close_adapter(tmp_path: Path) -> None:
    made = chains(tmp_path, hung=3, fine=5)
    with Pool[Chain, bytes](_hang_on_fifo, size=4, deadline=2.0) as pool:
        report = Executor(pool).run(made)
    found = [report.results[chain.id, "nomerges"] for chain in made]
    assert [result.outcome for result in found[:3]] == [Outcome.STUCK] * 3
    assert {result.outcome for result in found[3:]} == {Outcome.CANCELLED}
    assert len(report.stuck) == 3


def test_stuck_disk_spares_siblings(tmp_path: Path) -> None:
    made = chains(tmp_path, hung=1, fine=6)
    with Pool[Chain, bytes](_hang_on_fifo, size=4, deadline=3.0) as pool:
        report = Executor(pool).run(made)
    found = [report.results[chain.id, "nomerges"].outcome for chain in made]
    assert found == [Outcome.STUCK] + [Outcome.WRITTEN] * 6


def test_stop_request_cancels_disks(tmp_path: Path) -> None:
    made = chains(tmp_path, hung=0, fine=4)
    with Pool[Chain, bytes](_hang_on_fifo, size=2, deadline=20) as pool:
        report = Executor(pool, stop=lambda: True).run(made)
    assert {result.outcome for result in report.results.values()} == {Outcome.CANCELLED}
    assert len(report.results) == 4


class _Watched(Pool[Chain, bytes]):
    """A pool that notes how many chains run at once."""

    def __init__(self, size: int) -> None:
        super().__init__(_hang_on_fifo, size=size, deadline=20)
        self.begun: list[tuple[str, int]] = []

    def start(self, task: Chain) -> object:  # type: ignore[override]
        self.begun.append((task.id, self.running))
        return super().start(task)


def test_first_disk_runs_alone(tmp_path: Path) -> None:
    made = chains(tmp_path, hung=0, fine=6)
    with _Watched(4) as pool:
        Executor(pool).run(made)
    alongside = dict(pool.begun)
    assert alongside["sd0"] == 0
    assert alongside["sd1"] == 0, "the second waits for the first"
    assert max(alongside.values()) == 3, "then they go in parallel"


def test_map_paths_run_sequentially(tmp_path: Path) -> None:
    made = chains(tmp_path, hung=0, fine=5, map="dm-0")
    with _Watched(4) as pool:
        Executor(pool).run(made)
    assert {alongside for _, alongside in pool.begun} == {0}


def test_latency_tolerance_accepts_any(
    tmp_path: Path,
) -> None:
    file = tmp_path / "power/pm_qos_latency_tolerance_us"
    file.parent.mkdir()
    file.write_text("any")
    # Of one length: a file of sysfs is written anew as a whole, a plain one is not.
    for value, before, text in ((100, "any", "100"), ("any", 100, "any")):
        step = Step("pm_qos_latency_tolerance_us", value, before)
        [result] = write_chain(Chain("nvme0", "id-nvme0", None, None, str(tmp_path), (step,)))
        assert (result.outcome, result.found) == (Outcome.WRITTEN, value)
        assert file.read_text() == text


def test_write_holds_claim(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(disk().endpoint())
    seen_by_worker = means.journal.parent / "claims-seen"

    def store(path: str, text: str) -> int | None:
        found = [(claim.id, claim.pid) for claim in lock.find_outstanding_claims(means.claims)]
        seen_by_worker.write_text(str(found == [(SDA, os.getpid())]))
        Path(path).write_text(text)
        return None

    monkeypatch.setattr("hbatune.act.chain._store", store)
    # Workers that live on between two runs write to nothing, and must not be taken for stuck ones.
    with WorkerPool() as worker_pool:
        rows = write_plan(
            host, planned(host, NOMERGES), filed(means), replace(means, worker_pool=worker_pool)
        )
        assert by_setting(rows) == {"nomerges": Outcome.WRITTEN}
        assert lock.find_outstanding_claims(means.claims) == []
    assert seen_by_worker.read_text() == "True"


def test_early_worker_failure_refuses(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(disk().endpoint())
    plan = planned(host, NOMERGES, AFFINITY)

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("hbatune.act.chain.find_multipath_maps", fail)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    rows = write_plan(host, plan, filed(means), means)
    found = {row.setting: (row.outcome, row.errno, describe_limit(row.limit)) for row in rows}
    assert found == {
        "nomerges": (
            Outcome.REFUSED,
            errno.EMFILE,
            "its process failed before it wrote anything",
        ),
        "rq_affinity": (Outcome.CANCELLED, None, ""),
    }


def test_late_worker_failure_keeps_baseline(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(disk().endpoint())

    def fail(path: str, text: str) -> int | None:
        Path(path).write_text(text)
        raise ValueError("no reply")

    monkeypatch.setattr("hbatune.act.chain._store", fail)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    [row] = write_plan(host, planned(host, NOMERGES), filed(means), means)
    assert (row.outcome, row.errno) == (Outcome.REFUSED, errno.ECHILD)
    assert "(no reply)" in describe_limit(row.limit)
    [entry] = [each for each in filed(means).entries if each.setting == "nomerges"]
    assert entry.value == 1


def test_dead_worker_keeps_journal_entries(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its write has landed or not: that is no stuck writer, nor a slow adapter."""
    sda = disk()
    host = machine(sda.endpoint())
    plan = planned(host, NOMERGES, AFFINITY)
    monkeypatch.setattr("hbatune.act.chain._store", lambda path, text: os._exit(9))
    rows = write_plan(host, plan, filed(means), means)
    found = {row.setting: (row.outcome, row.errno) for row in rows}
    first, second = sorted(found.values(), key=lambda each: each[1] != errno.ECHILD)
    assert first == (Outcome.REFUSED, errno.ECHILD)
    assert second[0] is Outcome.CANCELLED
    assert "died" in next(describe_limit(row.limit) for row in rows if row.errno == errno.ECHILD)
    kept = filed(means).entries
    assert {entry.setting for entry in kept} == {"nomerges", "rq_affinity"}
    assert {entry.doubt for entry in kept} == {None}


def test_dead_workers_spare_adapter(tmp_path: Path) -> None:
    made = chains(tmp_path, hung=0, fine=5)
    with Pool[Chain, bytes](_die_of_first_four, size=2, deadline=20) as pool:
        report = Executor(pool).run(made)
    found = [report.results[chain.id, "nomerges"] for chain in made]
    assert [each.errno for each in found] == [errno.ECHILD] * 4 + [None]
    assert not report.stuck


def _die_of_first_four(chain: Chain) -> Iterator[bytes]:
    if chain.target != "sd4":
        os._exit(9)
    yield encode_result(WriteResult("nomerges", Outcome.WRITTEN))


def test_refused_fork_refuses_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    made = chains(tmp_path, hung=0, fine=3)
    monkeypatch.setattr(os, "fork", none)
    monkeypatch.setattr("hbatune.workers.pool.START_PATIENCE_S", 0.05)
    with Pool[Chain, bytes](_hang_on_fifo, size=2, deadline=20) as pool:
        report = Executor(pool).run(made)
    assert {(chain.id, "nomerges"): (Outcome.REFUSED, errno.EAGAIN) for chain in made} == {
        key: (each.outcome, each.errno) for key, each in report.results.items()
    }


def test_pool_switches_leak_no_descriptors(disk: Callable[..., Disk], tmp_path: Path) -> None:
    sda = disk()
    chain = Chain("sda", SDA, None, None, str(sda.path), (Step("nomerges", 0, 0),))

    def opened(worker_pool: WorkerPool) -> set[int]:
        with Pool(_count_descriptors, size=1, deadline=20, worker_pool=worker_pool) as pool:
            return {event.reply for event in pool.run([0]) if isinstance(event, Replied)}

    with WorkerPool() as worker_pool:
        before = opened(worker_pool)
        for _ in range(2000):
            with Pool(ChainWriter(), size=1, deadline=20, worker_pool=worker_pool) as pool:
                events = list(pool.run([chain]))
            assert [type(event) for event in events] == [Replied, Finished]
        assert opened(worker_pool) == before


def _count_descriptors(task: int) -> Iterator[int]:
    yield len(os.listdir("/proc/self/fd"))


def test_only_drift_is_written(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    host = machine(sda.endpoint())
    limits = PlanLimits(excluded={SDA: LimitReason(Limit.EXCLUDED)})
    plan = make_plan(host, profile(NOMERGES), limits=limits)
    rows = write_plan(host, plan, filed(means), means)
    assert [(row.state, row.outcome) for row in rows] == [(State.EXCLUDED, None)]
    assert sda.value("queue/nomerges") == "0"


@pytest.mark.parametrize("number", [errno.EIO, errno.EPERM])
def test_unmovable_vector_becomes_fixed(number: int) -> None:
    free = vector()
    [row] = make_plan(machine(vectors=(free,)), profile(("irq_affinity", Exactly("local")))).rows
    assert row.state is State.DRIFT
    refused = WriteResult(row.setting, Outcome.REFUSED, number, "0-7")
    [done] = add_outcomes([row], Report(results={(row.id, row.setting): refused}))
    assert (done.state, done.outcome, done.value) == (State.FIXED, None, None)
    assert "refuses to have it moved" in describe_limit(done.limit)


def test_vector_refusal_keeps_errno() -> None:
    [row] = make_plan(
        machine(vectors=(vector(),)), profile(("irq_affinity", Exactly("local")))
    ).rows
    refused = WriteResult(row.setting, Outcome.REFUSED, errno.EINVAL, "0-7")
    [done] = add_outcomes([row], Report(results={(row.id, row.setting): refused}))
    assert (done.state, done.outcome, done.errno) == (State.DRIFT, Outcome.REFUSED, errno.EINVAL)


@pytest.mark.parametrize("before", ["7", "3", ""])
@pytest.mark.parametrize("after", [["7"], [""], ["7", "", "7"]])
def test_transient_affinity_is_reread(
    before: str, after: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPUs that it had before, or none at all."""
    file = tmp_path / "smp_affinity_list"
    file.write_text(before)
    shown = [] if before == "7" else [before, "", "7"]
    shown += after

    def look(*where: str) -> str | Missing:
        return shown.pop(0) if shown else reread_attribute(*where)

    monkeypatch.setattr("hbatune.act.chain.reread_attribute", look)
    step = Step("irq_affinity", "3", "7")
    [result] = write_chain(
        Chain("irq30", "msix-0@0000:01:00.0", None, None, str(tmp_path), (step,))
    )
    assert (result.outcome, result.found, shown) == (Outcome.WRITTEN, "3", [])
    assert file.read_text() == "3"


def test_unmoved_vector_reports_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smp_affinity_list").write_text("7")
    monkeypatch.setattr("hbatune.act.chain.reread_attribute", lambda *where: "7")
    step = Step("irq_affinity", "3", "7")
    [result] = write_chain(
        Chain("irq30", "msix-0@0000:01:00.0", None, None, str(tmp_path), (step,))
    )
    assert (result.outcome, result.found) == (Outcome.IGNORED, "7")


def test_later_tunables_stay_unjournaled(disk: Callable[..., Disk], means: Means) -> None:
    # The first run switched the scheduler; the second one finds tunables that came with it.
    sda = disk(queue__scheduler="none [mq-deadline]", queue__nr_requests="1024")
    (sda.path / "queue/iosched/fifo_batch").write_text("16")
    host = machine(sda.endpoint())
    before = Entry(SDA, "sda", "0000:01:00.0", "scheduler", "none")
    plan = planned(host, ("nr_requests", Exactly(2048)))
    write_plan(host, plan, Journal(host.boot_id, (before,)), means)
    filed, _ = journal.load(means.journal, host.boot_id)
    assert {entry.setting for entry in filed.entries} == {"scheduler", "nr_requests"}


@pytest.mark.parametrize(("found", "kept"), [("none", True), (None, True), ("kyber", False)])
def test_refusal_with_effect_keeps_baseline(
    disk: Callable[..., Disk],
    means: Means,
    monkeypatch: pytest.MonkeyPatch,
    found: str | None,
    kept: bool,
) -> None:
    sda = disk(queue__scheduler="none mq-deadline [kyber]")
    host = machine(sda.endpoint())
    refused = WriteResult("scheduler", Outcome.REFUSED, errno.EINVAL, found)
    report = Report({(SDA, "scheduler"): refused})
    monkeypatch.setattr("hbatune.act.writer.execute_chains", lambda chains, means: report)
    write_plan(host, planned(host, SCHEDULER), Journal(host.boot_id), means)
    filed, _ = journal.load(means.journal, host.boot_id)
    assert ("scheduler" in {entry.setting for entry in filed.entries}) == kept


def test_kernel_side_effect_is_undone(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch, means: Means
) -> None:
    """Every change of a queue's limits raises the read-ahead to its default (6.12)."""
    from hbatune.act import chain

    sda = disk(queue__iostats="1", queue__read_ahead_kb="64")

    def store(path: str, text: str) -> int | None:
        if path.endswith("iostats"):
            (sda.path / "queue/read_ahead_kb").write_text("128")
        Path(path).write_text(text)
        return None

    monkeypatch.setattr(chain, "_store", store)
    host = machine(sda.endpoint())
    [row] = write_plan(host, planned(host, ("iostats", Exactly(0))), filed(means), means)
    assert row.outcome is Outcome.WRITTEN
    assert sda.value("queue/read_ahead_kb") == "64"
    entries = {entry.setting: entry for entry in filed(means).entries}
    assert (entries["read_ahead_kb"].value, entries["read_ahead_kb"].effect) == (None, None)
