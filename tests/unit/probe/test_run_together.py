"""Tests of hbatune/probe/run.py: the bottleneck of disks in parallel."""

import pytest
from msgspec.structs import replace

from hbatune.probe.history import Bottleneck
from hbatune.probe.result import ProbeResult, Workload
from hbatune.probe.run import evaluate_together, find_bottleneck
from tests.unit.machines import link
from tests.unit.probe_results import FIGURES


@pytest.mark.parametrize(
    ("share", "gb_per_s", "busy", "bottleneck"),
    [
        (1.01, 7.5, 0.99, Bottleneck.DISKS),
        (0.96, 1.0, 0.2, Bottleneck.DISKS),
        (0.60, 6.9, 0.99, Bottleneck.LINK),
        (0.60, 4.0, 0.95, Bottleneck.CPU),
        (0.60, 4.0, 0.50, Bottleneck.ADAPTER),
    ],
)
def test_bottleneck_is_identified(
    share: float, gb_per_s: float, busy: float, bottleneck: Bottleneck
) -> None:
    assert find_bottleneck(share, gb_per_s, 7.88, busy) is bottleneck


def test_unknown_link_is_no_bottleneck() -> None:
    assert find_bottleneck(0.6, 7.5, None, 0.5) is Bottleneck.ADAPTER


def alone(target: str, iops: float = 60_000.0) -> ProbeResult:
    return ProbeResult(target, target, Workload(), replace(FIGURES, iops=iops), "3.33", ())


def test_current_link_width_sets_limit() -> None:
    disks = [alone("sda"), alone("sdb")]
    figures = replace(FIGURES, iops=60_000.0, bandwidth=1.8e9)
    narrow = evaluate_together("a", link(width=2), disks, figures)
    assert (narrow.share, narrow.bottleneck) == (0.5, Bottleneck.LINK)
    assert evaluate_together("a", link(), disks, figures).bottleneck is Bottleneck.ADAPTER


def test_saturated_fio_thread_is_bottleneck() -> None:
    figures = replace(FIGURES, iops=90_000.0, cpu_us_per_io=21.0, busy=0.3)
    assessment = evaluate_together("a", None, [alone("sda"), alone("sdb")], figures)
    assert (assessment.bottleneck, round(assessment.busy, 3)) == (Bottleneck.CPU, 0.945)
