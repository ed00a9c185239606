"""Queue depths that a driver puts back: found without an event, and not taken for somebody's."""

from collections.abc import Mapping

import pytest

from hbatune.agent.events import DeviceEvent
from hbatune.agent.judge import Judge, Ramp
from hbatune.agent.monitor import (
    FAST_POLL_DURATION_S,
    FAST_POLL_INTERVAL_S,
    NEVER,
    POLL_INTERVAL_S,
    DepthWatch,
)
from hbatune.agent.orders import (
    ChangeOrigin,
    DepthLevel,
    Handled,
    Order,
    PassReason,
    PassReport,
    SettingChange,
)
from hbatune.operations.reconcile import PassFacts, PassResult
from hbatune.plan.rows import Row, RowKey, State
from hbatune.policy.config import Config
from hbatune.settings.table import Cause, Value
from hbatune.watch.subjects import find_subjects
from hbatune.workers import WorkerPool
from tests.unit.machines import endpoint, machine

DRIVERS = 32
WANTED = 64
MACHINE = machine(endpoint(target="sda", id="id-sda"))
HOST = find_subjects(MACHINE)
OWN: Mapping[RowKey, Value] = {("id-sda", "queue_depth"): DRIVERS}
POOL = WorkerPool()


def make_report(*written: str, **more: object) -> PassReport:
    changes = tuple(
        SettingChange(name, f"id-{name}", "queue_depth", 32, 64, "rule", Handled.WRITTEN)
        for name in written
    )
    resettable = dict.fromkeys(("sda", "sdb"), (DRIVERS, DRIVERS + 1))
    return PassReport(changes=changes, subjects=HOST, resettable=resettable, **more)  # type: ignore[arg-type]


class Disks(dict[str, int]):
    """What the files say."""

    def read(self, targets: object) -> dict[str, int]:
        return dict(self)


@pytest.fixture
def disks() -> Disks:
    return Disks(sda=WANTED, sdb=WANTED)


@pytest.fixture
def watch(disks: Disks) -> DepthWatch:
    depth_watch = DepthWatch(disks.read)
    depth_watch.watch(make_report(), 100.0)
    return depth_watch


def test_repeated_resets_are_detected(watch: DepthWatch, disks: Disks) -> None:
    assert watch.look(105.0) == ()
    for _ in range(5):
        disks["sda"] = DRIVERS
        assert watch.look(110.0) == ("sda",)
        # The pass sets it, and the driver is faster than the look.
        watch.watch(make_report("sda"), 111.0)


def test_unrepaired_reset_fires_once(watch: DepthWatch, disks: Disks) -> None:
    disks["sda"] = DRIVERS
    assert watch.look(105.0) == ("sda",)
    watch.watch(make_report(), 106.0)
    assert watch.look(111.0) == ()
    disks["sda"] = WANTED
    watch.look(116.0)
    disks["sda"] = DRIVERS
    assert watch.look(121.0) == ("sda",)


def test_raised_reset_depth_is_detected(watch: DepthWatch, disks: Disks) -> None:
    """The kernel has raised it with the first command that ended after the reset."""
    disks["sda"] = DRIVERS + 1
    assert watch.look(105.0) == ("sda",)


def test_foreign_depth_triggers_no_scan(watch: DepthWatch, disks: Disks) -> None:
    disks["sda"] = 8
    del disks["sdb"]
    assert watch.look(105.0) == ()


def test_depth_watch_follows_interval(watch: DepthWatch) -> None:
    assert watch.due == 100.0 + POLL_INTERVAL_S
    watch.look(105.0)
    assert watch.due == 105.0 + POLL_INTERVAL_S
    assert POLL_INTERVAL_S <= 7, "with the pass that follows it is right within 10 s"
    watch.watch(PassReport(subjects=HOST), 106.0)
    assert watch.due == NEVER


def test_reset_speeds_up_depth_watch(watch: DepthWatch) -> None:
    """The driver puts depths back after the kernel has told of the reset."""
    watch.hurry(101.0)
    assert watch.due == 101.0
    watch.look(101.0)
    assert watch.due == 101.0 + FAST_POLL_INTERVAL_S
    watch.watch(make_report("sda"), 102.0)
    assert watch.due == 102.0, "the pass may have come before the driver"
    watch.look(103.0)
    assert watch.due == 103.0 + FAST_POLL_INTERVAL_S
    watch.look(101.0 + FAST_POLL_DURATION_S)
    assert watch.due == 101.0 + FAST_POLL_DURATION_S + POLL_INTERVAL_S


def test_unaffected_driver_ignores_reset() -> None:
    watch = DepthWatch(lambda targets: {})
    watch.hurry(100.0)
    assert watch.due == NEVER


def test_stopped_watch_never_fires(watch: DepthWatch) -> None:
    watch.stop()
    assert watch.due == NEVER


def depth(current: int) -> Row:
    wanted = (current, WANTED, WANTED, State.DRIFT)
    return Row("sda", "id-sda", "0000:01:00.0", "queue_depth", *wanted, None, "", "", "deeper")


@pytest.fixture(autouse=True)
def _ramps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each LUN has had enough errors for a ramp."""
    ramps = {"id-sda": Ramp(50, None)}
    monkeypatch.setattr("hbatune.agent.judge.find_ramps", lambda facts: ramps)


def judge(row: Row, order: Order, own_values: Mapping[RowKey, Value]) -> Judge:
    """Return the judge of a pass that finds this row."""
    nothing, drifting = frozenset[str](), frozenset({row.key})
    judging = Judge(order)
    judging(PassFacts(MACHINE, (row,), nothing, nothing, own_values, drifting, Config(), POOL))
    return judging


def origin(
    current: int,
    *,
    event: DeviceEvent | None = None,
    ramping: bool = False,
    own_values: Mapping[RowKey, Value] = OWN,
) -> ChangeOrigin:
    levels = {"id-sda": DepthLevel(40, 0, 0, ramping=ramping)}
    order = Order(PassReason.EVENT, () if event is None else (event,), levels=levels)
    row = depth(current)
    return judge(row, order, own_values).change(row, PassResult(MACHINE, (row,), {}, {})).origin


WAS_RESET = DeviceEvent("0000:01:00.0", Cause.RESET)


def test_driver_default_means_reset() -> None:
    assert origin(DRIVERS) is ChangeOrigin.RESET
    assert origin(8) is ChangeOrigin.DRIFT
    assert origin(DRIVERS + 1) is ChangeOrigin.RESET, "which the kernel has raised since"
    assert origin(DRIVERS + 16) is ChangeOrigin.DRIFT
    assert origin(DRIVERS, own_values={}) is ChangeOrigin.DRIFT, "a driver that puts nothing back"


def test_reset_event_explains_any_depth() -> None:
    assert origin(48, event=WAS_RESET) is ChangeOrigin.RESET, "new firmware, another depth"
    assert origin(48, event=WAS_RESET, own_values={}) is ChangeOrigin.DRIFT


def test_ramping_past_default_is_drift() -> None:
    assert origin(DRIVERS, ramping=True) is ChangeOrigin.DRIFT
    assert origin(20, ramping=True, event=WAS_RESET) is ChangeOrigin.DRIFT
    assert origin(DRIVERS, ramping=True, event=WAS_RESET) is ChangeOrigin.RESET


def test_reset_errors_start_no_ramp() -> None:
    before = {"id-sda": DepthLevel(WANTED, 0, 0)}
    event = DeviceEvent("sda")
    for events, is_ramp in (((event,), True), ((event, WAS_RESET), False)):
        order = Order(PassReason.EVENT, events, levels=before)
        assert judge(depth(48), order, OWN).levels["id-sda"].ramping is is_ramp
