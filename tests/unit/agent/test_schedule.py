"""What the daemon has to look at: nothing is lost, nothing is put off for ever."""

from hypothesis import given
from hypothesis import strategies as st

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import Order, PassReason
from hbatune.agent.schedule import MAX_REPAIRS, REPAIR_WINDOW_S, Repairs, Schedule
from hbatune.policy.config import Config
from hbatune.settings.table import Cause

SDA, SDB = DeviceEvent("sda"), DeviceEvent("sdb")
SOME = st.sampled_from([SDA, SDB, DeviceEvent("nvme0", Cause.CONNECTED), DeviceEvent("nvme0")])
EVENTS = st.lists(st.tuples(SOME, st.floats(0.0, 1.0)), min_size=1)


def idle() -> Schedule:
    """Return one on which nothing stands."""
    schedule = Schedule(0.0)
    schedule.take()
    return schedule


def test_first_pass_is_complete() -> None:
    schedule = Schedule(5.0)
    assert schedule.is_due(5.0)
    assert schedule.take() == (PassReason.START, ())
    assert not schedule.is_due(1e9), "and then waits for something to happen"


@given(EVENTS)
def test_event_stream_postpones_no_pass(
    events: list[tuple[DeviceEvent, float]],
) -> None:
    schedule, current_time = idle(), 100.0
    first = current_time
    for event, later in events:
        schedule.add_events([event], current_time)
        current_time += later
    assert schedule.due <= first
    assert schedule.is_due(max(current_time, first))
    assert schedule.take() == (PassReason.EVENT, tuple(dict.fromkeys(event for event, _ in events)))


@given(EVENTS, st.sampled_from([PassReason.OVERRUN, PassReason.RELOAD]))
def test_full_scan_retains_reset_events(
    events: list[tuple[DeviceEvent, float]], why: PassReason
) -> None:
    schedule = idle()
    for event, later in events:
        schedule.add_events([event], later)
    schedule.add_everything(why, 1.0)
    reason, order_events = schedule.take()
    assert (reason, set(order_events)) == (why, {event for event, _ in events})
    assert Order(reason, order_events).names is None
    assert not schedule.take()[1], "no event waits any more"


def test_audit_runs_when_idle() -> None:
    schedule = idle()
    schedule.audit = 60.0
    assert schedule.due == 60.0
    assert not schedule.is_due(59.9)
    assert schedule.is_due(60.0)
    assert schedule.take() == (PassReason.AUDIT, ())


def test_delayed_event_waits_for_deadline() -> None:
    schedule = idle()
    schedule.add_later([SDA], 5.0)
    assert schedule.due == 5.0
    schedule.add_events([SDB], 1.0)
    assert schedule.due == 1.0
    assert schedule.is_due(1.0)
    assert schedule.take() == (PassReason.EVENT, (SDB,))
    assert not schedule.is_due(4.9)
    assert schedule.is_due(5.0)
    assert schedule.take() == (PassReason.EVENT, (SDA,))
    assert not schedule.is_due(1e9)


def test_repeated_order_includes_newer_events() -> None:
    schedule = idle()
    schedule.add_events([SDA], 0.0)
    reason, events = schedule.take()
    schedule.add_events([SDB], 1.0)
    schedule.repeat(Order(reason, events), 3.0)
    assert not schedule.is_due(2.9)
    assert schedule.is_due(3.0)
    assert schedule.take() == (PassReason.EVENT, (SDA, SDB))


KEY = ("id-sda", "scheduler")


def test_third_drift_exhausts_repairs() -> None:
    damping = Repairs()
    for current_time in (0.0, 100.0):
        assert damping.find_exhausted(current_time) == frozenset()
        damping.add([KEY], current_time)
    assert damping.find_exhausted(200.0) == {KEY}


def test_rare_drift_stays_repairable() -> None:
    damping = Repairs()
    for number in range(20):
        current_time = number * REPAIR_WINDOW_S
        assert damping.find_exhausted(current_time) == frozenset()
        damping.add([KEY], current_time)
    assert len(damping.times[KEY]) <= MAX_REPAIRS, "what is long ago is forgotten"


def test_default_audits_exhaust_repairs() -> None:
    audit = Config().daemon.audit_seconds
    damping = Repairs(audit)
    for number in (1, 2):
        damping.add([KEY], number * (audit + 1.0))
    assert damping.find_exhausted(3 * (audit + 1.0)) == {KEY}


@given(st.lists(st.floats(0, 5000), max_size=60))
def test_repairs_per_window_are_limited(times: list[float]) -> None:
    damping, done = Repairs(), list[float]()
    for current_time in sorted(times):
        if KEY not in damping.find_exhausted(current_time):
            damping.add([KEY], current_time)
            done.append(current_time)
    for current_time in done:
        window_end = current_time + REPAIR_WINDOW_S
        assert sum(current_time <= repair_time < window_end for repair_time in done) <= MAX_REPAIRS
