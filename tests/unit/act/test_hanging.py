"""No write to a queue in which a command hangs, and no row in doubt because of it."""

import errno
from collections.abc import Callable

import pytest

from hbatune.act import chain
from hbatune.act.chain import Chain, Step
from hbatune.act.executor import Means
from hbatune.act.hanging import find_hanging_commands
from hbatune.act.restore import restore_values
from hbatune.act.writer import write_plan
from hbatune.facts.commands import CommandCounters, QueueLoad
from hbatune.plan.rows import Outcome
from hbatune.policy.profile import Exactly
from hbatune.text.limit_text import describe_limit
from tests.kernel.chains import write_chain
from tests.unit.disk_files import AFFINITY, NOMERGES, Disk, by_setting, filed, planned
from tests.unit.machines import machine

HANGING = "commands that hang in its queue: 1, the oldest for 0 s or more"
DEPTH = ("queue_depth", Exactly(64))

MakeDisk = Callable[..., Disk]


class Loads(CommandCounters):
    """Counters that show one load after the other, and then the last one."""

    def __init__(self, *loads: QueueLoad) -> None:
        self.loads = list(loads)
        self.reads = 0

    def read(self) -> QueueLoad:
        self.reads += 1
        return self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]

    def read_age(self) -> int | None:
        return 31


def test_idle_queue_is_not_observed() -> None:
    counters = Loads(QueueLoad(0, 5))
    assert find_hanging_commands(counters) is None
    assert counters.reads == 1


@pytest.mark.parametrize(
    "later", [QueueLoad(0, 5), QueueLoad(2, 6)], ids=["it ends", "another one ends"]
)
def test_slow_command_does_not_hang(later: QueueLoad) -> None:
    assert find_hanging_commands(Loads(QueueLoad(2, 5), QueueLoad(2, 5), later)) is None


def test_number_and_age_of_hanging_commands_are_named() -> None:
    reason = find_hanging_commands(Loads(QueueLoad(2, 5)), 0)
    assert describe_limit(reason) == (
        "commands that hang in its queue: 2, the oldest for 31 s or more"
    )


def test_state_is_named_unless_it_passes() -> None:
    recovering = QueueLoad(0, 5, "the host is recovery")
    assert find_hanging_commands(Loads(recovering, QueueLoad(0, 5))) is None
    text = describe_limit(find_hanging_commands(Loads(recovering), 0))
    assert text == "the host is recovery, and a write to the queue would wait for it"


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
    [row] = restore_values(host, filed(means), means)
    assert (row.outcome, row.limit, row.done) == (Outcome.BLOCKED, HANGING, False)
    (sda.path / "inflight").write_text("0 0")
    [row] = restore_values(host, filed(means), means)
    assert row.outcome is Outcome.WRITTEN
    assert (filed(means).entries, sda.value("queue/nomerges")) == ((), "0")


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
