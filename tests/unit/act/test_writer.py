"""Writing and putting back, on plain files in place of sysfs: outcomes, guards, the journal.

What the kernel does with a write is the lab's to show; here it is a file that takes everything.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act import journal, lock
from hbatune.act.chain import (
    Chain,
    Step,
    WriteResult,
)
from hbatune.act.executor import Means, Report
from hbatune.act.journal import Entry, Journal, JournalError
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import add_outcomes, execute_chains, require_writable, write_plan
from hbatune.errors import UsageError
from hbatune.facts.survey import survey_requests
from hbatune.plan.make import PlanLimits, make_plan
from hbatune.plan.rows import Outcome, State
from hbatune.policy.profile import Exactly
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from hbatune.workers import WorkerPool
from tests.unit.disk_files import (
    AFFINITY,
    NOMERGES,
    SDA,
    Disk,
    by_setting,
    filed,
    planned,
)
from tests.unit.machines import endpoint, machine, vector
from tests.unit.profiles import profile

SCHEDULER = ("scheduler", Exactly("mq-deadline"))


def test_rollback_restores_applied_changes(disk: Callable[..., Disk], means: Means) -> None:
    sda = disk()
    host = machine(sda.endpoint())
    rows = write_plan(host, planned(host, NOMERGES, AFFINITY), filed(means), means)
    assert by_setting(rows) == {"nomerges": Outcome.WRITTEN, "rq_affinity": Outcome.WRITTEN}
    assert (sda.value("queue/nomerges"), sda.value("queue/rq_affinity")) == ("1", "2")
    restored = restore_values(plan_rollback(machine(sda.endpoint()), filed(means), means), means)
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
    restore_values(plan_rollback(machine(sda.endpoint()), filed(means), means), means)
    assert sda.value("queue/nomerges") == "0"


def test_baseline_precedes_write(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    observations: list[tuple[str, tuple[Entry, ...]]] = []
    real = journal.save

    def save(path: Path, saved_journal: Journal, **options: Any) -> tuple[int, int]:
        saved = real(path, saved_journal, **options)
        observations.append((sda.value("queue/nomerges"), filed(means).entries))
        return saved

    monkeypatch.setattr(journal, "save", save)
    host = machine(sda.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    first_value, first_entries = observations[0]
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
    assert {result.outcome for result in report.results.values()} == {Outcome.WRITTEN}
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


# --- many disks at once ---


def test_write_holds_claim(
    disk: Callable[..., Disk], means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(disk().endpoint())
    seen_by_worker = means.journal.parent / "claims-seen"

    def store(path: str, text: str) -> int | None:
        claims = [(claim.id, claim.pid) for claim in lock.find_outstanding_claims(means.claims)]
        seen_by_worker.write_text(str(claims == [(SDA, os.getpid())]))
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
    outcomes = {row.setting: (row.outcome, row.errno, describe_limit(row.limit)) for row in rows}
    assert outcomes == {
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
    [entry] = [entry for entry in filed(means).entries if entry.setting == "nomerges"]
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
    outcomes = {row.setting: (row.outcome, row.errno) for row in rows}
    first, second = sorted(outcomes.values(), key=lambda pair: pair[1] != errno.ECHILD)
    assert first == (Outcome.REFUSED, errno.ECHILD)
    assert second[0] is Outcome.CANCELLED
    assert "died" in next(describe_limit(row.limit) for row in rows if row.errno == errno.ECHILD)
    entries = filed(means).entries
    assert {entry.setting for entry in entries} == {"nomerges", "rq_affinity"}
    assert {entry.doubt for entry in entries} == {None}


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


@pytest.mark.parametrize(
    ("found_value", "keeps_baseline"), [("none", True), (None, True), ("kyber", False)]
)
def test_refusal_with_effect_keeps_baseline(
    disk: Callable[..., Disk],
    means: Means,
    monkeypatch: pytest.MonkeyPatch,
    found_value: str | None,
    keeps_baseline: bool,
) -> None:
    sda = disk(queue__scheduler="none mq-deadline [kyber]")
    host = machine(sda.endpoint())
    refused = WriteResult("scheduler", Outcome.REFUSED, errno.EINVAL, found_value)
    report = Report({(SDA, "scheduler"): refused})
    monkeypatch.setattr("hbatune.act.writer.execute_chains", lambda chains, means: report)
    write_plan(host, planned(host, SCHEDULER), Journal(host.boot_id), means)
    filed, _ = journal.load(means.journal, host.boot_id)
    assert ("scheduler" in {entry.setting for entry in filed.entries}) == keeps_baseline


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


def test_read_only_error_names_first_target(monkeypatch: pytest.MonkeyPatch) -> None:
    read_only = os.statvfs_result((*(0,) * 8, os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    sda, interrupt = endpoint(), vector(irq=40)
    for ids in ((interrupt.id, sda.id), (sda.id, interrupt.id)):
        with pytest.raises(UsageError, match=r"^/sys is mounted read-only"):
            require_writable(machine(sda, vectors=(interrupt,)), ids)
