"""Depth searches on simulated closed-loop devices, whose best depth is known."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbatune.probe.history import Measurement
from hbatune.search.depth import (
    MAX_PROBE_S,
    MAX_PROBES,
    MIN_PROBE_S,
    DepthAnswer,
    DepthConclusion,
    DepthSearch,
    add_measurement,
    answer_depth,
    choose_next_probe,
)
from tests.zoo.devices import ZOO, Device, simulate
from tests.zoo.runs import NOISY, QUIET, cases, count, search

IOS = 12_000
FEW = (
    "disk, sorting",
    "NVMe of 64",
    "NVMe of 96, thrashing",
    "RAID volume of 16 SSDs",
)
DEVICES = tuple(device for device in ZOO if device.name in FEW)


@dataclass(frozen=True)
class Servers:
    """A device of so many servers without noise; its p99 is twice the mean response time."""

    servers: int
    service_us: float = 1000.0

    def measure(self, depth: int) -> Measurement:
        """Return what a probe measures."""
        rate = min(depth, self.servers) / self.service_us * 1e6
        return Measurement(depth, rate, 2e6 * depth / rate)


def searched(device: Servers, search: DepthSearch) -> tuple[DepthAnswer, list[int]]:
    """Return the answer of a search and the depths of its probes."""
    while (probe := choose_next_probe(search)) is not None:
        search = add_measurement(search, device.measure(probe.depth))
    return answer_depth(search), [measurement.depth for measurement in search.measured]


def test_quiet_search_needs_six_probes() -> None:
    counts, _ = count(QUIET, range(8), IOS, DEVICES)
    assert counts.right >= 0.90 * counts.runs
    assert counts.missed <= 0.02 * counts.runs
    assert counts.probes <= 6 * counts.runs
    assert counts.most_probes <= MAX_PROBES


def test_noisy_search_matches_sweep() -> None:
    counts, _ = count(NOISY, range(8), IOS, DEVICES)
    assert counts.told_right / counts.told >= counts.sweep_right / counts.runs
    assert counts.told_missed / counts.told <= counts.sweep_missed / counts.runs
    assert counts.told >= 0.75 * counts.runs
    assert counts.most_probes <= MAX_PROBES


def test_seed_repeats_the_search() -> None:
    case = next(cases(IOS, DEVICES))
    assert search(case, NOISY, 3) == search(case, NOISY, 3)
    assert search(case, NOISY, 3)[2] != search(case, NOISY, 4)[2]


@pytest.mark.parametrize("servers", [1, 2, 5, 16, 40, 100])
def test_noiseless_search_finds_best_depth(
    servers: int,
) -> None:
    # The objective leaves room for twice the depth at which the device is saturated.
    answer, depths = searched(Servers(servers), DepthSearch(256, 256, 4000.0))
    assert answer.word is DepthConclusion.BEST
    assert 0.97 * servers <= answer.depth <= 2 * servers
    assert answer.chance > 0.8
    assert len(depths) <= MAX_PROBES


def test_missing_objective_maximises_rate() -> None:
    answer, _ = searched(Servers(64), DepthSearch(8, 256, None))
    assert answer.iops.value == pytest.approx(64_000, rel=0.03)


def test_equally_good_depth_stays() -> None:
    for current in (20, 32):
        answer, depths = searched(Servers(16), DepthSearch(current, 256, 4500.0))
        assert (answer.word, answer.depth) == (DepthConclusion.AS_GOOD, current)
        assert len(depths) <= MAX_PROBES


def test_deep_current_depth_is_measured() -> None:
    answer, depths = searched(Servers(2), DepthSearch(250, 256, None))
    assert 250 in depths
    assert (answer.word, answer.depth) == (DepthConclusion.AS_GOOD, 250)


def test_worse_current_depth_is_replaced() -> None:
    answer, _ = searched(Servers(16), DepthSearch(4, 256, 4500.0))
    assert answer.word is DepthConclusion.BEST
    answer, _ = searched(Servers(16), DepthSearch(128, 256, 4500.0))
    assert answer.word is DepthConclusion.BEST
    assert answer.depth < 40


def test_unmet_objective_is_unreachable() -> None:
    answer, depths = searched(Servers(16), DepthSearch(32, 256, 1000.0))
    assert (answer.word, answer.depth) == (DepthConclusion.OUT_OF_REACH, 1)
    assert depths == [8, 2, 1]


def test_unreachable_verdict_needs_depth_1() -> None:
    # Met by a hair at the first depth, so that every second disturbance puts it out of reach.
    answer, depths = searched(Servers(2), DepthSearch(4, 256, 4000.0))
    assert 1 in depths
    assert answer.word is not DepthConclusion.OUT_OF_REACH


def test_stopped_search_is_inconclusive() -> None:
    begun = add_measurement(DepthSearch(8, 256, 100.0), Servers(16).measure(8))
    assert answer_depth(begun).word is DepthConclusion.CANNOT_TELL


def test_low_depth_objective_is_met() -> None:
    answer, depths = searched(Servers(1), DepthSearch(64, 256, 4400.0))
    assert answer.p99_us.value <= 4400 * 1.05
    assert depths[0] == 4
    assert min(depths) == 1


def test_search_respects_deepest_depth() -> None:
    _, depths = searched(Servers(200), DepthSearch(8, 30, None))
    assert max(depths) == 30
    _, depths = searched(Servers(200), DepthSearch(64, 1, None))
    assert depths == [1]


def test_dominant_noise_is_inconclusive() -> None:
    searched = DepthSearch(2, 256, 2500.0)
    device = Servers(16)
    while (probe := choose_next_probe(searched)) is not None:
        true = device.measure(probe.depth)
        noisy = Measurement(true.depth, true.iops, true.p99_us, 0.8, 0.8)
        searched = add_measurement(searched, noisy)
    answer = answer_depth(searched)
    assert answer.word is DepthConclusion.CANNOT_TELL
    assert answer.probes == MAX_PROBES
    assert answer.iops.high / answer.iops.low > 3


def test_slow_devices_get_longer_probes() -> None:
    slow, fast = Servers(1, 8000.0), Servers(16, 100.0)
    for device, seconds in ((slow, 8.0), (fast, MIN_PROBE_S)):
        begun = add_measurement(DepthSearch(4, 256, None), device.measure(4))
        probe = choose_next_probe(begun)
        assert probe is not None
        assert probe.seconds == pytest.approx(seconds)
    crawling = add_measurement(DepthSearch(4, 256, None), Servers(1, 1e6).measure(4))
    probe = choose_next_probe(crawling)
    assert probe is not None
    assert probe.seconds == MAX_PROBE_S


def test_probe_without_io_is_refused() -> None:
    for broken in (Measurement(4, 0.0, 10.0), Measurement(4, 10.0, 0.0), Measurement(0, 1.0, 1.0)):
        with pytest.raises(ValueError, match="no I/O"):
            add_measurement(DepthSearch(4, 256, None), broken)


@settings(max_examples=60, deadline=None)
@given(
    current=st.integers(1, 1024),
    deepest=st.integers(1, 1024),
    objective=st.none() | st.floats(1.0, 1e7),
    data=st.data(),
)
def test_any_search_ends_with_answer(
    current: int, deepest: int, objective: float | None, data: st.DataObject
) -> None:
    figure = st.floats(1e-3, 1e9)
    search = DepthSearch(current, deepest, objective)
    while (probe := choose_next_probe(search)) is not None:
        assert 1 <= probe.depth <= deepest
        assert MIN_PROBE_S <= probe.seconds <= MAX_PROBE_S
        measurement = Measurement(probe.depth, data.draw(figure), data.draw(figure), 0.1, 0.1)
        search = add_measurement(search, measurement)
        assert len(search.measured) <= MAX_PROBES
    answer = answer_depth(search)
    assert 1 <= answer.depth <= deepest
    assert 0 <= answer.chance <= 1


def test_simulated_devices_obey_laws() -> None:
    exact = Device("of 4", 1, 4, 1000.0, spread=0.0)
    assert simulate(exact, 2, 2000).iops == pytest.approx(2000, rel=0.01)
    assert simulate(exact, 16, 2000).iops == pytest.approx(4000, rel=0.01)
    assert simulate(exact, 16, 2000).p99_us == pytest.approx(4000, rel=0.01)  # Little's law
    # Of 8 exponential-like stations that collide, 8 I/Os keep about half busy: N / (N + 7).
    colliding = Device("of 8", 8, 1, 1000.0, spread=0.83)
    assert simulate(colliding, 8, 20_000).iops == pytest.approx(8000 * 8 / 15, rel=0.05)
    crowded = Device("shared", 1, 4, 1000.0, spread=0.0, neighbours=12)
    assert simulate(crowded, 4, 4000).iops == pytest.approx(1000, rel=0.03)
