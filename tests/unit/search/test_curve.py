"""The curve through the measurements of a depth search."""

import math

import pytest
from msgspec.structs import replace

from hbatune.probe.history import Measurement
from hbatune.probe.result import Histogram, ProbeResult, Window, Workload
from hbatune.search.curve import estimate_curve, make_measurement, pool_falling_values
from tests.unit.noisy_disks import figures


def test_falling_p99_is_levelled() -> None:
    assert pool_falling_values([1.0, 3.0, 2.0, 4.0], [1, 1, 1, 1]) == [1.0, 2.5, 2.5, 4.0]
    assert pool_falling_values([5.0, 1.0, 1.0], [2, 1, 1]) == [3.0, 3.0, 3.0]


def test_repeated_probes_are_averaged() -> None:
    curve = estimate_curve(
        [Measurement(8, 100.0, 50.0, 0.3, 0.0), Measurement(8, 400.0, 200.0, 0.4, 0.0)]
    )
    (point,) = curve.points
    assert (math.exp(point.iops), math.exp(point.p99)) == pytest.approx((200.0, 100.0))
    assert point.probes == 2
    assert curve.iops_noise == pytest.approx(math.sqrt((0.09 + 0.16) / 2))
    assert curve.p99_noise > 0  # no machine is without


def test_curve_interpolates_logarithmically() -> None:
    curve = estimate_curve([Measurement(4, 100.0, 10.0), Measurement(16, 400.0, 1000.0)])
    point = curve.at(8)
    assert (math.exp(point.iops), math.exp(point.p99)) == pytest.approx((200.0, 100.0))


def test_errors_come_from_windows() -> None:
    def window(ios: int, p99_us: int) -> Window:
        return Window(1.0, ios, Histogram({p99_us * 1000: ios}), 0.1, 0.1)

    def result(*windows: Window) -> ProbeResult:
        measured = replace(figures(1000.0, 90.0, 200.0), windows=windows)
        return ProbeResult("sda", "id", Workload(depth=4, jobs=2), measured, "3.33", ())

    measurement = make_measurement(result(window(900, 100), window(1100, 400), window(0, 1)))
    assert (measurement.depth, measurement.iops, measurement.p99_us) == (8, 1000.0, 200.0)
    assert measurement.iops_error == pytest.approx(math.log(1100 / 900) / 2)
    assert measurement.p99_error == pytest.approx(math.log(4) / 2)
    assert make_measurement(result()).iops_error == 0.0
