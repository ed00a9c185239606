"""The watch as a whole: each alert from its cause, once; cleared, once."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts.health import LOST_IO
from hbatune.facts.sampler import CpuSample, LinkSample, Sample
from hbatune.text.watch_view import format_alert, format_event
from hbatune.watch.alerts import AlertChange, AlertCondition
from hbatune.watch.latency import Interval
from hbatune.watch.readings import Subjects
from hbatune.watch.watch import Alert, AlertEvent, Watcher, WatchState
from tests.unit import watch_samples as watched
from tests.unit.watch_samples import (
    HBA,
    ID,
    PLAIN,
    counted,
    disk,
    every,
    sample,
    working,
)

RAISED, CLEARED = AlertChange.RAISED, AlertChange.CLEARED


def idle(at: float) -> Sample:
    return sample(at)


def run(watch: Watcher, samples: Iterable[Sample]) -> list[AlertEvent]:
    """Return all events of these samples."""
    return [event for watch_sample in samples for event in watch.tick(watch_sample)[1]]


def list_changes(events: Iterable[AlertEvent]) -> list[tuple[str, str]]:
    return [(str(event.change), str(event.alert.condition)) for event in events]


class Load:
    """A disk whose counters only rise, whatever it is made to do from one moment to the next."""

    def __init__(self) -> None:
        self.disk = counted()

    def __call__(self, at: float, *, ios: int, ms: float, busy: float, **more: Any) -> Sample:
        old = self.disk
        self.disk = msgspec.structs.replace(
            old,
            reads=old.reads + 10 * ios,
            read_ms=old.read_ms + int(10 * ios * ms),
            busy_ms=old.busy_ms + int(10_000 * busy),
        )
        return sample(at, self.disk, **more)


def test_high_mean_raises_p99_alert() -> None:
    """D0-7. Without a histogram the mean speaks, which is never above the p99."""
    load, watch = Load(), Watcher(PLAIN, watched.subjects())
    bad = every(250, lambda at: load(at, ios=100, ms=5, busy=0.5))
    good = every(400, lambda at: load(at, ios=100, ms=1, busy=0.5), start=260)
    raised, cleared = run(watch, bad + good)
    assert (raised.change, cleared.change) == (RAISED, CLEARED)
    alert = raised.alert
    assert (alert.condition, alert.target, alert.detail) == (AlertCondition.P99, "sda", "mean")
    assert (alert.value, alert.limit, alert.source) == (5.0, 2.0, "D0-7")
    assert raised.time == 1e9 + 190  # the first reading ends at 10
    assert cleared.time == 1e9 + 260 + 180


def test_sampled_p99_raises_alert() -> None:
    load, watch = Load(), Watcher(PLAIN, watched.subjects())
    slow = {1000: 95, 30_000: 5}
    events: list[AlertEvent] = []
    for number in range(30):
        # The period of samples differs from the interval of readings.
        interval = Interval(15.0 * (10 * number // 15), 15, {"8:0": slow})
        events += watch.tick(load(10.0 * number, ios=100, ms=1, busy=0.1), [interval])[1]
    [event] = events
    assert format_alert(event.alert) == (
        "sda: p99 is 30 ms, sampled; the objective is a p99 of 2 ms (D0-7)"
    )


def test_stalled_disk_raises_alert() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    stuck = counted(in_flight=4)
    [event] = run(watch, every(250, lambda at: sample(at, stuck)))
    assert (event.alert.condition, event.alert.detail) == (AlertCondition.P99, "least")
    assert "nothing was done in 10000 ms" in format_alert(event.alert)


def test_used_commands_raise_utilisation_alert() -> None:
    subject = disk(by_busy_time=False, commands=32, knee=None, objective_ms=None)
    load, watch = Load(), Watcher(PLAIN, watched.subjects(subject))
    full = every(300, lambda at: load(at, ios=1000, ms=30, busy=1.0))
    empty = every(300, lambda at: load(at, ios=1000, ms=20, busy=1.0), start=310)
    raised, cleared = run(watch, [*full, *empty])
    assert (raised.change, raised.alert.condition) == (RAISED, AlertCondition.UTILISATION)
    assert format_event(raised) == (
        "alert: sda: 94 % of 32 commands in flight, more than 85 % (D0-7)"
    )
    assert format_event(cleared) == "alert ended: sda: it is no longer busy (D0-7)"


@pytest.mark.parametrize("by_busy_time", [True, False])
def test_utilisation_alert_needs_busy_time(by_busy_time: bool) -> None:
    load, watch = Load(), Watcher(PLAIN, watched.subjects(disk(by_busy_time=by_busy_time)))
    events = run(watch, every(300, lambda at: load(at, ios=100, ms=1, busy=0.97)))
    assert list_changes(events) == [("raised", "utilisation")] * by_busy_time


def test_depth_past_knee_alerts() -> None:
    load, watch = Load(), Watcher(PLAIN, watched.subjects(disk(objective_ms=None)))
    deep = every(300, lambda at: load(at, ios=10_000, ms=8, busy=0.5))
    events = run(
        watch, [*deep, *every(300, lambda at: load(at, ios=10_000, ms=2, busy=0.5), start=310)]
    )
    assert list_changes(events) == [("raised", "depth-past-knee"), ("cleared", "depth-past-knee")]
    assert events[0].alert.value == 80.0


def test_kernel_lowered_depth_alerts() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    low = every(300, lambda at: sample(at, counted(depth=20)), start=10)
    events = run(watch, [sample(0, counted(depth=32)), *low])
    assert list_changes(events) == [("raised", "queue-full")]
    state, _ = watch.tick(sample(320, counted(depth=19)))
    assert state.lowered == {ID: 2}
    assert "queue_depth is 20, not 32" in format_alert(state.alerts[0])


@pytest.mark.parametrize(
    ("target", "counter", "rise", "raises"),
    [
        (ID, "timeouts", 1, True),
        (HBA, "correctable", 1, False),
        (HBA, "correctable", 5, True),
        # smartd raises the kernel's count of errors with each poll of a healthy disk.
        (ID, "errors", 1_000_000, False),
        (ID, "command_retries_count", 4, False),
        (ID, "command_retries_count", 5, True),
        (ID, "multipath_failover_count", 5, True),
        (ID, LOST_IO, 1, True),
    ],
)
def test_counter_rise_over_threshold_alerts(
    target: str, counter: str, rise: int, raises: bool
) -> None:
    watch = Watcher(PLAIN, watched.subjects())

    def at(moment: float) -> Sample:
        return sample(moment, counters={target: {counter: 7 + (rise if moment >= 50 else 0)}})

    events = run(watch, every(400, at))
    wanted = [("raised", "counters-rising"), ("cleared", "counters-rising")]
    assert list_changes(events) == wanted * raises
    if raises:
        assert [event.time - 1e9 for event in events] == [50, 230]
        assert format_alert(events[0].alert).startswith(
            f"{'sda' if target == ID else HBA}: {counter} rose by {rise}"
        )


def test_continuous_rise_alerts_once() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    rising = every(900, lambda at: sample(at, counters={ID: {"timeouts": int(at)}}))
    assert list_changes(run(watch, rising)) == [("raised", "counters-rising")]


def test_counter_set_to_zero_alerts_only_on_new_rise() -> None:
    """Root may set the counters of NVMe to 0."""
    watch = Watcher(PLAIN, watched.subjects())
    counts = [900, 0, 0, 4, 5]
    samples = [sample(10 * i, counters={ID: {LOST_IO: count}}) for i, count in enumerate(counts)]
    assert run(watch, samples[:3]) == []
    [event] = run(watch, samples[3:])
    assert (event.change, event.value) == (AlertChange.RAISED, 4)


def test_two_counters_alert_twice() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    bus = {"correctable": 9, "fatal": 1}
    samples = [sample(0, counters={HBA: dict.fromkeys(bus, 0)}), sample(10, counters={HBA: bus})]
    assert {event.alert.detail for event in run(watch, samples)} == {"correctable", "fatal"}


def test_slower_link_alerts() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    slow = {HBA: LinkSample(2.5, 8)}
    events = run(watch, [idle(0), idle(10), sample(20, links=slow), sample(30, links={})])
    assert list_changes(events) == [("raised", "link-degraded")]
    assert format_alert(events[0].alert) == (
        "0000:01:00.0: the link runs at 2.5 GT/s; it has run at 8 (D0-10)"
    )
    assert list_changes(run(watch, every(200, idle, start=40))) == [("cleared", "link-degraded")]


def test_saturated_interrupt_cpu_alerts() -> None:
    watch = Watcher(PLAIN, watched.subjects())

    def at(moment: float) -> Sample:
        ticks = int(moment * 100)
        return sample(moment, cpus={1: CpuSample(ticks, int(ticks * 0.99))})

    events = run(watch, every(300, at))
    assert list_changes(events) == [("raised", "cpu-saturated")]
    assert "CPU 1, which serves its interrupts, is busy 99 % of the time" in format_alert(
        events[0].alert
    )


def test_vanished_target_clears_alert() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    stuck = every(250, lambda at: sample(at, counted(in_flight=1)))
    [raised] = run(watch, stuck)
    watch.subjects = Subjects()
    state, [event] = watch.tick(idle(260))
    assert (event.change, event.alert, event.value) == (CLEARED, raised.alert, None)
    assert state.alerts == ()
    assert format_event(event) == "alert ended: sda: no longer watched (D0-7)"


def test_removed_objective_clears_alert() -> None:
    load, watch = Load(), Watcher(PLAIN, watched.subjects())
    slow = every(250, lambda at: load(at, ios=100, ms=9, busy=0.5))
    [raised] = run(watch, slow)
    [disk] = watch.subjects.disks
    without_objective = msgspec.structs.replace(disk, objective_ms=None)
    watch.subjects = msgspec.structs.replace(watch.subjects, disks=(without_objective,))
    state, [event] = watch.tick(load(260, ios=100, ms=9, busy=0.5))
    assert (event.change, event.alert, event.value) == (CLEARED, raised.alert, None)
    assert state.alerts == ()


def test_alerts_need_no_details() -> None:
    detailed, brief = (Watcher(PLAIN, watched.subjects()) for _ in range(2))
    changes = []
    for watch_sample in [
        *every(250, lambda at: sample(at, counted(in_flight=1))),
        *every(200, idle, start=260),
    ]:
        state, events = detailed.tick(watch_sample)
        less, same = brief.tick(watch_sample, detailed=False)
        assert same == events
        assert less == msgspec.structs.replace(state, disks=(), servers=())
        changes += list_changes(events)
    assert changes == [("raised", "p99"), ("cleared", "p99")]


def test_restored_alert_is_not_reraised() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    stuck = every(250, lambda at: sample(at, counted(in_flight=1)))
    run(watch, stuck)
    state, _ = watch.tick(sample(260, counted(in_flight=1)))
    restored = msgspec.json.decode(msgspec.json.encode(state), type=WatchState)
    assert restored == state
    again = Watcher(PLAIN, watched.subjects(), standing=restored.alerts)
    more = every(400, lambda at: sample(at, counted(in_flight=1)), start=270)
    assert run(again, more) == []
    over = run(again, every(400, idle, start=680))
    assert list_changes(over) == [("cleared", "p99")]


def test_restored_counter_alert_clears() -> None:
    alert = Alert(AlertCondition.COUNTERS, ID, "sda", HBA, 1, 1, "timeouts", 0.0, "D0-8")
    watch = Watcher(PLAIN, watched.subjects(), standing=[alert])
    assert list_changes(run(watch, every(20, idle))) == [("cleared", "counters-rising")]


def test_obsolete_errors_alert_clears() -> None:
    alert = Alert(AlertCondition.COUNTERS, ID, "sda", HBA, 9, 5, "errors", 0.0, "D0-8")
    watch = Watcher(PLAIN, watched.subjects(), standing=[alert])
    polled = every(20, lambda at: sample(at, counters={ID: {"errors": int(at)}}))
    assert list_changes(run(watch, polled)) == [("cleared", "counters-rising")]


def test_first_and_stale_samples_ignored() -> None:
    watch = Watcher(PLAIN, watched.subjects())
    state, events = watch.tick(sample(100, working(100, ms=9)))
    assert (state.disks, events) == ((), ())
    later, _ = watch.tick(sample(110, working(110, ms=9)))
    assert watch.tick(sample(90, working(90, ms=9))) == (later, ())


@given(
    st.lists(
        st.tuples(
            st.floats(-50, 200),
            st.integers(0, 3000),
            st.floats(0, 50),
            st.floats(0, 1),
            st.integers(1, 64),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_raises_and_clears_alternate(
    steps: list[tuple[float, int, float, float, int, int]],
) -> None:
    watch, load, time_s, timeouts = Watcher(PLAIN, watched.subjects()), Load(), 1000.0, 0
    standing: set[tuple[str, str | None]] = set()
    for step, ios, ms, busy, depth, failed in steps:
        time_s, timeouts = time_s + step, timeouts + failed
        load.disk = msgspec.structs.replace(load.disk, depth=depth)
        watch_sample = load(
            time_s, ios=ios, ms=ms, busy=busy, counters={ID: {"timeouts": timeouts}}
        )
        state, events = watch.tick(watch_sample)
        for event in events:
            key = (str(event.alert.condition), event.alert.key.counter)
            assert (key in standing) == (event.change is CLEARED)
            standing ^= {key}
        assert {(str(a.condition), a.key.counter) for a in state.alerts} == standing
