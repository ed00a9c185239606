"""Search the depth with the highest rate within an objective, in at most eight probes. Pure.

The search first climbs: it multiplies a low depth by ``CLIMB_FACTOR``. Then it refines: the next
probe is at the depth with the largest possible gain over the best one so far, by the laws of a
closed loop. Bisection on the objective would fail on a device that thrashes, since its deepest
depth within the objective is not its fastest. The remaining probes repeat the likeliest depth.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from hbatune.loader import Count, Figure, Seconds
from hbatune.probe.history import Measurement
from hbatune.search import curve as curves

CLIMB_FACTOR = 4
FIRST_DEPTH = 8
"""The maximum depth at the start of the climb, which then includes the current depth."""
MIN_GAIN = 0.02
"""The curve is a plateau if ``CLIMB_FACTOR`` times the depth gains a smaller part of the rate."""
MIN_PROBE_GAIN = 0.025
"""The relative gain of rate below which a probe is not worth its time."""
MIN_DEPTH_FACTOR = 1.15
"""The minimum factor between the depth of a probe and the depths measured before."""
REFINING_PROBES = 6
"""The number of probes after which the search stops refining."""
MAX_PROBES = 8
SUFFICIENT_CHANCE = 0.85
"""The chance at which an answer needs no more probes."""
DOUBTFUL_CHANCE = 0.45
"""The chance below which an answer is worth more than ``REFINING_PROBES`` probes."""
MIN_CONFIDENCE = 0.5
"""The chance below which the answer is ``CANNOT_TELL``."""
KEEP_CURRENT_CONFIDENCE = 0.75
"""The chance at which the current depth is kept, even if another one is likelier."""

MIN_PROBE_S = 2.0
MAX_PROBE_S = 10.0
MIN_IOS = 1000
"""The minimum number of I/Os in a probe. Ten of them are beyond its p99."""

_STEPS = 20
"""The number of steps between two measured depths that are evaluated."""

_EDGE = 1.96
"""The number of standard errors on either side of a figure: 95 %."""


class DepthProbe(Struct, frozen=True):
    """The next probe to make: I/Os in flight, and the seconds to measure for."""

    depth: Count
    seconds: Seconds


class DepthSearch(Struct, frozen=True):
    """A search: the current depth, the deepest to try, the p99 objective in µs, and all probes.

    Without an objective, the search finds the highest rate regardless of its p99.
    """

    current: Count
    deepest: Count
    objective_us: Figure | None
    measured: tuple[Measurement, ...] = ()

    @property
    def limit(self) -> float:
        """The logarithm of the objective, infinite without one."""
        return math.inf if self.objective_us is None else math.log(self.objective_us)


class DepthConclusion(StrEnum):
    """The conclusion of a search."""

    BEST = "best"
    AS_GOOD = "as good as"  # the current depth is as good as the best
    OUT_OF_REACH = "out of reach"  # no depth meets the objective
    CANNOT_TELL = "cannot tell"


class FigureRange(Struct, frozen=True):
    """A figure, and its 95 % confidence interval."""

    low: Figure
    value: Figure
    high: Figure


class DepthAnswer(Struct, frozen=True):
    """The answer of a search: I/Os in flight, rate in I/Os per second, p99 in µs.

    ``chance`` is the probability (0 to 1) that ``word`` is true: that the depth is as good as the
    best within the objective, or that no depth meets it. With ``CANNOT_TELL``, the depth is the
    likeliest one.
    """

    word: DepthConclusion
    depth: Count
    chance: Figure
    iops: FigureRange
    p99_us: FigureRange
    probes: Count


def add_measurement(search: DepthSearch, measured: Measurement) -> DepthSearch:
    """Return the search with one more probe; ``ValueError`` if its rate or p99 is not positive."""
    if not (measured.depth > 0 and measured.iops > 0 and measured.p99_us > 0):
        raise ValueError(f"no I/O was measured at depth {measured.depth}")
    return replace(search, measured=(*search.measured, measured))


def choose_next_probe(search: DepthSearch) -> DepthProbe | None:
    """Return the next probe, or None if the search has ended."""
    if not search.measured:
        return DepthProbe(_choose_first(search), MIN_PROBE_S)
    if len(search.measured) >= MAX_PROBES:
        return None
    curve = curves.estimate_curve(search.measured)
    depth = _climb(search, curve)
    if depth is None and len(search.measured) < REFINING_PROBES:
        depth = _refine(curve, search.limit)
    if depth is None:
        depth = _repeat(search, curve)
    if depth is None:
        return None
    # Enough seconds for its I/Os at the rate of the nearest measured depth.
    nearest = min(curve.points, key=lambda point: abs(math.log(point.depth / depth)))
    return DepthProbe(depth, min(MAX_PROBE_S, max(MIN_PROBE_S, MIN_IOS / math.exp(nearest.iops))))


def answer_depth(search: DepthSearch) -> DepthAnswer:
    """Return the answer from the measurements so far, at least one probe."""
    curve = curves.estimate_curve(search.measured)
    choices = curves.choose_depth(curve, search.limit, search.current)
    conclusion, choice = _conclude(choices, curve.depths[0])
    estimate = curve.at(choice.depth)
    return DepthAnswer(
        word=conclusion,
        depth=choice.depth,
        chance=choice.chance,
        iops=_make_range(estimate.iops, curve.iops_noise, estimate),
        p99_us=_make_range(estimate.p99, curve.p99_noise, estimate),
        probes=len(search.measured),
    )


def _conclude(choices: curves.Choices, lowest: int) -> tuple[DepthConclusion, curves.Choice]:
    """Return the conclusion and its choice; ``lowest`` is the lowest measured depth."""
    best, current = choices.best, choices.current
    if lowest == 1 and choices.none >= max(MIN_CONFIDENCE, best.chance):
        return DepthConclusion.OUT_OF_REACH, curves.Choice(lowest, choices.none)
    enough = max(MIN_CONFIDENCE, best.chance - curves.PREFERENCE_MARGIN)
    if current is not None and current.chance >= min(KEEP_CURRENT_CONFIDENCE, enough):
        return DepthConclusion.AS_GOOD, current
    if best.chance >= MIN_CONFIDENCE:
        return DepthConclusion.BEST, best
    return DepthConclusion.CANNOT_TELL, best


def _choose_first(search: DepthSearch) -> int:
    """Return a low depth for a climb that reaches the current depth, or comes close to it."""
    depth = search.current
    while depth > FIRST_DEPTH:
        depth = round(depth / CLIMB_FACTOR)
    return max(1, min(depth, search.deepest))


def _climb(search: DepthSearch, curve: curves.Curve) -> int | None:
    """Return the next depth of the climb, or a lower one if the first one was too deep."""
    bottom, top = curve.points[0], curve.points[-1]
    if bottom.p99 > search.limit:
        return None if bottom.depth == 1 else max(1, round(bottom.depth / CLIMB_FACTOR))
    if top.p99 > search.limit or top.depth >= search.deepest:
        return None
    if len(curve.points) > 1 and top.iops - curve.points[-2].iops < math.log1p(MIN_GAIN):
        # On a plateau only the current depth is still of interest.
        return None if search.current <= top.depth else min(search.current, search.deepest)
    return min(search.deepest, top.depth * CLIMB_FACTOR)


def _refine(curve: curves.Curve, limit: float) -> int | None:
    """Return the neighbour of the best depth so far with the largest possible gain, or None."""
    points = curve.points
    met = [point for point in points if point.p99 <= limit]
    if not met:
        return None
    best = max(met, key=attrgetter("iops"))
    index, gains = points.index(best), []
    for side in (index, index - 1):
        if 0 <= side < len(points) - 1:
            gains += _find_highest_gain(points, side, limit)
    rate, depth = max(gains, default=(-math.inf, 0))
    return depth if rate - best.iops > math.log1p(MIN_PROBE_GAIN) else None


def _find_highest_gain(
    points: Sequence[curves.Estimate], side: int, limit: float
) -> list[tuple[float, int]]:
    """Return the highest possible rate after a point, as a logarithm, and its depth, if any."""
    low, high = points[side], points[side + 1]
    deepest = float(high.depth)
    if high.p99 > limit:
        # The depth at which the p99 reaches the objective, on a line of logarithms.
        share = (limit - low.p99) / (high.p99 - low.p99)
        deepest = low.depth * (high.depth / low.depth) ** share
    rates: list[tuple[float, int]] = []
    for step in range(1, _STEPS):
        depth = round(low.depth * (high.depth / low.depth) ** (step / _STEPS))
        if depth < low.depth * MIN_DEPTH_FACTOR or depth * MIN_DEPTH_FACTOR > high.depth:
            continue  # too close to a measured depth
        if rates and depth > deepest:
            break
        rates.append((math.log(_bound_rate(points, side, depth)), depth))
    return [max(rates, key=lambda rate: rate[0])] if rates else []


def _bound_rate(points: Sequence[curves.Estimate], side: int, depth: int) -> float:
    """Return the highest rate that a depth between two points can have.

    Up to its peak a rate is concave: its slope does not increase, and it grows at most in
    proportion to the depth. Beyond the peak, it is assumed to fall no faster than the depth grows.
    """
    low, high = points[side], points[side + 1]
    rate = math.exp(low.iops)
    highest = min(rate * depth / low.depth, math.exp(high.iops) * high.depth / depth)
    if side > 0:
        previous = points[side - 1]
        slope = (rate - math.exp(previous.iops)) / (low.depth - previous.depth)
        # A rate that falls from one point to the next does not limit the rates after it.
        highest = min(highest, rate + max(0.0, slope) * (depth - low.depth))
    return highest


def _repeat(search: DepthSearch, curve: curves.Curve) -> int | None:
    """Return the likeliest depth to measure again, or None if the answer is likely enough.

    If most likely no depth meets the objective, lower ones are tried first.
    """
    choices = curves.choose_depth(curve, search.limit, search.current)
    best = choices.best
    if choices.none > best.chance:
        if curve.depths[0] > 1:
            return max(1, round(curve.depths[0] / CLIMB_FACTOR))
        best = curves.Choice(1, choices.none)
    enough = SUFFICIENT_CHANCE if len(search.measured) < REFINING_PROBES else DOUBTFUL_CHANCE
    return None if best.chance >= enough else best.depth


def _make_range(value: float, noise: float, estimate: curves.Estimate) -> FigureRange:
    reach = _EDGE * noise / math.sqrt(estimate.probes)
    return FigureRange(*map(math.exp, (value - reach, value, value + reach)))
