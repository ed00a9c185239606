"""One pass of the daemon over plain files in place of sysfs: what it writes and what it leaves."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune import situation
from hbatune.act import irqbalance, journal, paths
from hbatune.act.hold import Held
from hbatune.agent import passes
from hbatune.agent.orders import Handled, Order, Reason, Report
from hbatune.errors import LockedError
from hbatune.facts.model import Attribute, Machine
from hbatune.policy.config import Config, Drift
from hbatune.policy.config import Daemon as DaemonConfig
from hbatune.policy.model import Exactly
from hbatune.rows import Outcome
from tests.unit.factory import machine, vector
from tests.unit.test_act import AFFINITY, NOMERGES, Disk
from tests.unit.test_plan import profile

START = Order(Reason.START, None)
AUDIT = Order(Reason.AUDIT, None, known=None)


class Bench:
    """Two disks, and a profile that wants nomerges and rq_affinity otherwise than they are."""

    def __init__(self, folder: Path) -> None:
        self.disks = [Disk(folder / "sys", name) for name in ("sda", "sdb")]
        self.config = Config()
        self.active: str | None = "test"
        self.profile = profile(NOMERGES, AFFINITY)

    def see(self) -> Machine:
        return machine(*(disk.endpoint() for disk in self.disks))

    def run(self, order: Order) -> Report:
        return passes.decode(passes.run(order, self.config, self.profile))

    def values(self, path: str) -> list[str]:
        return [disk.value(path) for disk in self.disks]

    def told(self, report: Report) -> dict[tuple[str, str], Handled]:
        return {(each.target, each.setting): each.handled for each in report.changes}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    for name in ("CLAIMS", "HOLDS", "JOURNAL", "LOCK", "LOCKED", "MODPROBE"):
        monkeypatch.setattr(paths, name, tmp_path / "state" / name.lower())
    for module in (situation, passes):
        monkeypatch.setattr(module, "gather", lambda *a, **k: made.see())
    monkeypatch.setattr(irqbalance, "leave", lambda irqs: None)
    monkeypatch.setattr(passes, "configuration", lambda: replace(made.config, profile=made.active))
    return made


def test_everything_is_made_so_and_can_be_put_back(bench: Bench) -> None:
    report = bench.run(START)
    assert set(bench.told(report).values()) == {Handled.WRITTEN}
    assert (bench.values("queue/nomerges"), bench.values("queue/rq_affinity")) == (
        ["1", "1"],
        ["2", "2"],
    )
    assert report.open == ()
    assert bench.run(START).changes == ()
    assert passes.decode(passes.put_back(bench.config)).error is None
    assert bench.values("queue/nomerges") == ["0", "0"]
    assert not paths.JOURNAL.exists()


def test_an_event_tunes_what_it_names_and_nothing_else(bench: Bench) -> None:
    report = bench.run(Order(Reason.EVENT, ("sdb", "sdz")))
    assert {target for target, _ in bench.told(report)} == {"sdb"}
    assert bench.values("queue/nomerges") == ["0", "1"]
    assert report.appeared == (bench.disks[1].endpoint().id,), "what is gone again is nothing"


def test_what_others_keep_setting_back_is_left(bench: Bench) -> None:
    bench.run(START)
    for disk in bench.disks:
        (disk.path / "queue/nomerges").write_text("2")
    left = frozenset({(bench.disks[0].endpoint().id, "nomerges")})
    report = bench.run(replace(AUDIT, left=left))
    assert bench.told(report) == {
        ("sda", "nomerges"): Handled.LEFT,
        ("sdb", "nomerges"): Handled.WRITTEN,
    }
    assert bench.values("queue/nomerges") == ["2", "1"]
    assert [each.target for each in report.open] == ["sda"]


@pytest.mark.parametrize(
    ("drift", "handled"),
    [(Drift.REPAIR, Handled.WRITTEN), (Drift.REPORT, Handled.REPORTED), (Drift.IGNORE, None)],
)
def test_what_to_do_about_drift_is_the_sites_to_say(
    bench: Bench, drift: Drift, handled: Handled | None
) -> None:
    bench.config = Config(daemon=DaemonConfig(drift_of={"nomerges": drift}))
    bench.run(START)
    assert bench.values("queue/nomerges") == ["1", "1"], "what is new has not drifted"
    (bench.disks[0].path / "queue/nomerges").write_text("2")
    (bench.disks[0].path / "queue/rq_affinity").write_text("0")
    told = bench.told(bench.run(AUDIT))
    assert told.get(("sda", "nomerges")) == handled
    assert told["sda", "rq_affinity"] is Handled.WRITTEN
    assert bench.values("queue/nomerges")[0] == ("1" if drift is Drift.REPAIR else "2")


def test_what_is_being_measured_is_not_repaired(bench: Bench) -> None:
    held = Held(paths.HOLDS, [bench.disks[0].endpoint().id])
    held.take()
    told = bench.told(bench.run(START))
    assert told["sda", "nomerges"] is Handled.HELD
    assert bench.values("queue/nomerges") == ["0", "1"]


def test_what_was_rolled_back_by_name_stays_so(bench: Bench) -> None:
    bench.run(START)
    [filed, _] = journal.load(paths.JOURNAL, machine().boot_id)
    (bench.disks[0].path / "queue/nomerges").write_text("0")
    journal.save(paths.JOURNAL, filed.excluding([bench.disks[0].endpoint().id]))
    assert bench.run(AUDIT).changes == ()
    assert bench.values("queue/nomerges") == ["0", "1"]


def test_while_another_hbatune_works_nothing_is_looked_at(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(path: Path) -> object:
        raise LockedError(1)

    monkeypatch.setattr(passes, "Lock", taken)
    assert bench.run(START).locked
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_a_journal_that_cannot_be_written_is_told_and_nothing_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hbatune.act.files.replace", full)
    report = bench.run(START)
    assert report.error is not None
    assert "No space left" in report.error
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_a_write_that_does_not_take_is_told(bench: Bench) -> None:
    (bench.disks[0].path / "queue/nomerges").write_text("00")  # a plain file keeps its length
    [failed] = bench.run(START).open
    assert (failed.target, failed.setting) == ("sda", "nomerges")
    assert (failed.handled, failed.outcome) == (Handled.FAILED, Outcome.IGNORED)


def test_a_profile_that_is_no_longer_active_is_not_set(bench: Bench) -> None:
    bench.active = None
    assert bench.run(START).locked
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_what_is_not_known_yet_is_set_whatever_is_to_be_done_about_drift(bench: Bench) -> None:
    bench.config = Config(daemon=DaemonConfig(drift=Drift.REPORT))
    known = frozenset({bench.disks[0].endpoint().id})
    told = bench.told(bench.run(replace(AUDIT, known=known)))
    assert told["sda", "nomerges"] is Handled.REPORTED
    assert told["sdb", "nomerges"] is Handled.WRITTEN


def test_what_could_not_be_set_twice_is_left(bench: Bench) -> None:
    failing = frozenset({(bench.disks[0].endpoint().id, "nomerges")})
    told = bench.told(bench.run(replace(AUDIT, failing=failing)))
    assert told["sda", "nomerges"] is Handled.GIVEN_UP
    assert bench.values("queue/nomerges") == ["0", "1"]


def test_what_cannot_be_put_back_is_said(bench: Bench) -> None:
    bench.run(START)
    (bench.disks[0].path / "queue/nomerges").unlink()
    error = passes.decode(passes.put_back(bench.config)).error
    assert error is not None
    assert "could not be put back" in error


def test_what_was_set_is_told_even_where_irqbalance_cannot_be(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(irqs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(irqbalance, "leave", full)
    free = vector(affinity=Attribute("0-7", True))
    monkeypatch.setattr(situation, "gather", lambda *a, **k: replace(bench.see(), vectors=(free,)))
    bench.profile = profile(NOMERGES, ("irq_affinity", Exactly("local")))
    report = bench.run(START)
    assert report.error is not None
    assert "irqbalance" in report.error
    assert len(report.changes) >= 2
