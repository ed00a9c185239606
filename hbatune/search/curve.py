"""A device's rate and p99 over the depth, estimated from a few noisy probes. Pure.

A closed loop of N I/Os has a response time that does not fall with N, and a rate of at most N times
that of one I/O (Denning and Buzen, Computing Surveys 10, 1978). A measured p99 that falls with the
depth is noise, and isotonic regression levels it (Barlow and others, Statistical Inference under
Order Restrictions, 1972). Rates and latencies are compared as logarithms, since noise is a share.
"""

import math
import statistics
from collections.abc import Sequence

from msgspec import Struct

from hbatune.loader import Count, Figure
from hbatune.probe.model import ProbeResult

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
        return tuple(each.depth for each in self.points)

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
    windows = [each for each in figures.windows if each.ios]
    return Measurement(
        depth=result.workload.issued,
        iops=figures.iops,
        p99_us=figures.p99_us,
        iops_error=log_error([each.iops for each in windows]),
        p99_error=log_error([each.percentile_us(99) for each in windows]),
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
        [statistics.fmean(math.log(each.p99_us) for each in probes) for probes in alike],
        [len(probes) for probes in alike],
    )
    points = tuple(
        Estimate(
            probes[0].depth,
            statistics.fmean(math.log(each.iops) for each in probes),
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
