"""The forecast from the recorded boots of the other kernels, against this machine's own boot."""

import pytest

from hbatune.plan.kernel_changes import SERIES, find_series
from hbatune.snapshot.file import load_snapshot
from tests.lab.agent.main import FRESH
from tests.recorded_boots import find_differences, forecast_differences, load_boot

KERNELS = ("6.1", "6.12", "newest")


@pytest.mark.parametrize("series", SERIES)
def test_forecast_equals_own_boot(series: str) -> None:
    fresh = load_snapshot(FRESH).machine
    own = find_series(fresh.kernel)
    before = load_boot("mixed", series)  # the machine of this file, too
    assert forecast_differences(before, own) == find_differences(before, fresh)
