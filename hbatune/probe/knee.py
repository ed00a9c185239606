"""The knee of a depth sweep. Beyond it, a deeper queue adds latency but almost no throughput. Pure.

The knee is the maximum of power: IOPS over p99 (Kleinrock, "Power and deterministic rules of thumb
for probabilistic problems in computer communications", ICC 1979). In a closed queue throughput is
at most the lesser of depth over service time and the device's own ceiling (Denning and Buzen,
Computing Surveys 10, 1978). So power grows until the device is just saturated, and then falls. It
needs no parameter and no smoothing, unlike curvature.
"""

import statistics
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import truediv
from random import Random

from msgspec import Struct

from hbatune.facts.names import group_items
from hbatune.loader import Count, Figure
from hbatune.probe.result import ProbeResult

RESAMPLES = 999
CONFIDENCE = 0.95
MIN_POINTS = 3  # with fewer depths the curve has no usable shape
MIN_WINDOWS = 5
WINDOW_S = 0.9  # fio cuts a window of 1 s with this tolerance
FALL = 0.1  # more is a fall in IOPS at a deeper queue, less is noise


class KneeDoubt(StrEnum):
    """The reason why alerts and limits do not use a knee."""

    SHORT = "short"
    UNCERTAIN = "uncertain"
    FALL = "fall"


class Point(Struct, frozen=True):
    """One depth of a sweep: IOPS and p99 in µs, each from several windows of the same run.

    ``seconds`` is the length of the shortest window, 0 if unknown. ``visits`` counts the runs.
    """

    depth: int
    iops: tuple[float, ...]
    p99_us: tuple[float, ...]
    seconds: float = 0.0
    visits: int = 1


class Knee(Struct, frozen=True):
    """The depth at which the device is just saturated, with its confidence interval.

    ``iops`` and ``p99`` are the relative changes at the next depth, ``past`` (0.02 is 2 % more).
    They are None if the knee is the deepest depth tried, so the true one may be deeper. ``doubt``
    is None if each depth had ``MIN_WINDOWS`` of 1 s, the interval is at most a factor of two as in
    the document (D0-12), and each fall in IOPS was measured twice.
    """

    depth: Count
    low: Count
    high: Count
    past: Count | None
    iops: Figure | None
    p99: Figure | None
    doubt: KneeDoubt | None = KneeDoubt.SHORT


def list_sweep_points(results: Iterable[ProbeResult]) -> list[Point]:
    """Return the depths of a sweep, each with the windows of its run that have I/O.

    A stored result has no windows: its run is the only one. Of several runs, the fastest counts.
    """
    points = []
    for depth, runs in group_items(results, lambda result: result.workload.issued).items():
        figures = max(runs, key=lambda result: result.figures.iops).figures
        iops, p99 = figures.list_windows()
        if not iops:
            iops, p99 = [figures.iops], [figures.p99_us]
        seconds = min((window.seconds for window in figures.windows if window.ios), default=0.0)
        points.append(Point(depth, tuple(iops), tuple(p99), seconds, len(runs)))
    return points


def find_falls(points: Sequence[Point]) -> list[Point]:
    """Return the depths with fewer IOPS than a lower depth, by more than noise."""
    falls, top = [], 0.0
    for point in sorted(points, key=lambda point: point.depth):
        rate = statistics.median(point.iops)
        if rate < (1 - FALL) * top:
            falls.append(point)
        top = max(top, rate)
    return falls


def find_knee(points: Sequence[Point]) -> Knee | None:
    """Return the knee of a sweep, or None if fewer than three depths were measured."""
    usable = [p for p in points if p.iops and p.p99_us and min(*p.iops, *p.p99_us, 1.0) > 0]
    points = sorted(usable, key=lambda point: point.depth)
    if len(points) < MIN_POINTS:
        return None
    iops = [statistics.median(point.iops) for point in points]
    p99 = [statistics.median(point.p99_us) for point in points]
    index = _find_most_power(iops, p99)
    low, high = _resample_range(points, points[index].depth)
    last = index == len(points) - 1
    return Knee(
        depth=points[index].depth,
        low=low,
        high=high,
        past=None if last else points[index + 1].depth,
        iops=None if last else iops[index + 1] / iops[index] - 1,
        p99=None if last else p99[index + 1] / p99[index] - 1,
        doubt=_find_doubt(points, low, high),
    )


def _find_doubt(points: Sequence[Point], low: int, high: int) -> KneeDoubt | None:
    if any(len(point.iops) < MIN_WINDOWS or point.seconds < WINDOW_S for point in points):
        return KneeDoubt.SHORT
    if any(point.visits < 2 for point in find_falls(points)):
        return KneeDoubt.FALL
    return KneeDoubt.UNCERTAIN if high > 2 * low else None


def _find_most_power(iops: Sequence[float], p99: Sequence[float]) -> int:
    """Return the index of the maximum power; of two equal ones, the lower."""
    power = list(map(truediv, iops, p99))
    return max(range(len(power)), key=power.__getitem__)


def _resample_range(points: Sequence[Point], knee: int) -> tuple[int, int]:
    """Return the lowest and highest knee of the middle ``CONFIDENCE`` of the resamples.

    It is a percentile bootstrap over the windows of each depth (Efron, The Annals of Statistics 7,
    1979). ``knee`` is the depth of the knee of the medians.
    """
    if all(len(point.iops) == 1 for point in points):
        return knee, knee  # with one window per depth, all resamples are the sweep itself
    # A fixed seed: the same sweep must give the same range each time it is shown.
    random, depths = Random(len(points)), []
    for _ in range(RESAMPLES):
        iops, p99 = [], []
        for point in points:
            windows = list(zip(point.iops, point.p99_us, strict=True))
            rates, waits = zip(*random.choices(windows, k=len(windows)), strict=True)
            iops.append(statistics.median(rates))
            p99.append(statistics.median(waits))
        depths.append(points[_find_most_power(iops, p99)].depth)
    depths.sort()
    cut = int((1 - CONFIDENCE) / 2 * len(depths))
    # This range need not contain the knee of the medians; it is widened to do so.
    return min(depths[cut], knee), max(depths[-1 - cut], knee)
