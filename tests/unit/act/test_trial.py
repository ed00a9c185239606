"""Switching between before and after, on plain files in place of sysfs."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act import files, journal
from hbatune.act.executor import Means
from hbatune.act.journal import JournalError
from hbatune.act.lock import HoldError, read_held_ids
from hbatune.act.paths import Paths
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.trial import Side, Trial, Values, can_switch, read_affected_values
from hbatune.act.writer import write_plan
from hbatune.facts.model import Machine
from hbatune.plan.rows import Outcome, Row
from hbatune.policy.profile import Exactly
from tests.unit.disk_files import Disk, planned
from tests.unit.machines import attributes, endpoint, machine

SCHEDULER = ("scheduler", Exactly("mq-deadline"))
REQUESTS = ("nr_requests", Exactly(2048))
NOMERGES = ("nomerges", Exactly(1))
AFFINITY = ("rq_affinity", Exactly(2))
FILES = ("queue/nomerges", "queue/rq_affinity")


@pytest.fixture
def means(tmp_path: Path) -> Means:
    return Means(
        tmp_path / "state/journal.json", tmp_path / "run/writers", tmp_path / "spent.json", 2, 20.0
    )


@pytest.fixture
def sda(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "sys", "sda")


class Applied:
    """A disk on which an apply has set nomerges and rq_affinity, and the trial of it."""

    def __init__(self, disk: Disk, means: Means, holds: Path) -> None:
        self.disk, self.means, self.holds = disk, means, holds
        self.host = machine(disk.endpoint())
        plan = planned(self.host, NOMERGES, AFFINITY)
        before = read_affected_values(self.host, plan.drift, means)
        self.rows = write_plan(self.host, plan, self.filed(), means)
        self.trial = Trial(self.host, self.rows, before, means, holds=holds)
        self.keys = [(row.id, row.setting) for row in self.rows]

    def filed(self) -> journal.Journal:
        return journal.load(self.means.journal, machine().boot_id)[0]

    def values(self) -> tuple[str, ...]:
        return tuple(self.disk.value(path) for path in FILES)


@pytest.fixture
def applied(sda: Disk, means: Means, tmp_path: Path) -> Applied:
    return Applied(sda, means, tmp_path / "held")


BEFORE, AFTER = ("0", "1"), ("1", "2")


def test_switch_alternates_both_sides(applied: Applied) -> None:
    assert applied.values() == AFTER
    with applied.trial as trial:
        for side, values in ((Side.BEFORE, BEFORE), (Side.AFTER, AFTER), (Side.BEFORE, BEFORE)):
            assert trial.switch(applied.keys, side) == {}
            assert applied.values() == values
    assert applied.values() == AFTER, "a trial ends with everything as applied"


def test_single_setting_switches_alone(applied: Applied) -> None:
    with applied.trial as trial:
        [nomerges] = [key for key in applied.keys if key[1] == "nomerges"]
        assert trial.switch([nomerges], Side.BEFORE) == {}
        assert applied.values() == ("0", "2")


def test_reverted_setting_leaves_journal(applied: Applied) -> None:
    with applied.trial as trial:
        [nomerges] = [key for key in applied.keys if key[1] == "nomerges"]
        assert trial.revert([nomerges]) == {}
    assert applied.values() == ("0", "2")
    assert {entry.setting for entry in applied.filed().entries} == {"rq_affinity"}
    assert applied.filed().run is None
    restore_values(
        plan_rollback(machine(applied.disk.endpoint()), applied.filed(), applied.means),
        applied.means,
    )
    assert applied.values() == BEFORE


def test_revert_restores_value_before_apply(sda: Disk, means: Means, tmp_path: Path) -> None:
    host = machine(sda.endpoint())
    first = planned(host, ("nomerges", Exactly(2)), AFFINITY)
    write_plan(host, first, journal.load(means.journal, host.boot_id)[0], means)
    again = Applied(sda, means, tmp_path / "held")
    with again.trial as trial:
        trial.revert([(row.id, row.setting) for row in again.trial.rows])
    assert sda.value("queue/nomerges") == "2"
    # The first baseline is the baseline: it stays on file.
    assert {e.setting: e.before for e in again.filed().entries}["nomerges"] == 0
    restore_values(plan_rollback(machine(sda.endpoint()), again.filed(), means), means)
    assert sda.value("queue/nomerges") == "0"


def test_rollback_restores_after_kill(applied: Applied) -> None:
    pid = os.fork()
    if pid == 0:
        with applied.trial as trial:
            trial.switch(applied.keys, Side.BEFORE)
            trial.switch(applied.keys[:1], Side.AFTER)
            os._exit(9)  # as SIGKILL would: no end is written
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert applied.values() not in (BEFORE, AFTER)
    stored_journal = applied.filed()
    assert stored_journal.run is not None
    assert stored_journal.run.command == "apply"
    assert not stored_journal.run.process.alive()
    assert read_held_ids(applied.holds) == frozenset(), "a dead process holds nothing"
    restore_values(
        plan_rollback(machine(applied.disk.endpoint()), stored_journal, applied.means),
        applied.means,
    )
    assert applied.values() == BEFORE


def test_trial_holds_targets(applied: Applied) -> None:
    with applied.trial:
        assert read_held_ids(applied.holds) == {applied.rows[0].id}
    assert read_held_ids(applied.holds) == frozenset()


def test_foreign_value_survives_switch(applied: Applied) -> None:
    with applied.trial as trial:
        (applied.disk.path / "queue/nomerges").write_text("2")
        stayed = trial.switch(applied.keys, Side.BEFORE)
    assert [(name, result.outcome) for (_, name), result in stayed.items()] == [
        ("nomerges", Outcome.CONFLICT)
    ]
    assert applied.disk.value("queue/nomerges") == "2"


@pytest.mark.parametrize("broken", ["journal.json", str(os.getpid())], ids=["journal", "hold"])
def test_failed_write_prevents_trial(
    applied: Applied, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    write = files.replace

    def refuse(path: Path, data: bytes, **modes: Any) -> None:
        if path.name == broken:
            raise OSError(28, "No space left on device")
        write(path, data, **modes)

    monkeypatch.setattr(files, "replace", refuse)
    with pytest.raises((JournalError, HoldError)), applied.trial:
        pytest.fail("the trial began")
    assert applied.values() == AFTER
    assert applied.filed().run is None
    assert read_held_ids(applied.holds) == frozenset()


def test_switch_restores_side_effects(means: Means, tmp_path: Path) -> None:
    # Plain files keep their length, so all numbers here have as many digits as their successors.
    sda = Disk(
        tmp_path / "sys",
        "sda",
        queue__scheduler="none [mq-deadline]",
        queue__nr_requests="1024",
        queue__iosched__async_depth="700",
    )
    host = machine(sda.endpoint())
    plan = planned(host, REQUESTS)
    before = read_affected_values(host, plan.drift, means)
    rows = write_plan(host, plan, journal.load(means.journal, host.boot_id)[0], means)
    assert {row.outcome for row in rows} == {Outcome.WRITTEN}
    (sda.path / "queue/iosched/async_depth").write_text("768")  # as the kernel does
    keys = [(row.id, row.setting) for row in rows]
    values = [sda.path / "queue" / name for name in ("nr_requests", "iosched/async_depth")]
    with Trial(host, rows, before, means, holds=tmp_path / "held") as trial:
        assert trial.switch(keys, Side.BEFORE) == {}
        assert [path.read_text() for path in values] == ["1024", "700"]
    assert [path.read_text() for path in values] == ["2048", "768"]


def host_with(scheduler: str, requests: str, tags: int) -> tuple[Machine, Row]:
    disk_attributes = attributes(queue__scheduler=scheduler, queue__nr_requests=requests)
    host = machine(endpoint(attributes=disk_attributes, tags=tags))
    [row] = planned(host, ("nr_requests", Exactly(1024))).drift
    return host, row


@pytest.mark.parametrize(
    ("scheduler", "requests", "fine"),
    [("none [mq-deadline]", 256, True), ("[none] mq-deadline", 64, False)],
)
def test_schedulerless_requests_are_not_lowered(scheduler: str, requests: int, fine: bool) -> None:
    host, row = host_with(scheduler, str(requests), 1000)
    before: Values = {(row.id, "nr_requests"): requests}
    assert can_switch(host, [row], before) is fine


def test_scheduler_restores_full_tag_set() -> None:
    disk_attributes = attributes(queue__scheduler="[none] mq-deadline", queue__nr_requests="1000")
    host = machine(endpoint(attributes=disk_attributes, tags=1000))
    rows = planned(host, SCHEDULER, REQUESTS).drift
    id = rows[0].id
    before: Values = {(id, "scheduler"): "none", (id, "nr_requests"): 1000}
    assert can_switch(host, rows, before)


def test_unparsable_scheduler_prevents_switching() -> None:
    host, row = host_with("none bfq", "256", 1000)
    assert not can_switch(host, [row], {(row.id, "nr_requests"): 256})


def test_holds_and_claims_are_separate() -> None:
    # What settles claims kills their processes; a hold is of a living command.
    assert Paths.holds != Paths.claims


def test_adapter_wide_setting_stays_fixed() -> None:
    host, row = host_with("none [mq-deadline]", "256", 1000)
    assert not can_switch(host, [replace(row, setting="zio")], {})


def test_revert_preserves_side_effect_baseline(means: Means, tmp_path: Path) -> None:
    sda = Disk(tmp_path / "sys", "sda", queue__iostats="1", queue__read_ahead_kb="1024")
    host = machine(sda.endpoint())
    plan = planned(host, ("iostats", Exactly(0)), ("read_ahead_kb", Exactly(4096)))
    before = read_affected_values(host, plan.drift, means)
    rows = write_plan(host, plan, journal.load(means.journal, host.boot_id)[0], means)
    with Trial(host, rows, before, means, holds=tmp_path / "held") as trial:
        trial.revert([(row.id, row.setting) for row in rows if row.setting == "iostats"])
    assert sda.value("queue/read_ahead_kb") == "4096"
    restore_values(
        plan_rollback(machine(sda.endpoint()), journal.load(means.journal, host.boot_id)[0], means),
        means,
    )
    assert sda.value("queue/read_ahead_kb") == "1024"


def test_vanished_disk_spares_second_disk(means: Means, tmp_path: Path) -> None:
    sda, sdb = Disk(tmp_path / "sys", "sda"), Disk(tmp_path / "sys", "sdb")
    host = machine(sda.endpoint(), sdb.endpoint())
    plan = planned(host, NOMERGES)
    before = read_affected_values(host, plan.drift, means)
    rows = write_plan(host, plan, journal.load(means.journal, host.boot_id)[0], means)
    shutil.rmtree(sda.path)
    with Trial(host, rows, before, means, holds=tmp_path / "held") as trial:
        keys = [(row.id, row.setting) for row in rows]
        stayed = trial.switch(keys, Side.BEFORE)
        assert {result.outcome for result in stayed.values()} == {Outcome.VANISHED}
        assert sdb.value("queue/nomerges") == "0"
    assert sdb.value("queue/nomerges") == "1"
    assert read_held_ids(tmp_path / "held") == frozenset()


def nomerges_of(applied: Applied) -> tuple[str, str]:
    [key] = [key for key in applied.keys if key[1] == "nomerges"]
    return key


def test_foreign_change_survives_trial(applied: Applied) -> None:
    key = nomerges_of(applied)
    with applied.trial as trial:
        trial.switch(applied.keys, Side.BEFORE)
        (applied.disk.path / "queue/nomerges").write_text("2")
        for side in (Side.AFTER, Side.BEFORE, Side.AFTER):
            assert {result.outcome for result in trial.switch([key], side).values()} == {
                Outcome.CONFLICT
            }
        assert set(trial.revert([key])) == {key}, "it has not the value from before the apply"
    assert applied.values() == ("2", "2")
    assert [(name, result.found) for (_, name), result in trial.failed.items()] == [("nomerges", 2)]
    values = {entry.setting: entry.value for entry in applied.filed().entries}
    assert values == {"nomerges": None, "rq_affinity": 2}, "the baseline stays, the value is theirs"


def test_failed_restore_is_reported(applied: Applied, monkeypatch: pytest.MonkeyPatch) -> None:
    with applied.trial as trial:
        trial.switch(applied.keys, Side.BEFORE)
        monkeypatch.setattr("hbatune.act.chain._store", lambda path, text: errno.EIO)
    assert {result.errno for result in trial.failed.values()} == {errno.EIO}
    assert {name for _, name in trial.failed} == {"nomerges", "rq_affinity"}


def switch_as_kernel(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], defaults: dict[str, str]
) -> Path:
    """Have a switch of the scheduler set its default of nr_requests, whose file is returned.

    The disk's async_depth, if it has one, follows nr_requests.
    """
    requests, depth = disk.path / "queue/nr_requests", disk.path / "queue/async_depth"

    def store(path: str, text: str) -> int | None:
        if path.endswith("scheduler"):
            requests.write_text(defaults[text])
            text = " ".join(f"[{name}]" if name == text else name for name in names)
        Path(path).write_text(text)
        if depth.exists() and not path.endswith("async_depth"):
            depth.write_text(requests.read_text())
        return None

    monkeypatch.setattr("hbatune.act.chain._store", store)
    return requests


@pytest.mark.parametrize(
    ("names", "requests", "goal", "sides"),
    [
        (("none", "mq-deadline"), "446", (SCHEDULER, REQUESTS), ("446", "2048")),
        (("mq-deadline", "none"), "256", (("scheduler", Exactly("none")),), ("256", "446")),
        (
            ("mq-deadline", "none"),
            "900",
            (("scheduler", Exactly("none")), REQUESTS),
            ("900", "446"),
        ),
    ],
    ids=["from-none", "to-none", "to-none-with-requests"],
)
def test_scheduler_and_requests_switch_together(
    means: Means,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, str],
    requests: str,
    goal: tuple[tuple[str, Exactly], ...],
    sides: tuple[str, str],
) -> None:
    first, second = names
    sda = Disk(
        tmp_path / "sys",
        "sda",
        queue__scheduler=f"[{first}] {second}",
        queue__nr_requests=requests,
        mq__0__nr_tags="446",
    )
    default = {"none": "446", "mq-deadline": "256"}
    file = switch_as_kernel(sda, monkeypatch, names, default)
    host = machine(replace(sda.endpoint(), tags=446))
    plan = planned(host, *goal)
    before = read_affected_values(host, plan.drift, means)
    rows = write_plan(host, plan, journal.load(means.journal, host.boot_id)[0], means)
    assert can_switch(host, rows, before)
    keys = [(row.id, row.setting) for row in rows]
    values = {
        Side.BEFORE: (f"[{first}] {second}", sides[0]),
        Side.AFTER: (f"{first} [{second}]", sides[1]),
    }
    with Trial(host, rows, before, means, holds=tmp_path / "held") as trial:
        for side in (Side.BEFORE, Side.AFTER, Side.AFTER, Side.BEFORE):
            assert trial.switch(keys, side) == {}
            assert (sda.value("queue/scheduler"), file.read_text()) == values[side]
    assert (sda.value("queue/scheduler"), file.read_text()) == values[Side.AFTER]
    assert trial.failed == {}


def test_switch_to_none_resets_async_depth(
    means: Means, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Linux 7.2 the file remains without a scheduler, and has the kernel's value."""
    sda = Disk(
        tmp_path / "sys",
        "sda",
        queue__scheduler="[none] mq-deadline",
        queue__nr_requests="446",
        queue__async_depth="446",
        mq__0__nr_tags="446",
    )
    defaults = {"none": "446", "mq-deadline": "256"}
    switch_as_kernel(sda, monkeypatch, ("none", "mq-deadline"), defaults)
    host = machine(replace(sda.endpoint(), tags=446))
    plan = planned(host, SCHEDULER, REQUESTS)
    before = read_affected_values(host, plan.drift, means)
    rows = write_plan(host, plan, journal.load(means.journal, host.boot_id)[0], means)
    keys = [(row.id, row.setting) for row in rows]
    with Trial(host, rows, before, means, holds=tmp_path / "held") as trial:
        for side in (Side.BEFORE, Side.AFTER, Side.BEFORE, Side.AFTER):
            assert trial.switch(keys, side) == {}
    assert (sda.value("queue/nr_requests"), sda.value("queue/async_depth")) == ("2048", "2048")


def test_foreign_requests_survive_switch(
    means: Means, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = Disk(
        tmp_path / "sys", "sda", queue__scheduler="[kyber] mq-deadline", queue__nr_requests="256"
    )
    defaults = dict.fromkeys(("kyber", "mq-deadline"), "256")
    requests = switch_as_kernel(sda, monkeypatch, ("kyber", "mq-deadline"), defaults)
    host = machine(sda.endpoint())
    plan = planned(host, SCHEDULER, ("nr_requests", Exactly(512)))
    before = read_affected_values(host, plan.drift, means)
    rows = write_plan(host, plan, journal.load(means.journal, host.boot_id)[0], means)
    keys = [(row.id, row.setting) for row in rows]
    with Trial(host, rows, before, means, holds=tmp_path / "held") as trial:
        assert trial.switch(keys, Side.BEFORE) == {}
        requests.write_text("100")
        assert trial.switch(keys, Side.AFTER)
        assert requests.read_text() == "100"
    assert sda.value("queue/scheduler") == "kyber [mq-deadline]"
    assert requests.read_text() == "100"
    assert {name for _, name in trial.failed} == {"nr_requests"}


def test_queue_full_rampdown_is_restored(means: Means, tmp_path: Path) -> None:
    sda = Disk(tmp_path / "sys", "sda", device__queue_depth="32", device__ioerr_cnt="0x1")
    host = machine(sda.endpoint())
    plan = planned(host, ("queue_depth", Exactly(96)))
    before = read_affected_values(host, plan.drift, means)
    rows = write_plan(host, plan, journal.load(means.journal, host.boot_id)[0], means)
    keys = [(row.id, row.setting) for row in rows]
    with Trial(host, rows, before, means, holds=tmp_path / "held") as trial:
        (sda.path / "device/queue_depth").write_text("60")
        (sda.path / "device/ioerr_cnt").write_text("0x99")
        assert trial.switch(keys, Side.BEFORE), "this comparison is lost"
    assert (sda.value("device/queue_depth"), trial.failed) == ("96", {})
