"""One setting taken through values and back, on plain files in place of sysfs."""

import os
from pathlib import Path

import pytest

from hbatune.act import files, journal
from hbatune.act.apply import Means, apply
from hbatune.act.journal import Journal, JournalError
from hbatune.act.lock import held
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
        return Experiment(self.host, SDA, "queue_depth", "probe", self.means, holds=self.holds)

    def filed(self) -> Journal:
        return journal.load(self.means.journal, machine().boot_id)[0]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_values_are_taken_one_after_the_other_and_the_first_comes_back(bench: Bench) -> None:
    with bench.experiment() as experiment:
        assert held(bench.holds) == {SDA}
        for depth in (10, 32):
            assert experiment.take(depth).outcome is Outcome.WRITTEN
            assert bench.disk.value(DEPTH) == str(depth)
            assert [entry.before for entry in bench.filed().entries] == [64], "durable meanwhile"
    assert bench.disk.value(DEPTH) == "64"
    assert not bench.means.journal.exists()
    assert held(bench.holds) == frozenset()


def test_an_error_on_the_way_leaves_everything_as_it_was(bench: Bench) -> None:
    def interrupted() -> None:
        with bench.experiment() as experiment:
            experiment.take(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert bench.disk.value(DEPTH) == "64"
    assert not bench.means.journal.exists()


def test_what_an_apply_had_set_comes_back_and_so_does_its_baseline(bench: Bench) -> None:
    plan = planned(bench.host, ("queue_depth", Exactly(96)))
    apply(bench.host, plan, bench.filed(), bench.means)
    with bench.experiment() as experiment:
        experiment.take(10)
    assert bench.disk.value(DEPTH) == "96"
    rollback(bench.host, bench.filed(), bench.means)
    assert bench.disk.value(DEPTH) == "64"


def test_killed_at_a_value_a_rollback_restores(bench: Bench) -> None:
    pid = os.fork()
    if pid == 0:
        with bench.experiment() as experiment:
            experiment.take(10)
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
        assert experiment.take(10).outcome is Outcome.REFUSED
    assert bench.disk.value(DEPTH) == "nonsense"


def test_without_a_journal_nothing_is_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.replace

    def refuse(path: Path, data: bytes, **modes: int) -> None:
        if path == bench.means.journal:
            raise OSError(28, "No space left on device")
        write(path, data, **modes)

    monkeypatch.setattr(files, "replace", refuse)
    with pytest.raises(JournalError), bench.experiment():
        pytest.fail("it began")
    assert held(bench.holds) == frozenset()
