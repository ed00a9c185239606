"""Which earlier counters of errors are compared with, and which are remembered."""

from hbatune.facts.health import (
    DAY_S,
    MIN_INTERVAL_S,
    ErrorCounters,
    find_earlier_counters,
    retain_observations,
)


def at(seconds: int, boot: str = "b") -> ErrorCounters:
    return ErrorCounters(boot, seconds, {})


def test_comparison_spans_one_day() -> None:
    current = at(10 * DAY_S)
    assert find_earlier_counters([], current) is None
    assert find_earlier_counters([at(5, "another")], current) is None
    assert find_earlier_counters(
        [at(9 * DAY_S - 1), at(9 * DAY_S + 5), at(9 * DAY_S + 9)], current
    ) == at(9 * DAY_S + 5)
    assert find_earlier_counters([at(3 * DAY_S), at(5 * DAY_S)], current) == at(5 * DAY_S)


def test_remembered_counters_are_bounded() -> None:
    remembered: tuple[ErrorCounters, ...] = ()
    for look in range(3 * DAY_S // 60):
        remembered = retain_observations(remembered, at(60 * look))
    assert len(remembered) <= DAY_S // MIN_INTERVAL_S + 2
    last = at(3 * DAY_S)
    assert find_earlier_counters(remembered, last) == at(2 * DAY_S)
    assert retain_observations(remembered, at(5, "another")) == (at(5, "another"),)
