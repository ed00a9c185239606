"""An alarm is raised once and cleared once, whatever the values and the clock do."""

from hypothesis import given
from hypothesis import strategies as st

from hbatune.policy.config import WatchConfig
from hbatune.watch.alerts import (
    Alarm,
    AlarmKey,
    AlertChange,
    AlertCondition,
    Level,
    Signal,
    find_level,
    update_alarm,
)

CONFIG = WatchConfig(interval_seconds=10, window_seconds=180)
GAP_S = 30
Looks = list[tuple[float, Level]]

steps = st.one_of(st.floats(-100, 100), st.sampled_from([0.0, 1.0, 10.0, 29.0, 1e6]))
looks = st.lists(st.tuples(steps, st.sampled_from(list(Level))), max_size=200)


def changes(
    readings: Looks,
    config: WatchConfig = CONFIG,
    condition: AlertCondition = AlertCondition.P99,
) -> list[tuple[float, AlertChange]]:
    """Return the changes of an alarm that received these readings."""
    alarm, events = Alarm(), []
    for time_s, stand in readings:
        signal = Signal(AlarmKey(condition, "x"), "x", None, stand, None, 1.0)
        alarm, change = update_alarm(alarm, signal, time_s, config)
        if change is not None:
            events.append((time_s, change))
    return events


def steady(stand: Level, seconds: float, *, start: float = 0.0) -> Looks:
    return [(start + 10 * number, stand) for number in range(int(seconds // 10) + 1)]


def summed(steps: Looks) -> Looks:
    time_s, readings = 1000.0, []
    for step, stand in steps:
        time_s += step
        readings.append((time_s, stand))
    return readings


@given(looks, st.floats(1, 300), st.floats(1, 20), st.sampled_from(AlertCondition))
def test_raises_and_clears_alternate(
    steps: Looks, window: float, interval: float, condition: AlertCondition
) -> None:
    config = WatchConfig(interval_seconds=interval, window_seconds=window)
    outcomes = [change for _, change in changes(summed(steps), config, condition)]
    assert outcomes == [AlertChange.RAISED, AlertChange.CLEARED] * (len(outcomes) // 2) + [
        AlertChange.RAISED
    ] * (len(outcomes) % 2)


@given(looks)
def test_change_needs_full_window(steps: Looks) -> None:
    """Time that stepped back, or that nobody watched, counts for nothing."""
    readings = summed(steps)
    for when, change in changes(readings):
        wanted = Level.OVER if change is AlertChange.RAISED else Level.CALM
        earliest, last = when, when
        latest = max(i for i, (time_s, _) in enumerate(readings) if time_s == when)
        for time_s, stand in reversed(readings[: latest + 1]):
            if time_s > last:
                continue  # it was not looked at, or lies after a step back
            if last - time_s > GAP_S or stand not in (wanted, Level.UNKNOWN):
                break
            earliest = last = time_s
        assert when - earliest >= 180


@given(st.lists(st.sampled_from([Level.OVER, Level.BETWEEN, Level.UNKNOWN]), max_size=100))
def test_flicker_raises_only_once(stands: list[Level]) -> None:
    readings = [(10.0 * number, stand) for number, stand in enumerate(stands)]
    assert [change for _, change in changes(readings)] in ([], [AlertChange.RAISED])


def test_three_minutes_raise_and_clear() -> None:
    readings = steady(Level.OVER, 300) + steady(Level.CALM, 300, start=310)
    assert changes(readings) == [(180.0, AlertChange.RAISED), (490.0, AlertChange.CLEARED)]


def test_calm_reading_restarts_window() -> None:
    readings = [*steady(Level.OVER, 170), (180.0, Level.CALM), *steady(Level.OVER, 170, start=190)]
    assert changes(readings) == []
    assert changes([*readings, (370.0, Level.OVER)]) == [(370.0, AlertChange.RAISED)]


def test_unknown_value_decides_nothing() -> None:
    readings = [(0.0, Level.OVER), *steady(Level.UNKNOWN, 400, start=10)]
    assert changes(readings) == []
    assert changes([*readings, (420.0, Level.OVER)]) == [(420.0, AlertChange.RAISED)]


def test_sleep_gap_is_ignored() -> None:
    assert changes([(0.0, Level.OVER), (3600.0, Level.OVER), (3610.0, Level.OVER)]) == []


def test_backward_clock_is_ignored() -> None:
    readings = [*steady(Level.OVER, 170), (50.0, Level.CALM), (180.0, Level.OVER)]
    assert changes(readings) == [(180.0, AlertChange.RAISED)]


@given(st.floats(0.001, 1e6), st.floats(0, 0.99), st.floats(0, 1e7))
def test_level_respects_hysteresis(limit: float, hysteresis: float, value: float) -> None:
    stand = find_level(value, limit, hysteresis)
    assert (stand is Level.OVER) == (value > limit)
    assert (stand is Level.CALM) == (value <= limit and value <= limit * (1 - hysteresis))
    assert find_level(None, limit, hysteresis) is Level.UNKNOWN
