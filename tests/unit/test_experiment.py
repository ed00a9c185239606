"""Settings taken through values and back, on plain files in place of sysfs."""

import os
from pathlib import Path
from typing import Any

import pytest

from hbatune.act import files, journal
from hbatune.act.apply import apply
from hbatune.act.journal import Journal, JournalError
from hbatune.act.lock import held
from hbatune.act.means import Means
from hbatune.act.rollback import rollback
from hbatune.act.trial import Experiment
from hbatune.facts.model import Machine
from hbatune.plan.rows import Outcome
from hbatune.policy.model import Exactly
from tests.unit.factory import machine
from tests.unit.test_act import SDA, Disk, planned

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


def test_values_are_taken_one_after_the_other_and_the_first_comes_back(bench: Bench) -> None:
    with bench.experiment() as experiment:
        assert held(bench.holds) == {SDA}
        for depth in (10, 32):
            [result] = experiment.take({"queue_depth": depth}).values()
            assert result.outcome is Outcome.WRITTEN
            assert bench.disk.value(DEPTH) == str(depth)
            assert [entry.before for entry in bench.filed().entries] == [64], "durable meanwhile"
    assert bench.disk.value(DEPTH) == "64"
    assert not bench.means.journal.exists()
    assert held(bench.holds) == frozenset()


def test_an_error_on_the_way_leaves_everything_as_it_was(bench: Bench) -> None:
    def interrupted() -> None:
        with bench.experiment() as experiment:
            experiment.take({"queue_depth": 10})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert bench.disk.value(DEPTH) == "64"
    assert not bench.means.journal.exists()


def test_what_an_apply_had_set_comes_back_and_so_does_its_baseline(bench: Bench) -> None:
    plan = planned(bench.host, ("queue_depth", Exactly(96)))
    apply(bench.host, plan, bench.filed(), bench.means)
    with bench.experiment() as experiment:
        experiment.take({"queue_depth": 10})
    assert bench.disk.value(DEPTH) == "96"
    rollback(bench.host, bench.filed(), bench.means)
    assert bench.disk.value(DEPTH) == "64"


def test_killed_at_a_value_a_rollback_restores(bench: Bench) -> None:
    pid = os.fork()
    if pid == 0:
        with bench.experiment() as experiment:
            experiment.take({"queue_depth": 10})
            os._exit(9)  # as SIGKILL would: no end is written
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert bench.disk.value(DEPTH) == "10"
    left = bench.filed()
    assert left.run is not None
    assert left.run.command == "probe"
    rollback(bench.host, left, bench.means)
    assert bench.disk.value(DEPTH) == "64"


def test_what_could_not_be_put_back_is_not_touched(bench: Bench) -> None:
    (bench.disk.path / DEPTH).write_text("nonsense")
    with bench.experiment() as experiment:
        [result] = experiment.take({"queue_depth": 10}).values()
        assert result.outcome is Outcome.REFUSED
    assert bench.disk.value(DEPTH) == "nonsense"


def test_without_a_journal_nothing_is_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.replace

    def refuse(path: Path, data: bytes, **modes: Any) -> None:
        if path == bench.means.journal:
            raise OSError(28, "No space left on device")
        write(path, data, **modes)

    monkeypatch.setattr(files, "replace", refuse)
    with pytest.raises(JournalError), bench.experiment():
        pytest.fail("it began")
    assert held(bench.holds) == frozenset()


def test_settings_that_are_not_asked_for_are_as_they_were_found(bench: Bench) -> None:
    with bench.of("queue_depth", "nomerges", "rq_affinity") as experiment:
        results = experiment.take({"queue_depth": 10, "nomerges": 2})
        assert {each.outcome for each in results.values()} == {Outcome.WRITTEN}
        results = experiment.take({"rq_affinity": 2})
        assert set(results) == {"rq_affinity"}
        assert bench.values(DEPTH, "queue/nomerges", "queue/rq_affinity") == ("64", "0", "2")
        experiment.take({})
        assert bench.values(DEPTH, "queue/nomerges", "queue/rq_affinity") == ("64", "0", "1")


def test_what_a_scheduler_resets_is_the_kernels_own_until_the_scheduler_comes_back(
    bench: Bench,
) -> None:
    bench.disk = Disk(
        bench.disk.path.parent,
        "sdb",
        # Plain files keep their length, so all values here have as many characters as their
        # successors.
        queue__scheduler="mq-deadline",
        queue__nr_requests="512",
        queue__iosched__front_merges="7",
    )
    here = [bench.disk.path / "queue" / name for name in ("nr_requests", "iosched/front_merges")]
    id = bench.host.endpoints[0].id
    experiment = Experiment(
        bench.host, id, ("scheduler", "nr_requests"), "probe", bench.means, holds=bench.holds
    )
    with experiment:
        experiment.take({"scheduler": "kyberkyberk"})
        for path, text in zip(here, ("256", "1"), strict=True):
            path.write_text(text)  # as the kernel does
        experiment.take({"scheduler": "kyberkyberk"})
        assert [path.read_text() for path in here] == ["256", "1"]
    assert [path.read_text() for path in here] == ["512", "7"]
    assert bench.disk.value("queue/scheduler") == "mq-deadline"
