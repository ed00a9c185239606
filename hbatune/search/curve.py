"""The curve of rate and p99 over depth, and the depth that is chosen from it.

A device's rate and p99 over the depth, estimated from a few noisy probes. Pure.

A closed loop of N I/Os has a response time that does not fall with N, and a rate of at most N times
that of one I/O (Denning and Buzen, Computing Surveys 10, 1978). A measured p99 that falls with the
depth is noise, and isotonic regression levels it (Barlow and others, Statistical Inference under
Order Restrictions, 1972). Rates and latencies are compared as logarithms, since noise is a share.

Chooses a depth from a curve, and says how likely it is as good as the best. Pure.

By a parametric bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, 6.5): the
estimates are disturbed again and again by the noise of the probes they are from, and each time it
is seen which depths are as good as the best one within the objective. Between two measured depths
the curve is a line of logarithms, which is on the safe side where a rate bends down and a p99 up.
"""

import math
import statistics
from collections.abc import Sequence
from random import Random

from msgspec import Struct

from hbatune.loader import Count, Figure
from hbatune.probe.result import ProbeResult

LEAST_IOPS_NOISE = 0.01
"""The noise of a rate below which no machine is believed to be, as a share."""
LEAST_P99_NOISE = 0.03
"""The same of a p99."""


class Measurement(Struct, frozen=True):
    """One probe: I/Os in flight, rate in I/Os per second, p99 in µs.

    The errors are the standard errors of the logarithms of both, from the windows of the run: 0.02
    is 2 %.
    """

    depth: Count
    iops: Figure
    p99_us: Figure
    iops_error: Figure = 0.0
    p99_error: Figure = 0.0


class Estimate(Struct, frozen=True):
    """The logarithms of rate and p99 at one depth, and the number of probes behind them."""

    depth: int
    iops: float
    p99: float
    probes: int


class Curve(Struct, frozen=True):
    """Estimates by rising depth, at least one; the noise of one probe's rate and p99 as shares."""

    points: tuple[Estimate, ...]
    iops_noise: float
    p99_noise: float

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths that were measured."""
        return tuple(point.depth for point in self.points)

    def at(self, depth: int) -> Estimate:
        """Return the estimate of a depth between the first and the last that were measured."""
        left, right, share = self.position(depth)
        low, high = self.points[left], self.points[right]
        return Estimate(
            depth,
            low.iops + share * (high.iops - low.iops),
            low.p99 + share * (high.p99 - low.p99),
            min(low.probes, high.probes),
        )

    def position(self, depth: int) -> tuple[int, int, float]:
        """Return the points on either side of a depth, and its share of the way between them."""
        right = next(n for n, each in enumerate(self.points) if each.depth >= depth)
        if self.points[right].depth == depth:
            return right, right, 0.0
        low, high = self.points[right - 1].depth, self.points[right].depth
        return right - 1, right, math.log(depth / low) / math.log(high / low)


def measurement(result: ProbeResult) -> Measurement:
    """Return what a depth search needs of a probe; its errors are 0 where it has no two windows."""
    figures = result.figures
    windows = [window for window in figures.windows if window.ios]
    return Measurement(
        depth=result.workload.issued,
        iops=figures.iops,
        p99_us=figures.p99_us,
        iops_error=log_error([window.iops for window in windows]),
        p99_error=log_error([window.percentile_us(99) for window in windows]),
    )


def log_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean logarithm, 0 where there are no two values."""
    if len(values) < 2:
        return 0.0
    return statistics.stdev(map(math.log, values)) / math.sqrt(len(values))


def estimate_curve(measured: Sequence[Measurement]) -> Curve:
    """Return the curve through measurements, of which there is at least one."""
    by_depth: dict[int, list[Measurement]] = {}
    for each in measured:
        by_depth.setdefault(each.depth, []).append(each)
    alike = [by_depth[depth] for depth in sorted(by_depth)]
    p99 = level(
        [statistics.fmean(math.log(probe.p99_us) for probe in probes) for probes in alike],
        [len(probes) for probes in alike],
    )
    points = tuple(
        Estimate(
            probes[0].depth,
            statistics.fmean(math.log(probe.iops) for probe in probes),
            wait,
            len(probes),
        )
        for probes, wait in zip(alike, p99, strict=True)
    )
    return Curve(
        points,
        max(LEAST_IOPS_NOISE, _root_mean_square([each.iops_error for each in measured])),
        max(LEAST_P99_NOISE, _root_mean_square([each.p99_error for each in measured])),
    )


def level(values: Sequence[float], weights: Sequence[int]) -> list[float]:
    """Return the nearest values that do not fall, by pooling those that do."""
    pools: list[tuple[float, int, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, length = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, other, more = pools.pop()
            mean = (mean * total + before * other) / (total + other)
            total, length = total + other, length + more
        pools.append((mean, total, length))
    return [mean for mean, _, length in pools for _ in range(length)]


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(value**2 for value in values))


LOST = 0.03
"""The share of the best rate within the objective that a depth as good as the best may lack."""
MISSED = 0.04
"""The share by which its p99 may lie above the objective."""
DRAWS = 200
ALIKE = 0.05
"""A depth in force, or one that was measured, is preferred at so much less of a chance."""
_APART = 0.05
"""The distance of depths that are looked at, as a share."""


class Choice(Struct, frozen=True):
    """A depth, and the chance, from 0 to 1, that it is as good as the best."""

    depth: Count
    chance: Figure


class Choices(Struct, frozen=True):
    """What may be chosen from a curve.

    ``best`` is the best choice, ``current`` that of the depth in force, None where it lies outside
    of the curve. ``none`` is the chance that no depth meets the objective.
    """

    best: Choice
    current: Choice | None
    none: Figure


def choose_depth(curve: Curve, limit: float, current: int) -> Choices:
    """Return the choices; ``limit`` is the logarithm of the objective in µs, or infinite.

    The same curve gives the same choices.
    """
    depths = _depths(curve, current)
    counts, none = _counted(curve, limit, depths)
    chances = {
        depth: Choice(depth, count / DRAWS) for depth, count in zip(depths, counts, strict=True)
    }
    best = _likeliest(list(chances.values()))
    measured = _likeliest([chances[depth] for depth in curve.depths])
    if measured.chance >= best.chance - ALIKE:
        best = measured
    return Choices(best, chances.get(current), none / DRAWS)


def _likeliest(choices: Sequence[Choice]) -> Choice:
    """Return the likeliest; of equals the shallowest, which waits less."""
    return max(choices, key=lambda each: (each.chance, -each.depth))


def _depths(curve: Curve, current: int) -> list[int]:
    """Return the depths that may be chosen, in rising order."""
    measured = curve.depths
    low, high = measured[0], measured[-1]
    steps = math.ceil(math.log(high / low) / _APART)
    between = {round(low * (high / low) ** (step / steps)) for step in range(steps)}
    inside = {current} if low <= current <= high else set()
    return sorted(between | inside | set(measured))


def _counted(curve: Curve, limit: float, depths: Sequence[int]) -> tuple[list[int], int]:
    """Return how many draws have each depth as good as the best, and how many have none."""
    places = [curve.position(depth) for depth in depths]
    weights = [point.probes for point in curve.points]
    counts, none = [0] * len(depths), 0
    random = Random(len(weights))
    for _ in range(DRAWS):
        iops = [random.gauss(p.iops, curve.iops_noise / math.sqrt(p.probes)) for p in curve.points]
        p99 = [random.gauss(p.p99, curve.p99_noise / math.sqrt(p.probes)) for p in curve.points]
        p99 = level(p99, weights)
        rates = [iops[a] + share * (iops[b] - iops[a]) for a, b, share in places]
        waits = [p99[a] + share * (p99[b] - p99[a]) for a, b, share in places]
        within = [rate for rate, wait in zip(rates, waits, strict=True) if wait <= limit]
        if not within:
            none += 1
            continue
        least, most = max(within) + math.log1p(-LOST), limit + math.log1p(MISSED)
        for number, rate in enumerate(rates):
            if rate >= least and waits[number] <= most:
                counts[number] += 1
    return counts, none
