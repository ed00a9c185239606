"""No write to a queue in which a command hangs, and no row in doubt because of it."""

import errno
from collections.abc import Callable

import pytest

from hbatune.act import chain
from hbatune.act.chain import Chain, Step
from hbatune.act.executor import Means
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.plan.rows import Outcome
from hbatune.policy.profile import Exactly
from tests.kernel.chains import write_chain
from tests.unit.disk_files import AFFINITY, NOMERGES, Disk, by_setting, filed, planned
from tests.unit.machines import machine

HANGING = "hung commands in its queue: 1, the oldest for 0 s or more"
DEPTH = ("queue_depth", Exactly(64))

MakeDisk = Callable[..., Disk]


@pytest.fixture
def _immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "OBSERVATION_S", 0.0)


@pytest.mark.usefixtures("_immediately")
def test_hanging_command_blocks_queue_only(disk: MakeDisk, means: Means) -> None:
    sda = disk(inflight="1 0", device__queue_depth="32")
    host = machine(sda.endpoint())
    rows = write_plan(host, planned(host, NOMERGES, AFFINITY, DEPTH), filed(means), means)
    assert by_setting(rows) == {
        "queue_depth": Outcome.WRITTEN,
        "nomerges": Outcome.BLOCKED,
        "rq_affinity": Outcome.BLOCKED,
    }
    assert {row.limit for row in rows if row.outcome is Outcome.BLOCKED} == {HANGING}
    assert (sda.value("queue/nomerges"), sda.value("queue/rq_affinity")) == ("0", "1")
    assert all(entry.doubt is None for entry in filed(means).entries)


@pytest.mark.usefixtures("_immediately")
def test_blocked_setting_is_written_later(disk: MakeDisk, means: Means) -> None:
    sda = disk(inflight="1 0")
    host = machine(sda.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    assert filed(means).entries == ()
    (sda.path / "inflight").write_text("0 0")
    rows = write_plan(host, planned(host, NOMERGES), filed(means), means)
    assert by_setting(rows) == {"nomerges": Outcome.WRITTEN}


@pytest.mark.usefixtures("_immediately")
def test_blocked_restore_stays_in_journal(disk: MakeDisk, means: Means) -> None:
    sda = disk(inflight="0 0")
    host = machine(sda.endpoint())
    write_plan(host, planned(host, NOMERGES), filed(means), means)
    (sda.path / "inflight").write_text("0 1")
    [row] = restore_values(plan_rollback(host, filed(means), means), means)
    assert (row.outcome, row.limit, row.done) == (Outcome.BLOCKED, HANGING, False)
    (sda.path / "inflight").write_text("0 0")
    [row] = restore_values(plan_rollback(host, filed(means), means), means)
    assert row.outcome is Outcome.WRITTEN
    assert (filed(means).entries, sda.value("queue/nomerges")) == ((), "0")


@pytest.mark.usefixtures("_immediately")
def test_state_blocks_queue(disk: MakeDisk) -> None:
    sda = disk(dm__suspended="1")
    step = Step("nomerges", 1, 0)
    [result] = write_chain(Chain("dm-0", "id", None, None, str(sda.path), (step,)))
    assert (result.outcome, result.said) == (
        Outcome.BLOCKED,
        "the map is suspended, and a write to the queue would wait for it",
    )


@pytest.mark.usefixtures("_immediately")
def test_dependent_setting_is_blocked_with_scheduler(disk: MakeDisk, means: Means) -> None:
    sda = disk(queue__scheduler="[none] mq-deadline", queue__nr_requests="64", inflight="1 0")
    steps = (Step("scheduler", "mq-deadline", "none"), Step("nr_requests", 128, 64, "mq-deadline"))
    results = list(write_chain(Chain("sda", "id", "adapter", None, str(sda.path), steps)))
    assert {result.outcome for result in results} == {Outcome.BLOCKED}
    assert {result.said for result in results} == {HANGING}


def test_busy_adapter_of_stuck_sibling_is_not_awaited(
    disk: MakeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[str]()

    def store(path: str, text: str) -> int | None:
        tried.append(path.rpartition("/")[2])
        return errno.EBUSY if path.endswith("nr_requests") else None

    monkeypatch.setattr(chain, "_store", store)
    sdb = disk("sdb", queue__scheduler="none [mq-deadline]", queue__nr_requests="64")
    steps = (Step("nr_requests", 128, 64, "mq-deadline"), Step("nomerges", 0, 0))
    planned_chain = Chain("sdb", "id", "adapter", None, str(sdb.path), steps, behind="sda")
    blocked, kept = write_chain(planned_chain)
    assert (blocked.outcome, kept.outcome) == (Outcome.BLOCKED, Outcome.KEPT)
    assert blocked.said == "a write to sda has not returned and locks the adapter"
    assert tried == ["nr_requests"]
