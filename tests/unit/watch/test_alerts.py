"""An alarm is raised once and cleared once, whatever the values and the clock do."""

from hypothesis import given
from hypothesis import strategies as st

from hbatune.watch.alerts import Alarm, AlertChange, Level, Pace, find_level, update_alarm

PACE = Pace(raise_after=180, clear_after=180, gap=30)
Looks = list[tuple[float, Level]]

steps = st.one_of(st.floats(-100, 100), st.sampled_from([0.0, 1.0, 10.0, 29.0, 1e6]))
looks = st.lists(st.tuples(steps, st.sampled_from(list(Level))), max_size=200)


def changes(looked: Looks, pace: Pace = PACE) -> list[tuple[float, AlertChange]]:
    """Return what became of an alarm that was looked at at these times."""
    alarm, found = Alarm(), []
    for now, stand in looked:
        alarm, change = update_alarm(alarm, stand, now, pace)
        if change is not None:
            found.append((now, change))
    return found


def steady(stand: Level, seconds: float, *, start: float = 0.0) -> Looks:
    return [(start + 10 * number, stand) for number in range(int(seconds // 10) + 1)]


def summed(steps: Looks) -> Looks:
    now, found = 1000.0, []
    for step, stand in steps:
        now += step
        found.append((now, stand))
    return found


@given(looks, st.floats(0, 300), st.floats(0, 300), st.floats(1, 60))
def test_raises_and_clears_alternate(
    steps: Looks, raise_after: float, clear_after: float, gap: float
) -> None:
    found = [each for _, each in changes(summed(steps), Pace(raise_after, clear_after, gap))]
    assert found == [AlertChange.RAISED, AlertChange.CLEARED] * (len(found) // 2) + [
        AlertChange.RAISED
    ] * (len(found) % 2)


@given(looks)
def test_change_needs_full_window(steps: Looks) -> None:
    """Time that stepped back, or that nobody watched, counts for nothing."""
    looked = summed(steps)
    for when, change in changes(looked):
        wanted = Level.OVER if change is AlertChange.RAISED else Level.CALM
        seen, last = when, when
        latest = max(i for i, (now, _) in enumerate(looked) if now == when)
        for now, stand in reversed(looked[: latest + 1]):
            if now > last:
                continue  # it was not looked at, or lies after a step back
            if last - now > PACE.gap or stand not in (wanted, Level.UNKNOWN):
                break
            seen = last = now
        assert when - seen >= 180


@given(st.lists(st.sampled_from([Level.OVER, Level.BETWEEN, Level.UNKNOWN]), max_size=100))
def test_flicker_raises_only_once(stands: list[Level]) -> None:
    looked = [(10.0 * number, stand) for number, stand in enumerate(stands)]
    assert [each for _, each in changes(looked)] in ([], [AlertChange.RAISED])


def test_three_minutes_raise_and_clear() -> None:
    looked = steady(Level.OVER, 300) + steady(Level.CALM, 300, start=310)
    assert changes(looked) == [(180.0, AlertChange.RAISED), (490.0, AlertChange.CLEARED)]


def test_calm_reading_restarts_window() -> None:
    looked = [*steady(Level.OVER, 170), (180.0, Level.CALM), *steady(Level.OVER, 170, start=190)]
    assert changes(looked) == []
    assert changes([*looked, (370.0, Level.OVER)]) == [(370.0, AlertChange.RAISED)]


def test_unknown_value_decides_nothing() -> None:
    looked = [(0.0, Level.OVER), *steady(Level.UNKNOWN, 400, start=10)]
    assert changes(looked) == []
    assert changes([*looked, (420.0, Level.OVER)]) == [(420.0, AlertChange.RAISED)]


def test_sleep_gap_is_ignored() -> None:
    assert changes([(0.0, Level.OVER), (3600.0, Level.OVER), (3610.0, Level.OVER)]) == []


def test_backward_clock_is_ignored() -> None:
    looked = [*steady(Level.OVER, 170), (50.0, Level.CALM), (180.0, Level.OVER)]
    assert changes(looked) == [(180.0, AlertChange.RAISED)]


@given(st.floats(0.001, 1e6), st.floats(0, 0.99), st.floats(0, 1e7))
def test_level_respects_hysteresis(limit: float, hysteresis: float, value: float) -> None:
    stand = find_level(value, limit, hysteresis)
    assert (stand is Level.OVER) == (value > limit)
    assert (stand is Level.CALM) == (value <= limit and value <= limit * (1 - hysteresis))
    assert find_level(None, limit, hysteresis) is Level.UNKNOWN
