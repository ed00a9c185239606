"""Each forecast between two kernels equals the difference between two boots of one machine."""

from itertools import permutations

import pytest

from hbatune.plan.kernel_changes import SERIES
from tests.recorded_boots import find_differences, forecast_differences, load_boot

TOPOLOGIES = ("mixed", "tri-mode", "hba-9400", "throttled", "power")


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(("now", "then"), list(permutations(SERIES, 2)))
def test_forecast_equals_boot(topology: str, now: str, then: str) -> None:
    before, after = load_boot(topology, now), load_boot(topology, then)
    assert forecast_differences(before, then) == find_differences(before, after)
