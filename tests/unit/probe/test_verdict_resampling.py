import math
import statistics
from random import Random

import pytest

from hbatune.probe.verdict import (
    compute_chance,
    compute_interval,
    compute_student_quantile,
)

CONFIDENCE = 0.99


def test_unanimous_pairs_are_rarest() -> None:
    assert compute_chance([[1.0]] * 8) == (1 / 128,)
    assert compute_chance([[-1.0]] * 8) == (1 / 128,)


def test_dissenting_pair_raises_chance() -> None:
    # 8 exchanges in 128 do as much: this order, and the one of all alike, and their like.
    assert compute_chance([[1.0]] * 7 + [[-1.0]]) == (9 / 128,)


def test_balanced_pairs_prove_nothing() -> None:
    assert compute_chance([[1.0], [-1.0]] * 4) == (1.0,)
    assert compute_chance([[0.0]] * 8) == (1.0,)


def test_more_metrics_raise_chance() -> None:
    random = Random(1)
    shift = [random.gauss(0.5, 1) for _ in range(10)]
    noise = [[random.gauss(0, 1) for _ in range(20)] for _ in shift]
    together = compute_chance([[mean, *row] for mean, row in zip(shift, noise, strict=True)])
    assert together[0] > 2 * compute_chance([[mean] for mean in shift])[0]


def test_one_percent_needs_eight_pairs() -> None:
    assert compute_chance([[1.0]] * 8)[0] <= 0.01 < compute_chance([[1.0]] * 7)[0]


def test_many_pairs_reveal_change() -> None:
    random = Random(2)
    assert compute_chance([[random.gauss(0.5, 0.2)] for _ in range(30)])[0] < 0.001
    assert compute_chance([[random.gauss(0, 1)] for _ in range(30)])[0] > 0.01


def test_interval_scales_with_noise() -> None:
    random = Random(3)
    values = [random.gauss(0, 1) for _ in range(10)]
    low, high = compute_interval([values], CONFIDENCE)
    assert low < statistics.fmean(values) < high
    assert compute_interval([values], CONFIDENCE) == (low, high), (
        "the same values, the same interval"
    )
    assert compute_interval([[value / 2 for value in values]], CONFIDENCE) == pytest.approx(
        (low / 2, high / 2)
    )
    assert compute_interval([[0.25] * 10], CONFIDENCE) == (0.25, 0.25)


@pytest.mark.parametrize("trimmed", [0.0, 0.1])
def test_intervals_cover_at_stated_rate(trimmed: float) -> None:
    random = Random(4)
    covered = 0
    for _ in range(300):
        low, high = compute_interval([[random.gauss(0, 1) for _ in range(10)]], 0.95, trimmed)
        covered += low <= 0 <= high
    assert 0.91 <= covered / 300 <= 0.98


def test_eight_pairs_can_show_equality() -> None:
    """The p99 of eight pairs in the lab, with a change that has no effect."""
    before = (22151, 21889, 20840, 22151, 21103, 21365, 21103, 22151)
    after = (20840, 20840, 21889, 20840, 20578, 22151, 21889, 20578)
    gaps = [math.log(second / first) for first, second in zip(before, after, strict=True)]
    low, high = compute_interval([gaps], 1 - 0.01 / 3)
    assert math.log(0.9) < low < 0 < high < math.log(1.1)


def test_lone_outlier_keeps_interval_wide() -> None:
    low, high = compute_interval([[0.01] * 7 + [0.4]], 1 - 0.01 / 3)
    assert low < math.log(0.9)
    assert high > math.log(1.1)


def test_trimmed_ends_count_only_as_neighbours() -> None:
    """One value at each end of ten may be as far away as it likes."""
    values = [0.02 * number for number in range(10)]
    interval = compute_interval([values], 0.98, 0.1)
    assert compute_interval([[-9.0, *values[1:9], 9.0]], 0.98, 0.1) == interval
    assert sum(interval) / 2 == pytest.approx(0.09)
    assert compute_interval([[*values[:8], 0.3, 0.4]], 0.98, 0.1)[1] > interval[1]


def test_block_difference_is_estimated() -> None:
    random = Random(5)
    first = [random.gauss(1, 0.1) for _ in range(12)]
    second = [random.gauss(2, 0.1) for _ in range(12)]
    low, high = compute_interval([first, second], CONFIDENCE)
    assert 0.7 < low < statistics.fmean(second) - statistics.fmean(first) < high < 1.3
    assert compute_interval([second, first], CONFIDENCE) == pytest.approx((-high, -low))
    quiet = compute_interval([first, [2.0] * 12], CONFIDENCE)
    alone = compute_interval([first], CONFIDENCE)
    assert quiet == pytest.approx((2 - alone[1], 2 - alone[0]))
    assert compute_interval([[1.0] * 4, [3.0] * 4], CONFIDENCE) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("confidence", "freedom", "table"),
    [
        (0.99, 1, 63.657),
        (0.99, 2, 9.925),
        (0.99, 3, 5.841),
        (0.95, 9, 2.262),
        (0.99, 9, 3.250),
        (0.99, 20, 2.845),
        (0.95, 999, 1.962),
    ],
)
def test_student_quantiles_match_tables(confidence: float, freedom: int, table: float) -> None:
    assert compute_student_quantile(confidence, freedom) == pytest.approx(table, abs=0.0006)
