"""Estimate a device's rate and p99 over the depth from a few noisy probes; choose a depth. Pure.

In a closed loop of N I/Os, the response time does not fall with N. The rate is at most N times the
rate of one I/O (Denning and Buzen, Computing Surveys 10, 1978). Rates and latencies are compared as
logarithms, since noise is relative. Between two measured depths the curve is a line of logarithms.
This is conservative if the rate bends down and the p99 up.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from random import Random

from msgspec import Struct

from hbatune.facts.names import group_items
from hbatune.loader import Count, Figure
from hbatune.probe.history import Measurement
from hbatune.probe.result import ProbeResult

MIN_IOPS_NOISE = 0.01
"""The minimum noise of a rate that is assumed on any machine, as a fraction."""
MIN_P99_NOISE = 0.03
"""The minimum noise of a p99, as a fraction."""


class Estimate(Struct, frozen=True):
    """The logarithms of rate and p99 at one depth, and the number of their probes."""

    depth: int
    iops: float
    p99: float
    probes: int


class Curve(Struct, frozen=True):
    """Estimates by rising depth, at least one, and the relative noise of a probe's rate and p99."""

    points: tuple[Estimate, ...]
    iops_noise: float
    p99_noise: float

    @property
    def depths(self) -> tuple[int, ...]:
        """The measured depths."""
        return tuple(point.depth for point in self.points)

    def at(self, depth: int) -> Estimate:
        """Return the estimate of a depth between the first and the last measured one."""
        below, above, share = self.position(depth)
        low, high = self.points[below], self.points[above]
        iops = low.iops + share * (high.iops - low.iops)
        p99 = low.p99 + share * (high.p99 - low.p99)
        return Estimate(depth, iops, p99, min(low.probes, high.probes))

    def position(self, depth: int) -> tuple[int, int, float]:
        """Return the points on either side of a depth, and its relative position between them."""
        right = bisect_left(self.depths, depth)
        if self.points[right].depth == depth:
            return right, right, 0.0
        low, high = self.points[right - 1].depth, self.points[right].depth
        return right - 1, right, math.log(depth / low) / math.log(high / low)


def make_measurement(result: ProbeResult) -> Measurement:
    """Convert a probe to a measurement; its errors are 0 if it has fewer than two windows."""
    iops, p99 = result.figures.list_windows()
    return Measurement(
        depth=result.workload.issued,
        iops=result.figures.iops,
        p99_us=result.figures.p99_us,
        iops_error=compute_log_error(iops),
        p99_error=compute_log_error(p99),
    )


def compute_log_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean logarithm, or 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    return statistics.stdev(map(math.log, values)) / math.sqrt(len(values))


def estimate_curve(measured: Sequence[Measurement]) -> Curve:
    """Return the curve through the measurements, at least one."""
    by_depth = group_items(measured, attrgetter("depth"))
    depths, rates, waits, counts = sorted(by_depth), list[float](), list[float](), list[int]()
    for depth in depths:
        probes = by_depth[depth]
        rates.append(statistics.fmean(math.log(probe.iops) for probe in probes))
        waits.append(statistics.fmean(math.log(probe.p99_us) for probe in probes))
        counts.append(len(probes))
    return Curve(
        tuple(map(Estimate, depths, rates, pool_falling_values(waits, counts), counts)),
        max(MIN_IOPS_NOISE, _calculate_rms([probe.iops_error for probe in measured])),
        max(MIN_P99_NOISE, _calculate_rms([probe.p99_error for probe in measured])),
    )


def pool_falling_values(values: Sequence[float], weights: Sequence[int]) -> list[float]:
    """Return the nearest values that do not fall: a p99 that falls with the depth is noise.

    Isotonic regression (Barlow and others, Statistical Inference under Order Restrictions, 1972).
    """
    pools: list[tuple[float, int, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, length = value, weight, 1
        while pools and pools[-1][0] > mean:
            previous, weight_before, length_before = pools.pop()
            mean = (mean * total + previous * weight_before) / (total + weight_before)
            total, length = total + weight_before, length + length_before
        pools.append((mean, total, length))
    pooled = []
    for mean, _, length in pools:
        pooled += [mean] * length
    return pooled


def _calculate_rms(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(value**2 for value in values))


ALLOWED_LOSS = 0.03
"""The relative loss of rate that is allowed for a depth to count as good as the best one."""
ALLOWED_EXCESS = 0.04
"""The relative excess of its p99 over the objective that is allowed."""
RANDOM_DRAWS = 200
PREFERENCE_MARGIN = 0.05
"""The current depth or a measured one is preferred even if its chance is lower by this much."""
_APART = 0.05
"""The relative distance between the depths that are evaluated."""


class Choice(Struct, frozen=True):
    """A depth, and the chance, from 0 to 1, that it is as good as the best."""

    depth: Count
    chance: Figure


class Choices(Struct, frozen=True):
    """The choices that a curve allows.

    ``best`` is the best choice. ``current`` is the current depth, or None if it lies outside the
    curve. ``none`` is the chance that no depth meets the objective.
    """

    best: Choice
    current: Choice | None
    none: Figure


def choose_depth(curve: Curve, limit: float, current: int) -> Choices:
    """Return the choices; ``limit`` is the logarithm of the objective in µs, or infinite."""
    depths = _list_depths(curve, current)
    counts, none = _count_draws(curve, limit, depths)
    chances = {}
    for depth, count in zip(depths, counts, strict=True):
        chances[depth] = Choice(depth, count / RANDOM_DRAWS)
    best = _find_likeliest(chances.values())
    measured = _find_likeliest([chances[depth] for depth in curve.depths])
    if measured.chance >= best.chance - PREFERENCE_MARGIN:
        best = measured
    return Choices(best, chances.get(current), none / RANDOM_DRAWS)


def _find_likeliest(choices: Iterable[Choice]) -> Choice:
    """Return the likeliest choice; among equals the shallowest, which waits less."""
    return max(choices, key=lambda choice: (choice.chance, -choice.depth))


def _list_depths(curve: Curve, current: int) -> list[int]:
    """Return the depths that may be chosen, in rising order."""
    depths = set(curve.depths)
    low, high = curve.depths[0], curve.depths[-1]
    if low <= current <= high:
        depths.add(current)
    steps = math.ceil(math.log(high / low) / _APART)
    for step in range(steps):
        depths.add(round(low * (high / low) ** (step / steps)))
    return sorted(depths)


def _count_draws(curve: Curve, limit: float, depths: Sequence[int]) -> tuple[list[int], int]:
    """Count the draws in which each depth is as good as the best, and those without any depth.

    Each draw disturbs the estimates by the noise of their probes (parametric bootstrap: Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993, 6.5).
    """
    places = list(map(curve.position, depths))
    weights = [point.probes for point in curve.points]
    counts, none = [0] * len(depths), 0
    random = Random(len(weights))
    for _ in range(RANDOM_DRAWS):
        iops = [random.gauss(p.iops, curve.iops_noise / math.sqrt(p.probes)) for p in curve.points]
        p99 = [random.gauss(p.p99, curve.p99_noise / math.sqrt(p.probes)) for p in curve.points]
        p99 = pool_falling_values(p99, weights)
        results, best = [], -math.inf
        for below, above, share in places:
            rate = iops[below] + share * (iops[above] - iops[below])
            wait = p99[below] + share * (p99[above] - p99[below])
            results.append((rate, wait))
            if wait <= limit:
                best = max(best, rate)
        if best == -math.inf:
            none += 1
            continue
        lowest_rate = best + math.log1p(-ALLOWED_LOSS)
        highest_wait = limit + math.log1p(ALLOWED_EXCESS)
        for number, (rate, wait) in enumerate(results):
            if rate >= lowest_rate and wait <= highest_wait:
                counts[number] += 1
    return counts, none
