"""async_depth, a tunable that kernels show in two places: saved, restored last, set by a rule."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import chain, journal
from hbatune.act.executor import Means
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.facts.model import Machine
from hbatune.plan.rows import Outcome, Restored, State
from hbatune.policy.profile import Exactly
from hbatune.settings.setting import Value
from hbatune.text.limit_text import describe_limit
from tests.unit.disk_files import Disk, by_setting, filed, planned
from tests.unit.machines import machine

DEADLINE = {"queue__scheduler": "none [mq-deadline]", "queue__nr_requests": "256"}
NONE = {"queue__scheduler": "[none] mq-deadline", "queue__nr_requests": "975"}
NEW, OLD = "queue/async_depth", "queue/iosched/async_depth"

MakeDisk = Callable[..., Disk]


def scan(sda: Disk) -> Machine:
    return machine(replace(sda.endpoint(), tags=975))


def apply(sda: Disk, means: Means, *effects: tuple[str, Exactly]) -> dict[str, Outcome | None]:
    host = scan(sda)
    return by_setting(write_plan(host, planned(host, *effects), filed(means), means))


def roll_back(sda: Disk, means: Means) -> dict[str, Restored]:
    return {
        row.setting: row
        for row in restore_values(plan_rollback(scan(sda), filed(means), means), means)
    }


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the rules of the kernel to each write of a file."""
    monkeypatch.setattr(chain, "_store", store)


def store(path: str, text: str) -> int | None:
    """Take a write as block/elevator.c, block/blk-sysfs.c and block/mq-deadline.c do."""
    file = Path(path)
    queue = file.parent.parent if "iosched" in path else file.parent
    requests, async_depth = queue / "nr_requests", queue / "async_depth"
    offered, before = queue / "scheduler", int(requests.read_text())
    is_none = "[none]" in offered.read_text()
    if file == async_depth:
        if is_none or int(text) < 1:
            return errno.EINVAL
        text = str(min(int(text), before))
    elif file == offered:
        fresh = "975" if text == "none" else "256"
        requests.write_text(fresh)
        if async_depth.exists():
            async_depth.write_text(fresh)
        text = " ".join(f"[{n}]" if n == text else n for n in ("none", "mq-deadline"))
    elif file == requests and async_depth.exists():
        async_depth.write_text(str(int(async_depth.read_text()) * int(text) // before))
    elif file == requests:  # the previous number
        (queue / "iosched/async_depth").write_text(str(before))
    file.write_text(text)
    return None


@pytest.mark.parametrize("path", [NEW, OLD])
def test_rollback_restores_rescaled_value(disk: MakeDisk, means: Means, path: str) -> None:
    sda = disk(**DEADLINE, **{path.replace("/", "__"): "61"})
    apply(sda, means, ("nr_requests", Exactly(1024)))
    assert sda.value(path) == ("244" if path == NEW else "256")
    rows = roll_back(sda, means)
    assert sda.value(path) == "61"
    assert rows["async_depth"].outcome is Outcome.WRITTEN
    assert list(rows) == ["nr_requests", "async_depth"]
    assert roll_back(sda, means) == {}


def test_value_with_none_is_not_restored(disk: MakeDisk, means: Means) -> None:
    sda = disk(**NONE, queue__async_depth="975", mq__0__nr_tags="975")
    apply(sda, means, ("scheduler", Exactly("mq-deadline")))
    assert sda.value(NEW) == "256"
    rows = roll_back(sda, means)
    assert sda.value(NEW) == "975"
    assert {row.outcome for row in rows.values()} == {Outcome.WRITTEN}
    assert "async_depth" not in rows


def test_rule_sets_value_under_new_scheduler(disk: MakeDisk, means: Means) -> None:
    sda = disk(**NONE, queue__async_depth="975", mq__0__nr_tags="975")
    effects: dict[str, Value] = {"scheduler": "mq-deadline", "async_depth": 64}
    outcomes = apply(sda, means, *((name, Exactly(value)) for name, value in effects.items()))
    assert set(outcomes.values()) == {Outcome.WRITTEN}
    assert sda.value(NEW) == "64"
    rows = roll_back(sda, means)
    assert sda.value("queue/scheduler") == "[none] mq-deadline"
    assert sda.value(NEW) == "975"
    assert (rows["async_depth"].gone, rows["async_depth"].done) == (True, True)
    assert journal.load(means.journal, machine().boot_id)[0].entries == ()


def test_rule_of_later_run_is_written(disk: MakeDisk, means: Means) -> None:
    sda = disk(**NONE, queue__async_depth="975", mq__0__nr_tags="975")
    apply(sda, means, ("scheduler", Exactly("mq-deadline")))
    effects = (("scheduler", Exactly("mq-deadline")), ("async_depth", Exactly(64)))
    assert apply(sda, means, *effects)["async_depth"] is Outcome.WRITTEN
    assert sda.value(NEW) == "64"
    roll_back(sda, means)
    assert sda.value(NEW) == "975"


@pytest.mark.parametrize(
    ("effects", "value", "limit"),
    [
        ((), 256, "nr_requests is 256"),
        ((("nr_requests", Exactly(512)),), 500, ""),
        ((("nr_requests", Exactly(128)),), 128, "nr_requests is 128"),
    ],
)
def test_value_is_limited_to_planned_requests(
    disk: MakeDisk, effects: tuple[tuple[str, Exactly], ...], value: int, limit: str
) -> None:
    sda = disk(**DEADLINE, queue__async_depth="256")
    rows = planned(scan(sda), *effects, ("async_depth", Exactly(500))).rows
    row = next(row for row in rows if row.setting == "async_depth")
    assert (row.value, describe_limit(row.limit)) == (value, limit)


def test_setting_is_fixed_with_none(disk: MakeDisk) -> None:
    sda = disk(**NONE, queue__async_depth="975", mq__0__nr_tags="975")
    [row] = planned(scan(sda), ("async_depth", Exactly(64))).rows
    assert (row.state, row.current) == (State.FIXED, 975)
    assert describe_limit(row.limit) == "the kernel sets it with scheduler none"
