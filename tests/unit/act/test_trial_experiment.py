"""Settings taken through values and back, on plain files in place of sysfs."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act import files, journal
from hbatune.act.executor import Means
from hbatune.act.journal import Journal, JournalError
from hbatune.act.lock import read_held_ids
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.trial import Experiment
from hbatune.act.writer import write_plan
from hbatune.facts.attributes import ERROR_COUNTER
from hbatune.facts.model import Machine
from hbatune.plan.rows import Outcome
from hbatune.policy.profile import Exactly
from hbatune.settings.setting import parse_selected
from tests.unit.disk_files import SDA, Disk, planned
from tests.unit.machines import machine

DEPTH = "device/queue_depth"


class Bench:
    """A disk of depth 64 and the experiment with it."""

    def __init__(self, tmp_path: Path) -> None:
        self.means = Means(
            tmp_path / "state/journal.json",
            tmp_path / "run/writers",
            tmp_path / "spent.json",
            1,
            20.0,
        )
        self.holds = tmp_path / "held"
        self.disk = Disk(tmp_path / "sys", "sda", device__queue_depth="64")

    @property
    def host(self) -> Machine:
        return machine(self.disk.endpoint())

    def experiment(self) -> Experiment:
        return self.of("queue_depth")

    def of(self, *settings: str) -> Experiment:
        return Experiment(self.host, SDA, settings, "probe", self.means, holds=self.holds)

    def values(self, *paths: str) -> tuple[str, ...]:
        return tuple(map(self.disk.value, paths))

    def filed(self) -> Journal:
        return journal.load(self.means.journal, machine().boot_id)[0]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_experiment_restores_first_value(bench: Bench) -> None:
    with bench.experiment() as experiment:
        assert read_held_ids(bench.holds) == {SDA}
        for depth in (10, 32):
            [result] = experiment.take({"queue_depth": depth}).values()
            assert result.outcome is Outcome.WRITTEN
            assert bench.disk.value(DEPTH) == str(depth)
            assert [entry.before for entry in bench.filed().entries] == [64], "durable meanwhile"
    assert bench.disk.value(DEPTH) == "64"
    assert not bench.means.journal.exists()
    assert read_held_ids(bench.holds) == frozenset()


def test_interrupt_restores_old_value(bench: Bench) -> None:
    def interrupted() -> None:
        with bench.experiment() as experiment:
            experiment.take({"queue_depth": 10})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert bench.disk.value(DEPTH) == "64"
    assert not bench.means.journal.exists()


def test_applied_value_and_baseline_return(bench: Bench) -> None:
    plan = planned(bench.host, ("queue_depth", Exactly(96)))
    write_plan(bench.host, plan, bench.filed(), bench.means)
    with bench.experiment() as experiment:
        experiment.take({"queue_depth": 10})
    assert bench.disk.value(DEPTH) == "96"
    restore_values(plan_rollback(bench.host, bench.filed(), bench.means), bench.means)
    assert bench.disk.value(DEPTH) == "64"


def test_rollback_restores_after_kill(bench: Bench) -> None:
    pid = os.fork()
    if pid == 0:
        with bench.experiment() as experiment:
            experiment.take({"queue_depth": 10})
            os._exit(9)  # as SIGKILL would: no end is written
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert bench.disk.value(DEPTH) == "10"
    stored_journal = bench.filed()
    assert stored_journal.run is not None
    assert stored_journal.run.command == "probe"
    restore_values(plan_rollback(bench.host, stored_journal, bench.means), bench.means)
    assert bench.disk.value(DEPTH) == "64"


def test_unrestorable_value_is_not_written(bench: Bench) -> None:
    (bench.disk.path / DEPTH).write_text("nonsense")
    with bench.experiment() as experiment:
        [result] = experiment.take({"queue_depth": 10}).values()
        assert result.outcome is Outcome.REFUSED
    assert bench.disk.value(DEPTH) == "nonsense"


def test_unwritable_journal_prevents_changes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    write = files.replace

    def refuse(path: Path, data: bytes, **modes: Any) -> None:
        if path == bench.means.journal:
            raise OSError(28, "No space left on device")
        write(path, data, **modes)

    monkeypatch.setattr(files, "replace", refuse)
    with pytest.raises(JournalError), bench.experiment():
        pytest.fail("it began")
    assert read_held_ids(bench.holds) == frozenset()


def test_unrequested_settings_are_restored(bench: Bench) -> None:
    with bench.of("queue_depth", "nomerges", "rq_affinity") as experiment:
        results = experiment.take({"queue_depth": 10, "nomerges": 2})
        assert {result.outcome for result in results.values()} == {Outcome.WRITTEN}
        results = experiment.take({"rq_affinity": 2})
        assert set(results) == {"rq_affinity"}
        assert bench.values(DEPTH, "queue/nomerges", "queue/rq_affinity") == ("64", "0", "2")
        experiment.take({})
        assert bench.values(DEPTH, "queue/nomerges", "queue/rq_affinity") == ("64", "0", "1")


class Scheduled:
    """A disk with a scheduler; a switch of it resets nr_requests and tunables, as in the kernel."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.disk = Disk(
            bench.disk.path.parent,
            "sdb",
            queue__scheduler="[mq-deadline] kyber none",
            queue__nr_requests="512",
            queue__iosched__front_merges="7",
        )
        self.bench, self.queue = bench, bench.disk.path / "queue"
        monkeypatch.setattr("hbatune.act.chain._store", self.store)

    def store(self, path: str, text: str) -> int | None:
        if path.endswith("scheduler"):
            names = ("mq-deadline", "kyber", "none")
            text = " ".join(f"[{name}]" if name == text else name for name in names)
            self.values = "256", "1"
        Path(path).write_text(text)
        return None

    @property
    def experiment(self) -> Experiment:
        bench, id = self.bench, self.bench.host.endpoints[0].id
        settings = ("scheduler", "nr_requests")
        return Experiment(bench.host, id, settings, "probe", bench.means, holds=bench.holds)

    @property
    def scheduler(self) -> str:
        return parse_selected((self.queue / "scheduler").read_text())

    @property
    def values(self) -> tuple[str, str]:
        requests, merges = self.queue / "nr_requests", self.queue / "iosched/front_merges"
        return requests.read_text(), merges.read_text()

    @values.setter
    def values(self, texts: tuple[str, str]) -> None:
        for path, text in zip(("nr_requests", "iosched/front_merges"), texts, strict=True):
            (self.queue / path).write_text(text)


@pytest.fixture
def scheduled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Scheduled:
    return Scheduled(bench, monkeypatch)


def test_scheduler_resets_are_no_conflict(
    scheduled: Scheduled,
) -> None:
    with scheduled.experiment as experiment:
        for _ in range(2):
            [result] = experiment.take({"scheduler": "kyber"}).values()
            assert (result.found, scheduled.scheduler) == ("kyber", "kyber")
            assert scheduled.values == ("256", "1")
    assert (scheduled.scheduler, scheduled.values) == ("mq-deadline", ("512", "7"))
    assert experiment.failed == {}


def test_foreign_change_during_run_stays(bench: Bench) -> None:
    with bench.experiment() as experiment:
        experiment.take({"queue_depth": 10})
        (bench.disk.path / DEPTH).write_text("40")
        [result] = experiment.take({"queue_depth": 32}).values()
        assert (result.outcome, result.found) == (Outcome.CONFLICT, 40)
        assert experiment.conflicts
        [result] = experiment.take({"queue_depth": 10}).values()
        assert result.outcome is Outcome.CONFLICT, "nothing is tried after that"
        assert bench.disk.value(DEPTH) == "40"
    assert bench.disk.value(DEPTH) == "40"
    assert {name: result.outcome for name, result in experiment.failed.items()} == {
        "queue_depth": Outcome.CONFLICT
    }
    [entry] = bench.filed().entries
    assert (entry.before, entry.value) == (64, None), "a rollback still restores"


def test_foreign_change_at_end_stays(bench: Bench) -> None:
    with bench.experiment() as experiment:
        experiment.take({"queue_depth": 10})
        (bench.disk.path / DEPTH).write_text("40")
    assert bench.disk.value(DEPTH) == "40"
    assert experiment.failed["queue_depth"].found == 40


def test_untried_foreign_value_stays(bench: Bench) -> None:
    with bench.of("queue_depth", "nomerges") as experiment:
        experiment.take({"queue_depth": 10})
        (bench.disk.path / "queue/nomerges").write_text("2")
        assert experiment.take({"queue_depth": 32})["nomerges"].found == 2
    assert bench.values(DEPTH, "queue/nomerges") == ("64", "2")
    assert set(experiment.failed) == {"nomerges"}
    assert not bench.means.journal.exists(), "hbatune has not touched it"


def test_foreign_change_after_apply_stays(bench: Bench) -> None:
    plan = planned(bench.host, ("queue_depth", Exactly(96)))
    write_plan(bench.host, plan, bench.filed(), bench.means)
    with bench.experiment() as experiment:
        experiment.take({"queue_depth": 10})
        (bench.disk.path / DEPTH).write_text("40")
    assert bench.disk.value(DEPTH) == "40"
    [entry] = bench.filed().entries
    assert (entry.before, entry.value) == (64, None)


def test_foreign_requests_change_stays(scheduled: Scheduled) -> None:
    with scheduled.experiment as experiment:
        experiment.take({"scheduler": "kyber"})
        scheduled.values = "128", "1"
    assert (scheduled.scheduler, scheduled.values[0]) == ("mq-deadline", "128")
    assert set(experiment.failed) == {"nr_requests"}


def test_foreign_scheduler_change_stays(scheduled: Scheduled) -> None:
    with scheduled.experiment as experiment:
        experiment.take({"scheduler": "kyber"})
        scheduled.store(str(scheduled.queue / "scheduler"), "none")
        assert experiment.take({"scheduler": "mq-deadline"})["scheduler"].found == "none"
    assert (scheduled.scheduler, scheduled.values) == ("none", ("256", "1"))
    assert set(experiment.failed) == {"scheduler"}


def errors_of(bench: Bench) -> Path:
    return bench.disk.path / ERROR_COUNTER


def test_queue_full_is_no_conflict(bench: Bench) -> None:
    errors_of(bench).write_text("0x1")
    with bench.experiment() as experiment:
        experiment.take({"queue_depth": 60})
        (bench.disk.path / DEPTH).write_text("30")
        errors_of(bench).write_text("0x40")
        [result] = experiment.take({"queue_depth": 48}).values()
        assert result.outcome is Outcome.WRITTEN
        (bench.disk.path / DEPTH).write_text("45")  # a step or two of the kernel's ramp
    assert (bench.disk.value(DEPTH), experiment.failed) == ("64", {})


def test_driver_reset_is_no_conflict(bench: Bench) -> None:
    host = machine(replace(bench.disk.endpoint(), family="mpt3sas"))
    experiment = Experiment(host, SDA, ("queue_depth",), "probe", bench.means, holds=bench.holds)
    with experiment:
        experiment.take({"queue_depth": 10})
        (bench.disk.path / DEPTH).write_text("64")
        [result] = experiment.take({"queue_depth": 32}).values()
        assert result.outcome is Outcome.WRITTEN
    assert (bench.disk.value(DEPTH), experiment.failed) == ("64", {})


def test_failed_restore_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench.experiment() as experiment:
        experiment.take({"queue_depth": 10})
        monkeypatch.setattr("hbatune.act.chain._store", lambda path, text: errno.EIO)
    assert experiment.failed["queue_depth"].errno == errno.EIO
    assert [entry.before for entry in bench.filed().entries] == [64]
