"""One pass of the daemon over plain files in place of sysfs: what it writes and what it leaves."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import interrupts, journal, marks, rollback_record, writer
from hbatune.act.journal import Run
from hbatune.act.lock import hold_targets
from hbatune.act.paths import Paths
from hbatune.agent import passes
from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import (
    ChangeOrigin,
    DepthLevel,
    Handled,
    Order,
    PassReason,
    PassReport,
    decode_report,
)
from hbatune.agent.schedule import PassHistory
from hbatune.errors import LockedError
from hbatune.facts.assembly import make_selector
from hbatune.facts.health import MIN_INTERVAL_S, Health
from hbatune.facts.machine import Scope
from hbatune.facts.model import Attribute, Kind, Machine, Protocol
from hbatune.operations import reconcile, situation
from hbatune.plan.joint_limits import REQUEST_BYTES
from hbatune.plan.rows import Outcome
from hbatune.policy.config import (
    ActConfig,
    Config,
    DaemonConfig,
    DriftReaction,
    Site,
    SiteArray,
    UnmatchedName,
)
from hbatune.policy.profile import Exactly, Leave, Origin
from hbatune.settings.setting import parse_selected
from hbatune.settings.table import Cause
from hbatune.workers import find_this_process
from tests.unit.check_inputs import disk_health, health
from tests.unit.disk_files import AFFINITY, NOMERGES, Disk
from tests.unit.machines import machine, vector
from tests.unit.profiles import DEADLINE, REQUESTS, profile

START = Order(PassReason.START)
AUDIT = Order(PassReason.AUDIT)
LEAVE = interrupts.ban_interrupts
OTHERS = ("queue/nr_requests", "mq/0/nr_tags", "queue/wbt_lat_usec")
"""What a disk has beside its scheduler, and what a switch of that may change."""


def event(*names: str, cause: Cause | None = None) -> Order:
    """An order to look at what was announced."""
    return Order(PassReason.EVENT, tuple(DeviceEvent(name, cause) for name in names))


class Bench:
    """Two disks, and a profile that wants nomerges and rq_affinity otherwise than they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disks = [Disk(folder / "sys", name) for name in ("sda", "sdb")]
        self.config = Config()
        self.active: str | None = "test"
        self.profile = profile(NOMERGES, AFFINITY)

    def see(self) -> Machine:
        return machine(*(disk.endpoint() for disk in self.disks))

    def run(self, order: Order) -> PassReport:
        with closing(passes.Memory()) as memory:
            return decode_report(passes.run(order, self.config, self.profile, memory))

    def values(self, path: str) -> list[str]:
        return [disk.value(path) for disk in self.disks]

    def handling(self, report: PassReport) -> dict[tuple[str, str], Handled]:
        return {(change.target, change.setting): change.handled for change in report.changes}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    new_bench = Bench(tmp_path)
    monkeypatch.setattr(Paths, "modprobe", tmp_path / "state" / "modprobe")
    monkeypatch.setattr(situation, "gather_machine", lambda *a, **k: new_bench.see())
    monkeypatch.setattr(interrupts, "ban_interrupts", lambda irqs, paths: None)
    monkeypatch.setattr(
        reconcile, "load_configuration", lambda: replace(new_bench.config, profile=new_bench.active)
    )
    return new_bench


def test_start_pass_is_reversible(bench: Bench) -> None:
    report = bench.run(START)
    assert set(bench.handling(report).values()) == {Handled.WRITTEN}
    assert (bench.values("queue/nomerges"), bench.values("queue/rq_affinity")) == (
        ["1", "1"],
        ["2", "2"],
    )
    assert report.open == ()
    assert bench.run(START).changes == ()
    assert passes.restore_all(bench.config) is None
    assert bench.values("queue/nomerges") == ["0", "0"]
    assert not Paths.journal.exists()


def test_audit_keeps_counters_for_check(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts = 1

    def observe(machine: Machine, *, with_log: bool, **_: object) -> Health:
        assert not with_log, "the daemon's unit may not read it"
        return health(machine, disks={"sda": disk_health(timeouts=timeouts)})

    monkeypatch.setattr("hbatune.operations.snapshot.observe_health", observe)
    for order in (START, event("sda"), AUDIT):
        assert bench.run(order).findings is None
        assert not Paths.counters.exists(), "a pass reads counters only on an order"
    checked = bench.run(replace(AUDIT, checks=True))
    assert checked.findings == {"info": 1, "warning": 1}
    [stored] = marks.load_counted(Paths.counters)
    assert stored.value(bench.disks[0].endpoint().id, "timeouts") == 1
    marks.save_counted(Paths.counters, [replace(stored, at=stored.at - MIN_INTERVAL_S)])
    timeouts = 2
    bench.run(replace(AUDIT, checks=True))
    first, second = marks.load_counted(Paths.counters)
    id = bench.disks[0].endpoint().id
    assert (first.value(id, "timeouts"), second.value(id, "timeouts")) == (1, 2)


def test_event_tunes_named_target(bench: Bench) -> None:
    report = bench.run(event("sdb", "sdz"))
    assert {target for target, _ in bench.handling(report)} == {"sdb"}
    assert bench.values("queue/nomerges") == ["0", "1"]
    assert report.looked == (bench.disks[1].endpoint().id,), "what is gone again is nothing"


def test_contested_setting_stays_unrepaired(bench: Bench) -> None:
    bench.run(START)
    for disk in bench.disks:
        (disk.path / "queue/nomerges").write_text("2")
    contested_keys = frozenset({(bench.disks[0].endpoint().id, "nomerges")})
    report = bench.run(replace(AUDIT, left=contested_keys))
    assert bench.handling(report) == {
        ("sda", "nomerges"): Handled.LEFT,
        ("sdb", "nomerges"): Handled.WRITTEN,
    }
    assert bench.values("queue/nomerges") == ["2", "1"]
    assert [change.target for change in report.open] == ["sda"]


@pytest.mark.parametrize(
    ("drift", "handled"),
    [
        (DriftReaction.REPAIR, Handled.WRITTEN),
        (DriftReaction.REPORT, Handled.REPORTED),
        (DriftReaction.IGNORE, None),
    ],
)
def test_drift_policy_applies_per_setting(
    bench: Bench, drift: DriftReaction, handled: Handled | None
) -> None:
    bench.config = Config(daemon=DaemonConfig(drift_of={"nomerges": drift}))
    bench.run(START)
    assert bench.values("queue/nomerges") == ["1", "1"], "what is new has not drifted"
    (bench.disks[0].path / "queue/nomerges").write_text("2")
    (bench.disks[0].path / "queue/rq_affinity").write_text("0")
    handling = bench.handling(bench.run(AUDIT))
    assert handling.get(("sda", "nomerges")) == handled
    assert handling["sda", "rq_affinity"] is Handled.WRITTEN
    assert bench.values("queue/nomerges")[0] == ("1" if drift is DriftReaction.REPAIR else "2")


def test_measured_disk_stays_unrepaired(bench: Bench) -> None:
    with hold_targets(Paths.holds, [bench.disks[0].endpoint().id]):
        handling = bench.handling(bench.run(START))
    assert handling["sda", "nomerges"] is Handled.HELD
    assert bench.values("queue/nomerges") == ["0", "1"]


def test_target_rollback_excludes_target(bench: Bench) -> None:
    bench.run(START)
    (bench.disks[0].path / "queue/nomerges").write_text("0")
    rollback_record.record_rollback(Paths(), (bench.disks[0].endpoint().id,))
    assert bench.run(AUDIT).changes == ()
    assert bench.values("queue/nomerges") == ["0", "1"]


def test_full_rollback_blocks_until_apply(bench: Bench) -> None:
    rollback_record.record_rollback(Paths())
    assert bench.run(START).locked
    assert bench.values("queue/nomerges") == ["0", "0"]
    rollback_record.lift(rollback_record.load(Paths()), [bench.disks[1].endpoint().id], Paths())
    bench.run(START)
    assert bench.values("queue/nomerges") == ["0", "1"], "an apply has named this one"
    rollback_record.lift(rollback_record.load(Paths()), None, Paths())
    bench.run(START)
    assert bench.values("queue/nomerges") == ["1", "1"]


def test_unreadable_rollback_record_is_reported(bench: Bench) -> None:
    Paths.rollbacks.mkdir(parents=True)
    (Paths.rollbacks / "targets-1").write_text("{")
    report = bench.run(START)
    assert report.error == (
        "the rollback record targets-1 cannot be read, so hbatune changes nothing"
    )
    assert not report.locked
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_only_reload_restores_dropped_settings(
    bench: Bench,
) -> None:
    bench.run(START)
    bench.profile = profile(AFFINITY)
    assert bench.run(AUDIT).changes == ()
    assert bench.values("queue/nomerges") == ["1", "1"]
    bench.run(Order(PassReason.RELOAD))
    assert bench.values("queue/nomerges") == ["0", "0"]
    assert bench.values("queue/rq_affinity") == ["2", "2"]


def test_dependents_follow_unchanged_scheduler(
    bench: Bench,
) -> None:
    """Requests planned for mq-deadline would shrink the adapter's tag set under none."""
    bench.disks[0] = Disk(
        bench.folder / "queue",
        "sdq",
        queue__scheduler="[none] mq-deadline",
        queue__nr_requests="8000",
        mq__0__nr_tags="8000",
    )
    del bench.disks[1:]
    bench.profile = profile(DEADLINE, REQUESTS)
    bench.config = Config(daemon=DaemonConfig(drift_of={"scheduler": DriftReaction.REPORT}))
    marks.remember_disks(Paths.seen, bench.see())
    handling = bench.handling(bench.run(AUDIT))
    assert handling == {("sdq", "scheduler"): Handled.REPORTED}
    assert bench.values("queue/nr_requests") == ["8000"]


def test_locked_pass_is_skipped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_locked(path: Path, **_: object) -> object:
        raise LockedError(1)

    monkeypatch.setattr(passes, "Lock", raise_locked)
    assert bench.run(START).locked
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_full_journal_prevents_writes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes, **_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hbatune.act.files.replace", full)
    report = bench.run(START)
    assert report.error is not None
    assert "No space left" in report.error
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_ineffective_write_is_reported(bench: Bench) -> None:
    (bench.disks[0].path / "queue/nomerges").write_text("00")  # a plain file keeps its length
    [failed] = bench.run(START).open
    assert (failed.target, failed.setting) == ("sda", "nomerges")
    assert (failed.handled, failed.outcome) == (Handled.FAILED, Outcome.IGNORED)


def test_inactive_profile_stays_unapplied(bench: Bench) -> None:
    bench.active = None
    assert bench.run(START).locked
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_drift_policy_exempts_new_disks(bench: Bench) -> None:
    bench.config = Config(daemon=DaemonConfig(drift=DriftReaction.REPORT))
    [first, _] = bench.disks
    marks.remember_disks(Paths.seen, machine(first.endpoint()))
    for order in (AUDIT, event("sda", "sdb")):
        report = bench.run(order)
        assert bench.handling(report)["sda", "nomerges"] is Handled.REPORTED
    assert bench.values("queue/nomerges") == ["0", "1"]


def numbered(bench: Bench, *numbers: int) -> None:
    """Give the disks these sequence numbers."""
    pairs = zip(bench.disks, numbers, strict=True)
    numbered_machine = machine(
        *(replace(disk.endpoint(), diskseq=number) for disk, number in pairs)
    )
    bench.see = lambda: numbered_machine  # type: ignore[method-assign]


@pytest.mark.parametrize("drift", [DriftReaction.IGNORE, DriftReaction.REPORT])
def test_announcement_keeps_administrators_value(bench: Bench, drift: DriftReaction) -> None:
    """udev announces every disk again when systemd-udev-trigger is restarted."""
    numbered(bench, 7, 8)
    bench.run(START)
    bench.config = Config(daemon=DaemonConfig(drift=drift))
    for disk in bench.disks:
        (disk.path / "queue/nomerges").write_text("2")
    numbered(bench, 7, 9)  # the second one went, and another disk came in its place
    handling = bench.handling(bench.run(event("sda", "sdb")))
    assert handling.get(("sda", "nomerges")) is (
        Handled.REPORTED if drift is DriftReaction.REPORT else None
    )
    assert handling["sdb", "nomerges"] is Handled.WRITTEN
    assert bench.values("queue/nomerges") == ["2", "1"]


def test_drift_policy_exempts_kernel_resets(
    bench: Bench,
) -> None:
    bench.config = Config(daemon=DaemonConfig(drift=DriftReaction.IGNORE))
    bench.profile = profile(NOMERGES, ("read_ahead_kb", Exactly(512)))
    for disk in bench.disks:
        (disk.path / "queue/read_ahead_kb").write_text("128")
    bench.run(START)
    for disk in bench.disks:
        (disk.path / "queue/read_ahead_kb").write_text("128")
        (disk.path / "queue/nomerges").write_text("2")
    report = bench.run(event("sda", cause=Cause.LOADED))
    assert [(change.target, change.setting, change.origin) for change in report.changes] == [
        ("sda", "read_ahead_kb", ChangeOrigin.RESET)
    ]
    assert bench.values("queue/read_ahead_kb") == ["512", "128"]
    assert bench.run(event("sdb")).changes == (), "an announcement resets nothing"


def test_measured_disk_stays_new(bench: Bench) -> None:
    bench.config = Config(daemon=DaemonConfig(drift=DriftReaction.IGNORE))
    with hold_targets(Paths.holds, [bench.disks[0].endpoint().id]):
        bench.run(START)
    bench.run(AUDIT)
    assert bench.values("queue/nomerges") == ["1", "1"]


def test_failed_setting_waits_until_due(bench: Bench) -> None:
    bench.config = Config(daemon=DaemonConfig(drift=DriftReaction.IGNORE))
    marks.remember_disks(Paths.seen, bench.see())
    failed = frozenset({(bench.disks[0].endpoint().id, "nomerges")})
    assert bench.handling(bench.run(replace(AUDIT, waiting=failed))) == {
        ("sda", "nomerges"): Handled.WAITING
    }
    assert bench.values("queue/nomerges") == ["0", "0"]
    assert bench.handling(bench.run(replace(AUDIT, due=failed))) == {
        ("sda", "nomerges"): Handled.WRITTEN
    }


def test_new_disk_is_never_contested(bench: Bench) -> None:
    fought = frozenset((disk.endpoint().id, "nomerges") for disk in bench.disks)
    marks.remember_disks(Paths.seen, machine(bench.disks[0].endpoint()))
    handling = bench.handling(bench.run(replace(AUDIT, fought=fought)))
    assert handling["sda", "nomerges"] is Handled.LEFT
    assert handling["sdb", "nomerges"] is Handled.WRITTEN


class Lun:
    """A LUN of a family whose depth sinks on a full queue, and the looks of a daemon at it."""

    def __init__(self, bench: Bench, folder: Path, family: str = "mpt3sas") -> None:
        files = {
            "device__queue_depth": "254",
            "device__ioerr_cnt": "0x10",
            "device__queue_ramp_up_period": "120000",
        }
        self.bench, self.disk = bench, Disk(folder / "luns", "sdc", **files)
        bench.profile = profile(("queue_depth", Exactly(256)))
        bench.see = lambda: machine(  # type: ignore[method-assign]
            replace(self.disk.endpoint(), address="0:0:1:0", depth_cap=1000, family=family)
        )
        self.levels: dict[str, DepthLevel] = {}

    def set(self, depth: int, errors: int) -> None:
        """Have the LUN at this depth, with so many errors counted."""
        (self.disk.path / "device/queue_depth").write_text(str(depth))
        (self.disk.path / "device/ioerr_cnt").write_text(hex(errors))

    def look(self) -> PassReport:
        """Audit."""
        report = self.bench.run(replace(AUDIT, levels=self.levels))
        self.levels = report.levels
        return report


def test_queue_full_starts_ramp(bench: Bench, tmp_path: Path) -> None:
    lun = Lun(bench, tmp_path)
    assert [change.handled for change in lun.look().changes] == [Handled.WRITTEN]
    lun.look()
    lun.set(250, 0x10 + 11 * 6)
    for depth in (250, 251, 251, 255):  # it comes back by itself
        lun.set(depth, 0x10 + 11 * 6)
        [change] = lun.look().changes
        assert (change.handled, change.before) == (Handled.RAMPING, depth)
        assert change.step_seconds == 120.0
        assert lun.disk.value("device/queue_depth") == str(depth)
    lun.set(256, 0x10 + 11 * 6)
    assert lun.look().changes == ()


@pytest.mark.parametrize("errors", [0x10, 0x13])
def test_depth_without_errors_is_drift(bench: Bench, tmp_path: Path, errors: int) -> None:
    """A poll of smartd counts as an error or two, and no full queue."""
    lun = Lun(bench, tmp_path)
    lun.look()
    lun.look()
    lun.set(100, errors)
    [change] = lun.look().changes
    assert (change.handled, change.origin) == (Handled.WRITTEN, ChangeOrigin.DRIFT)


def test_driver_resets_never_exhaust_repairs(bench: Bench, tmp_path: Path) -> None:
    lun, history = Lun(bench, tmp_path, "mpi3mr"), PassHistory(60.0, current_time=0.0, epoch=0.0)
    for current_time in range(10):
        # What a reset ends counts as an error, and is no full queue either.
        lun.set(254, 0x10 + current_time * 50)
        order = history.order(PassReason.AUDIT, (), float(current_time))
        report = bench.run(order)
        [change] = report.changes
        assert change.handled is Handled.WRITTEN
        assert lun.disk.value("device/queue_depth") == "256"
        contested_keys, _ = history.record(order, report, float(current_time), 0.0)
        assert not contested_keys
        assert report.resettable == {"sdc": (254, 255)}, (
            "the daemon looks whether the driver has reset it"
        )


def test_unapplied_depth_is_no_reset(bench: Bench, tmp_path: Path) -> None:
    """The profile that wants another one became active after the disk was seen."""
    lun = Lun(bench, tmp_path, "mpi3mr")
    wanted, bench.profile = bench.profile, profile(NOMERGES)
    bench.run(START)
    bench.profile, bench.config = wanted, Config(daemon=DaemonConfig(drift=DriftReaction.REPORT))
    [change] = lun.look().changes
    assert (change.handled, change.origin) == (Handled.REPORTED, ChangeOrigin.DRIFT)
    assert lun.disk.value("device/queue_depth") == "254"


@pytest.mark.parametrize("run", [False, True])
def test_previous_run_depth_is_drift(bench: Bench, tmp_path: Path, run: bool) -> None:
    """By `apply --once` of another profile, or by one that was interrupted."""
    lun = Lun(bench, tmp_path, "mpi3mr")
    lun.look()
    lun.set(254, 0x10)
    recorded, _ = journal.load(Paths.journal, machine().boot_id)
    if run:
        stored_journal = recorded.begun(Run("apply", "other", find_this_process(), 0.0), ())
    else:
        stored_journal = replace(
            recorded, entries=tuple(replace(e, value=254) for e in recorded.entries)
        )
    journal.save(Paths.journal, stored_journal)
    bench.config = Config(daemon=DaemonConfig(drift=DriftReaction.REPORT))
    [change] = lun.look().changes
    assert (change.handled, change.origin) == (Handled.REPORTED, ChangeOrigin.DRIFT)


def test_administrator_depth_finally_wins(bench: Bench, tmp_path: Path) -> None:
    lun, history = Lun(bench, tmp_path, "mpi3mr"), PassHistory(60.0, current_time=0.0, epoch=0.0)
    handled = []
    for current_time, depth in enumerate((254, 100, 100, 100)):
        lun.set(depth, 0x10)
        order = history.order(PassReason.AUDIT, (), float(current_time))
        report = bench.run(order)
        handled += [change.handled for change in report.changes]
        history.record(order, report, float(current_time), 0.0)
    assert handled == [*[Handled.WRITTEN] * 3, Handled.LEFT]


def test_unaffected_driver_stays_unwatched(bench: Bench, tmp_path: Path) -> None:
    assert Lun(bench, tmp_path, "virtio_scsi").look().resettable == {}


def test_failed_restore_is_reported(bench: Bench) -> None:
    bench.run(START)
    (bench.disks[0].path / "queue/nomerges").unlink()
    error = passes.restore_all(bench.config)
    assert error is not None
    assert "could not be restored" in error


def test_irqbalance_failure_keeps_change_report(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(irqs: object, paths: Paths) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(interrupts, "ban_interrupts", full)
    placed_vector = vector(affinity=Attribute("0", True))
    monkeypatch.setattr(
        situation, "gather_machine", lambda *a, **k: replace(bench.see(), vectors=(placed_vector,))
    )
    bench.profile = profile(NOMERGES, ("irq_affinity", Exactly("local")))
    report = bench.run(START)
    assert report.error is not None
    assert "irqbalance" in report.error
    assert len(report.changes) >= 2


def test_unmatched_site_name_is_reported(bench: Bench) -> None:
    bench.config = Config(site=Site(exclude=("sda", "no-such")))
    assert bench.run(START).unmatched == (UnmatchedName("exclude", "no-such"),)


def test_irqbalance_exempts_placed_interrupts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither what a site excludes nor what an earlier profile had placed."""
    monkeypatch.setattr(interrupts, "ban_interrupts", LEAVE)
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: None)
    vectors = (vector(affinity=Attribute("0", True)), vector(irq=31, affinity=Attribute("1", True)))
    placed_machine = replace(bench.see(), vectors=vectors)
    monkeypatch.setattr(situation, "gather_machine", lambda *a, **k: placed_machine)
    bench.profile = profile(("irq_affinity", Exactly("local")))
    bench.run(START)
    assert interrupts.read_placed(Paths()) == {30, 31}
    bench.config = Config(site=Site(exclude=("irq31",)))
    bench.run(AUDIT)
    assert interrupts.read_placed(Paths()) == {30}
    bench.profile = profile(NOMERGES)
    bench.run(AUDIT)
    assert interrupts.read_placed(Paths()) == set()


def test_event_keeps_interrupt_exemptions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An event about a disk places no interrupt, and gives none back that was placed."""
    monkeypatch.setattr(interrupts, "ban_interrupts", LEAVE)
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: None)
    placed_vectors = [vector(irq=irq, affinity=Attribute("4-5", True)) for irq in (30, 31)]
    placed_machine = replace(bench.see(), vectors=tuple(placed_vectors))
    monkeypatch.setattr(situation, "gather_machine", lambda *a, **k: placed_machine)
    bench.profile = profile(("irq_affinity", Exactly("local")))
    bench.run(event("sda"))
    assert interrupts.read_placed(Paths()) == set()
    LEAVE([31], Paths())
    bench.run(event("sda"))
    assert interrupts.read_placed(Paths()) == {31}


class Looks:
    """A process that makes one pass after another, and the targets that each has scanned."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.memory = bench, passes.Memory()
        self.seen: list[list[str] | None] = []
        monkeypatch.setattr(situation, "gather_machine", self._gather)

    def run(self, order: Order) -> PassReport:
        return decode_report(passes.run(order, self.bench.config, self.bench.profile, self.memory))

    def _gather(self, attributes: Sequence[str], scope: Scope, **_: object) -> Machine:
        full_machine, only = self.bench.see(), make_selector(tuple(attributes))
        if scope.known_machine is None:
            self.seen.append(None)
            return full_machine
        self.seen.append(sorted(scope.disks))
        named = (endpoint for endpoint in full_machine.endpoints if endpoint.target in scope.disks)
        return replace(
            full_machine,
            endpoints=tuple(replace(disk, attributes=only(disk.attributes)) for disk in named),
        )


@pytest.fixture
def looks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    new_looks = Looks(bench, monkeypatch)
    yield new_looks
    new_looks.memory.close()


def test_event_scans_named_target(bench: Bench, looks: Looks) -> None:
    assert looks.run(START).whole
    for disk in bench.disks:
        (disk.path / "queue/nomerges").write_text("0")
    report = looks.run(event("sdb"))
    assert looks.seen == [None, ["sdb"]]
    assert bench.handling(report) == {("sdb", "nomerges"): Handled.WRITTEN}
    assert bench.values("queue/nomerges") == ["0", "1"]
    assert (report.whole, report.endpoints) == (False, 2)
    assert report.subjects is not None
    assert [disk.target for disk in report.subjects.disks] == ["sdb"]
    assert passes.restore_all(bench.config) is None
    assert bench.values("queue/nomerges") == ["0", "0"]


@pytest.mark.parametrize(
    ("offered", "tunables"),
    [
        ("[none] mq-deadline kyber", set[str]()),
        ("none [mq-deadline] kyber", {"queue/iosched/fifo_batch", "queue/iosched/async_depth"}),
        ("none [bfq] kyber", {"queue/iosched/low_latency"}),
    ],
    ids=["none", "mq-deadline", "bfq"],
)
def test_event_baselines_need_no_reread(
    bench: Bench, looks: Looks, monkeypatch: pytest.MonkeyPatch, offered: str, tunables: set[str]
) -> None:
    shipped = profile(NOMERGES, ("scheduler", Exactly("kyber")))
    # A local rule with a value also replaces bfq.
    local_rules = tuple(replace(rule, origin=Origin.SITE) for rule in shipped.rules)
    bench.profile = replace(shipped, rules=local_rules)
    looks.run(START)
    files = dict.fromkeys((*OTHERS, *sorted(tunables)), "64")
    new = Disk(bench.folder / "sys", "sdc", queue__scheduler=offered, queue__nomerges="2", **files)
    bench.disks.append(new)
    with monkeypatch.context() as patched:
        patched.setattr(writer, "read_raw", lambda *_: pytest.fail("it is known"))
        assert looks.run(event("sdc")).written
    assert bench.values("queue/nomerges") == ["1", "1", "1"]
    filed, _ = journal.load(Paths.journal, bench.see().boot_id)
    before = {entry.setting: entry.before for entry in filed.entries if entry.target == "sdc"}
    assert before["nomerges"] == 2
    assert before["scheduler"] == parse_selected(offered)
    names = {path.replace("queue/iosched/async_depth", "async_depth") for path in tunables}
    assert names <= before.keys()


def test_disk_set_follows_events(bench: Bench, looks: Looks) -> None:
    looks.run(START)
    removed_disk = bench.disks.pop()
    assert looks.run(event("sdb")).endpoints == 1
    bench.disks.append(removed_disk)
    assert looks.run(event("sdb")).endpoints == 2
    bench.disks.append(Disk(bench.folder / "sys", "sdc"))
    report = looks.run(event("sdc"))
    assert report.looked == (bench.disks[-1].endpoint().id,)
    assert bench.values("queue/nomerges") == ["1", "1", "1"]
    assert looks.seen == [None, ["sdb"], ["sdb"], ["sdc"]]


def test_changed_configuration_is_reparsed(
    bench: Bench, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, parsed = bench.folder / "hbatune.toml", list[str | None]()
    file.write_text("test")

    def configuration() -> Config:
        parsed.append(bench.active)
        return replace(bench.config, profile=bench.active)

    monkeypatch.setattr(reconcile, "load_configuration", configuration)
    monkeypatch.setattr(reconcile, "find_configuration_file", lambda: file)
    looks.run(START)
    assert not looks.run(event("sda")).locked
    assert parsed == ["test"]
    bench.active = None
    file.write_text("none")
    assert looks.run(event("sda")).locked, "another profile is active now, or none"
    assert looks.run(event("sda")).locked


@pytest.mark.parametrize(("name", "cause"), [("sda", Cause.BOUND), ("nvme0", Cause.CONNECTED)])
def test_new_interrupts_trigger_full_scan(
    bench: Bench, looks: Looks, name: str, cause: Cause
) -> None:
    looks.run(START)
    assert looks.run(event(name, cause=cause)).whole
    assert looks.seen == [None, None]


@pytest.mark.parametrize("kind", [Kind.DISK, Kind.PATH])
def test_reconnected_disks_precede_interrupts(
    bench: Bench, looks: Looks, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    behind_a_controller(bench, monkeypatch, kind)
    looks.run(START)
    reset_read_ahead(bench)
    report = looks.run(event("nvme0", cause=Cause.CONNECTED))
    assert looks.seen == [None, ["sdb"]]
    [change] = report.changes
    assert (change.target, change.handled) == ("sdb", Handled.WRITTEN)
    assert change.origin is ChangeOrigin.RESET
    [last] = [order for order in report.later if len(order.events) > 1]
    final = looks.run(Order(PassReason.EVENT, last.events))
    assert (final.whole, final.later) == (True, ())


def test_delayed_scan_repairs_late_reset(
    bench: Bench, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scan of the namespaces may end later than the pass."""
    bench.config = Config(daemon=DaemonConfig(drift=DriftReaction.IGNORE))
    behind_a_controller(bench, monkeypatch)
    looks.run(START)
    report = looks.run(event("nvme0", cause=Cause.CONNECTED))
    reset_read_ahead(bench)
    later = looks.run(Order(PassReason.EVENT, report.later[0].events))
    assert looks.seen == [None, ["sdb"], ["sdb"]]
    assert bench.values("queue/read_ahead_kb") == ["128", "512"]
    assert later.later == ()


def behind_a_controller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: Kind = Kind.DISK
) -> None:
    """Put the second disk behind an NVMe controller; the profile sets read-ahead."""
    bench.profile = profile(("read_ahead_kb", Exactly(512)))
    see = bench.see

    def see_controller() -> Machine:
        sda, sdb = see().endpoints
        return replace(see(), endpoints=(sda, replace(sdb, controller="nvme0", kind=kind)))

    monkeypatch.setattr(bench, "see", see_controller)


def reset_read_ahead(bench: Bench) -> None:
    for disk in bench.disks:
        (disk.path / "queue/read_ahead_kb").write_text("128")


def test_memory_limit_spans_disks(bench: Bench, looks: Looks) -> None:
    """One event after another must not get more than all of them together."""
    bench.disks[:] = [
        Disk(
            bench.folder / "big",
            name,
            queue__scheduler="none [mq-deadline]",
            queue__nr_requests="256",
            mq__0__nr_tags="9664",
        )
        for name in ("sda", "sdb")
    ]
    bench.profile = profile(("nr_requests", Exactly(2048)))
    disk_memory = (2048 - 256) * REQUEST_BYTES
    bench.config = Config(act=ActConfig(memory_share=1.5 * disk_memory / bench.see().memory))
    late = bench.disks.pop()
    looks.run(START)
    bench.disks.append(late)
    report = looks.run(event("sdb"))
    assert bench.values("queue/nr_requests") == ["2048", "256"]
    assert report.error is not None
    assert "MiB" in report.error


@pytest.fixture
def array(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> SiteArray:
    """Have the disks be LUNs of an array that the site has described."""
    see = bench.see
    monkeypatch.setattr(
        bench,
        "see",
        lambda: replace(
            see(),
            endpoints=tuple(
                replace(endpoint, protocol=Protocol.FC) for endpoint in see().endpoints
            ),
        ),
    )
    array = SiteArray("one", hosts=1, vendor=see().endpoints[0].vendor, port_limit=200)
    bench.config = Config(site=Site(array=(array,)))
    return array


def test_array_siblings_share_scan(bench: Bench, looks: Looks, array: SiteArray) -> None:
    looks.run(START)
    looks.run(event("sdb"))
    assert looks.seen == [None, ["sdb"], ["sda", "sdb"]]


@pytest.mark.parametrize("drift", list(DriftReaction))
def test_new_lun_shrinks_sibling_depths(
    bench: Bench, looks: Looks, array: SiteArray, drift: DriftReaction
) -> None:
    """Nobody has changed those, so that it is no drift, and no fight."""
    bench.config = replace(bench.config, daemon=DaemonConfig(drift=drift))
    bench.profile = profile(("queue_depth", Leave()), NOMERGES)
    bench.disks[:] = [
        Disk(bench.folder / "array", name, device__queue_depth="32") for name in ("sda", "sdb")
    ]
    late = bench.disks.pop()
    looks.run(START)
    assert bench.values("device/queue_depth") == ["200"]
    (bench.disks[0].path / "queue/nomerges").write_text("2")
    bench.disks.append(late)
    report = looks.run(event("sdb"))
    assert bench.values("device/queue_depth") == ["100", "100"]
    [change] = [change for change in report.changes if change.target == "sda"]
    assert (change.setting, change.origin) == ("queue_depth", ChangeOrigin.SHARE)
    assert bench.values("queue/nomerges") == ["2", "1"], "the event says nothing of what is there"


def test_vanished_journal_is_rewritten(bench: Bench, looks: Looks) -> None:
    looks.run(START)
    recorded, _ = journal.load(Paths.journal, bench.see().boot_id)
    Paths.journal.unlink()
    (bench.disks[0].path / "queue/nomerges").write_text("2")
    report = looks.run(event("sda"))
    assert "written the journal again from memory" in str(report.error)
    assert bench.handling(report) == {("sda", "nomerges"): Handled.WRITTEN}
    again, _ = journal.load(Paths.journal, bench.see().boot_id)
    assert again.entries == recorded.entries
    assert looks.run(event("sda")).error is None
    assert passes.restore_all(bench.config) is None
    assert bench.values("queue/nomerges") == ["0", "0"]


def test_drifted_value_is_no_baseline(bench: Bench) -> None:
    bench.run(START)
    Paths.journal.unlink()
    (bench.disks[0].path / "queue/nomerges").write_text("2")
    for _ in range(2):
        report = bench.run(AUDIT)
        assert "journal.json is missing" in str(report.error)
        assert not report.written
    assert bench.values("queue/nomerges") == ["2", "1"]
    assert journal.load(Paths.journal, bench.see().boot_id)[0].entries == ()
    assert "journal.json is missing" in str(passes.restore_all(bench.config))


def test_damaged_entry_blocks_setting(bench: Bench) -> None:
    bench.run(START)
    text = Paths.journal.read_text().split("\n")
    [line] = [number for number, row in enumerate(text) if '"sdb"' in row and "nomerges" in row]
    text[line] = text[line].replace('"before":0', '"before":1')
    Paths.journal.write_text("\n".join(text))
    for disk in bench.disks:
        (disk.path / "queue/nomerges").write_text("2")
    report = bench.run(AUDIT)
    assert f"line {line + 1} is damaged (sdb nomerges)" in str(report.error)
    assert bench.values("queue/nomerges") == ["1", "2"]
