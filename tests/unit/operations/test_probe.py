"""The comparison of a command's results with reference values."""

import pytest
from msgspec.structs import replace

from hbatune.operations.probe import find_standings
from hbatune.probe.result import ProbeResult, Workload
from tests.unit.machines import endpoint, machine
from tests.unit.noisy_disks import figures


def make_result(block_size: int, gb_per_s: float, *, trusted: bool = True) -> ProbeResult:
    workload = Workload(depth=32, block_size=block_size)
    iops = gb_per_s * 1e9 / block_size
    measured = figures(iops, 200, 900)
    # Little's law needs a mean that fits the depth (D3-6).
    mean_us = 32 / iops * 1e6 if trusted else 1.0
    measured = replace(measured, bandwidth=gb_per_s * 1e9, mean_us=mean_us)
    return ProbeResult("sda", endpoint().id, workload, measured, "3.33", ())


@pytest.mark.parametrize("order", [1, -1])
def test_link_is_compared_with_highest_throughput(order: int) -> None:
    results = [make_result(512, 0.01), make_result(4096, 0.2), make_result(1 << 20, 0.91)]
    standings = find_standings(results[::order], machine(endpoint()), None)
    result, standing = standings["sda"]
    assert [link.measured for link in standing.links] == [pytest.approx(0.91)]
    assert result.workload.issued == 32


def test_untrusted_throughput_is_not_compared() -> None:
    results = [make_result(4096, 0.2), make_result(1 << 20, 5.0, trusted=False)]
    _, standing = find_standings(results, machine(endpoint()), None)["sda"]
    assert [link.measured for link in standing.links] == [pytest.approx(0.2)]
