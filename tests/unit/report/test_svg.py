"""Axes: ticks that people count in, room for every value, and places that keep proportions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.report.svg import (
    Axis,
    format_short_number,
    make_linear_axis,
    make_log_axis,
    make_measured_axis,
)

rates = st.lists(st.floats(0.001, 1e12), min_size=1, max_size=12)


def labels(axis: Axis) -> list[str]:
    return [tick.label for tick in axis.ticks]


@pytest.mark.parametrize(
    ("most", "wanted"),
    [
        (4.2, ["0", "1", "2", "3", "4", "5"]),
        (0.9, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (271_000, ["0", "100k", "200k", "300k"]),
        (1_900_000, ["0", "0.5M", "1.0M", "1.5M", "2.0M"]),
        (2_600_000, ["0", "1M", "2M", "3M"]),
        (1_300, ["0", "500", "1000", "1500"]),
    ],
)
def test_ticks_are_round_numbers(most: float, wanted: list[str]) -> None:
    assert labels(make_linear_axis("", [most])) == wanted


def test_axis_extends_below_zero() -> None:
    axis = make_linear_axis("", [-23.0, 29.0])
    assert axis.low <= -23
    assert axis.high >= 29
    assert "0" in labels(axis)


def test_integral_ticks_stay_integers() -> None:
    assert labels(make_linear_axis("", [2], count=8, integral=True)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0.12, 1.75], ["0.1", "0.2", "0.5", "1", "2"]),
        ([20.0, 20.0], ["20", "50"]),
        ([10.0], ["10", "20"]),
        ([0.1, 40_000.0], ["0.1", "1", "10", "100", "1k", "10k"]),
    ],
)
def test_logarithmic_ticks_are_round(values: list[float], wanted: list[str]) -> None:
    assert labels(make_log_axis("", values)) == wanted


def test_measured_depths_have_ticks() -> None:
    axis = make_measured_axis("", (24, 1, 8, 192, 8))
    assert labels(axis) == ["1", "8", "24", "192"]
    single = make_measured_axis("", [4096])
    assert single.low < 4096 < single.high


@given(rates)
def test_values_lie_on_axis(values: list[float]) -> None:
    for axis in (make_linear_axis("", values), make_log_axis("", values)):
        assert len(axis.ticks) >= 2
        assert len({tick.label for tick in axis.ticks}) == len(axis.ticks), "no label twice"
        for value in (*values, *(tick.value for tick in axis.ticks)):
            assert axis.low * 0.999 <= value <= axis.high * 1.001
            assert 100 - 1e-6 <= axis.place(value, 100, 400) <= 400 + 1e-6


def test_places_are_proportional() -> None:
    assert make_linear_axis("", [10]).place(5, 300, 100) == 200
    depths = make_measured_axis("", (1, 4, 16))
    assert [round(depths.place(deep, 0, 100)) for deep in (1, 4, 16)] == [0, 50, 100]


def test_outliers_lie_at_axis_end() -> None:
    axis = make_linear_axis("", [10])
    assert axis.place(1e9, 0, 100) == 100
    assert axis.place(-1e9, 0, 100) == 0


@pytest.mark.parametrize(
    ("value", "wanted"), [(0.5, "0.5"), (20, "20"), (1500, "1.5k"), (2e6, "2M"), (0, "0")]
)
def test_numbers_are_short(value: float, wanted: str) -> None:
    assert format_short_number(value) == wanted
