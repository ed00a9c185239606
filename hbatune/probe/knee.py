"""The knee of a depth sweep: past it, more depth buys waiting and hardly any I/Os. Pure.

Found by the power of Kleinrock ("Power and deterministic rules of thumb for probabilistic problems
in computer communications", ICC 1979): throughput over response time, here IOPS over p99. In a
closed queue throughput is at most the lesser of depth over service time and the device's own
ceiling (Denning and Buzen, Computing Surveys 10, 1978), so that power grows up to the depth at
which the device is just saturated, and falls beyond. It needs no parameter, which knees found by
curvature do, and no smoothing: between two powers of two the power of such a device differs by more
than a tenth of noise on either figure makes up for.

Its uncertainty is a percentile bootstrap over the windows of each depth (Efron, The Annals of
Statistics 7, 1979).
"""

import statistics
from collections.abc import Iterable, Sequence
from random import Random

from msgspec import Struct

from hbatune.loader import Count, Figure
from hbatune.probe.result import ProbeResult

RESAMPLES = 999
CONFIDENCE = 0.95
FEWEST = 3  # depths below which there is no shape to speak of


class Point(Struct, frozen=True):
    """One depth of a sweep: IOPS and p99 in µs, each from several windows of the same run."""

    depth: int
    iops: tuple[float, ...]
    p99_us: tuple[float, ...]


class Knee(Struct, frozen=True):
    """The depth at which the device is just saturated, with its confidence interval.

    ``iops`` and ``p99`` are the changes at the next depth, ``past``, as shares (0.02 is 2 % more);
    None where the knee is the deepest of those tried, so that it may lie further out.
    """

    depth: Count
    low: Count
    high: Count
    past: Count | None
    iops: Figure | None
    p99: Figure | None


def sweep_points(results: Iterable[ProbeResult]) -> list[Point]:
    """Return the depths of a sweep, each with those windows of its run that have I/O."""
    return [
        Point(
            result.workload.issued,
            tuple(window.iops for window in windows),
            tuple(window.percentile_us(99) for window in windows),
        )
        for result in results
        if (windows := [each for each in result.figures.windows if each.ios])
    ]


def find_knee(points: Sequence[Point]) -> Knee | None:
    """Return the knee of a sweep, None where fewer than three depths were measured."""
    points = sorted((each for each in points if _usable(each)), key=lambda point: point.depth)
    if len(points) < FEWEST:
        return None
    iops = [statistics.median(point.iops) for point in points]
    p99 = [statistics.median(point.p99_us) for point in points]
    at = _most_power(iops, p99)
    # The resampled range need not contain the knee of the medians; it is widened to do so.
    low, high = _range(points)
    last = at == len(points) - 1
    return Knee(
        depth=points[at].depth,
        low=min(low, points[at].depth),
        high=max(high, points[at].depth),
        past=None if last else points[at + 1].depth,
        iops=None if last else iops[at + 1] / iops[at] - 1,
        p99=None if last else p99[at + 1] / p99[at] - 1,
    )


def _usable(point: Point) -> bool:
    return bool(point.iops and point.p99_us) and min(*point.iops, *point.p99_us, 1.0) > 0


def _most_power(iops: Sequence[float], p99: Sequence[float]) -> int:
    """Return the index of the greatest power, the lower of two that are alike."""
    power = [rate / wait for rate, wait in zip(iops, p99, strict=True)]
    return max(range(len(power)), key=power.__getitem__)


def _range(points: Sequence[Point]) -> tuple[int, int]:
    """Return the lowest and highest knee of the middle ``CONFIDENCE`` of the resamples."""
    if all(len(point.iops) == 1 for point in points):
        # There is one way to draw from one: all resamples are the sweep itself.
        at = _most_power([each.iops[0] for each in points], [each.p99_us[0] for each in points])
        return points[at].depth, points[at].depth
    # A fixed seed: the same sweep must give the same range each time it is shown.
    random, found = Random(len(points)), []
    for _ in range(RESAMPLES):
        iops, p99 = [], []
        for point in points:
            drawn = random.choices(range(len(point.iops)), k=len(point.iops))
            iops.append(statistics.median(point.iops[each] for each in drawn))
            p99.append(statistics.median(point.p99_us[each] for each in drawn))
        found.append(points[_most_power(iops, p99)].depth)
    found.sort()
    cut = int((1 - CONFIDENCE) / 2 * len(found))
    return found[cut], found[-1 - cut]
