"""Searches the depth with the highest rate within an objective, in eight probes at most. Pure.

First it climbs: from a low depth by ``STEP`` until p99 passes the objective, the rate gains less
than ``GAIN``, or the device takes no more. Then it refines: the next probe is made where the laws
of a closed loop leave most to be gained over the best depth so far. Bisection on the objective
would not do, since the deepest depth that meets it is not the fastest of a device that thrashes.
What probes are left go to the depth that is likeliest the answer, until it is likely enough.
"""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.loader import Count, Figure, Seconds
from hbatune.search.curve import (
    ALIKE,
    Choice,
    Choices,
    Curve,
    Estimate,
    Measurement,
    choose_depth,
    estimate_curve,
)

STEP = 4
FIRST = 8
"""The climb starts at this depth at most, so that it meets the depth in force on its way."""
GAIN = 0.02
"""Less than this share more of a rate, for ``STEP`` times the depth, is a plateau."""
WORTH = 0.025
"""Less than this share of the rate to be gained is not worth a probe."""
NEAR = 1.15
"""A probe is made at least this factor away from those there are."""
REFINED = 6
"""Probes after which the search looks no further."""
MOST = 8
LIKELY = 0.85
"""The chance from which on an answer needs no more probes."""
DOUBTFUL = 0.45
"""The chance below which an answer is worth more than ``REFINED`` probes."""
MIN_CONFIDENCE = 0.5
"""The chance below which the answer is that it cannot be told."""
KEEP_CURRENT_CONFIDENCE = 0.75
"""The chance from which on the depth in force is kept, however likely another one is."""

LEAST_SECONDS = 2.0
MOST_SECONDS = 10.0
LEAST_IOS = 1000
"""I/Os of a probe, ten of which are beyond its p99."""

_EDGE = 1.96
"""Standard errors on either side of a figure: 95 %."""


class DepthProbe(Struct, frozen=True):
    """The next probe to make: I/Os in flight, and the seconds to measure for."""

    depth: Count
    seconds: Seconds


class DepthSearch(Struct, frozen=True):
    """A search: the depth in force, the deepest to try, p99's objective in µs, and all probes.

    Without an objective the highest rate is searched, whatever its p99.
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
    """The word of an answer."""

    BEST = "best"
    AS_GOOD = "as good as"  # the depth in force is as good as the best
    OUT_OF_REACH = "out of reach"  # no depth meets the objective
    CANNOT_TELL = "cannot tell"


class FigureRange(Struct, frozen=True):
    """A figure, and the interval in which it lies with 95 %."""

    low: Figure
    value: Figure
    high: Figure


class DepthAnswer(Struct, frozen=True):
    """The answer of a search: I/Os in flight, rate in I/Os per second, p99 in µs.

    ``chance``, from 0 to 1, is how likely the word is true: that the depth is as good as the best
    within the objective, or that no depth meets it. Where it cannot be told, the depth is the
    likeliest one.
    """

    word: DepthConclusion
    depth: Count
    chance: Figure
    iops: FigureRange
    p99_us: FigureRange
    probes: Count


def add_measurement(search: DepthSearch, measured: Measurement) -> DepthSearch:
    """Return the search with one more probe.

    Raises ``ValueError`` where its rate or p99 is not positive: then it has no logarithm.
    """
    if not (measured.depth > 0 and measured.iops > 0 and measured.p99_us > 0):
        raise ValueError(f"no I/O was measured at depth {measured.depth}")
    return replace(search, measured=(*search.measured, measured))


def next_probe(search: DepthSearch) -> DepthProbe | None:
    """Return the next probe, None where the search has ended."""
    if not search.measured:
        return DepthProbe(_first(search), LEAST_SECONDS)
    if len(search.measured) >= MOST:
        return None
    curve = estimate_curve(search.measured)
    depth = _climb(search, curve)
    if depth is None:
        depth = _refine(curve, search.limit) if len(search.measured) < REFINED else None
    if depth is None:
        depth = _repeat(search, curve)
    return None if depth is None else DepthProbe(depth, _seconds(curve, depth))


def answer_depth(search: DepthSearch) -> DepthAnswer:
    """Return the answer from what was measured so far, which is at least one probe."""
    curve = estimate_curve(search.measured)
    choices = choose_depth(curve, search.limit, search.current)
    word, choice = _word(choices, curve.depths[0])
    found = curve.at(choice.depth)
    return DepthAnswer(
        word=word,
        depth=choice.depth,
        chance=choice.chance,
        iops=_range(found.iops, curve.iops_noise, found),
        p99_us=_range(found.p99, curve.p99_noise, found),
        probes=len(search.measured),
    )


def _word(choices: Choices, lowest: int) -> tuple[DepthConclusion, Choice]:
    """Return the word and what it is about; ``lowest`` is the lowest depth that was measured."""
    best, current = choices.best, choices.current
    if lowest == 1 and choices.none >= max(MIN_CONFIDENCE, best.chance):
        return DepthConclusion.OUT_OF_REACH, Choice(lowest, choices.none)
    if current is not None and current.chance >= min(
        KEEP_CURRENT_CONFIDENCE, max(MIN_CONFIDENCE, best.chance - ALIKE)
    ):
        return DepthConclusion.AS_GOOD, current
    return (
        DepthConclusion.BEST if best.chance >= MIN_CONFIDENCE else DepthConclusion.CANNOT_TELL
    ), best


def _first(search: DepthSearch) -> int:
    """Return a low depth from which the climb comes by the depth in force, or close to it."""
    depth = search.current
    while depth > FIRST:
        depth = round(depth / STEP)
    return max(1, min(depth, search.deepest))


def _climb(search: DepthSearch, curve: Curve) -> int | None:
    """Return the next depth of the climb, or of the way down from a first one that is too deep."""
    bottom, top = curve.points[0], curve.points[-1]
    if bottom.p99 > search.limit:
        return None if bottom.depth == 1 else max(1, round(bottom.depth / STEP))
    if top.p99 > search.limit or top.depth >= search.deepest:
        return None
    if len(curve.points) > 1 and top.iops - curve.points[-2].iops < math.log1p(GAIN):
        # On a plateau only the depth in force is still of interest.
        inside = search.current <= top.depth
        return None if inside else min(search.current, search.deepest)
    return min(search.deepest, top.depth * STEP)


def _refine(curve: Curve, limit: float) -> int | None:
    """Return the depth beside the best one so far that could gain most, None where none could."""
    points = curve.points
    within = [point for point in points if point.p99 <= limit]
    if not within:
        return None
    best = max(within, key=lambda each: (each.iops, -each.depth))
    at = points.index(best)
    sides = [side for side in (at, at - 1) if 0 <= side < len(points) - 1]
    gains = [gain for side in sides if (gain := _most_to_gain(points, side, limit)) is not None]
    if not gains:
        return None
    rate, depth = max(gains)
    return depth if rate - best.iops > math.log1p(WORTH) else None


def _most_to_gain(points: Sequence[Estimate], side: int, limit: float) -> tuple[float, int] | None:
    """Return the highest rate that is possible after a point, as a logarithm, and its depth."""
    left, right = points[side], points[side + 1]
    deepest = float(right.depth)
    if right.p99 > limit:
        # Where p99 reaches the objective, on a line of logarithms.
        share = (limit - left.p99) / (right.p99 - left.p99)
        deepest = left.depth * (right.depth / left.depth) ** share
    found: tuple[float, int] | None = None
    for depth in _between(left.depth, right.depth):
        if found is not None and depth > deepest:
            break
        rate = math.log(_highest_rate(points, side, depth))
        if found is None or rate > found[0]:
            found = rate, depth
    return found


def _between(low: int, high: int) -> Iterator[int]:
    """Yield depths between two others, far enough from both."""
    steps = 20
    for step in range(1, steps):
        depth = round(low * (high / low) ** (step / steps))
        if low < depth < high and depth >= low * NEAR and depth * NEAR <= high:
            yield depth


def _highest_rate(points: Sequence[Estimate], side: int, depth: int) -> float:
    """Return the highest rate that a depth between two points can have.

    Up to its peak a rate is concave: it continues no steeper than it came, and at most in
    proportion to the depth. Beyond, it is taken to fall no faster than the depth grows.
    """
    left, right = points[side], points[side + 1]
    rate = math.exp(left.iops)
    highest = min(rate * depth / left.depth, math.exp(right.iops) * right.depth / depth)
    if side > 0:
        before = points[side - 1]
        slope = (rate - math.exp(before.iops)) / (left.depth - before.depth)
        # A rate that falls from one point to the next says nothing of what comes after it.
        highest = min(highest, rate + max(0.0, slope) * (depth - left.depth))
    return highest


def _repeat(search: DepthSearch, curve: Curve) -> int | None:
    """Return the likeliest depth, to measure it once more, None where the answer is likely enough.

    Where it is likeliest that no depth meets the objective, lower ones are tried first.
    """
    choices = choose_depth(curve, search.limit, search.current)
    best = choices.best
    if choices.none > best.chance:
        if curve.depths[0] > 1:
            return max(1, round(curve.depths[0] / STEP))
        best = Choice(1, choices.none)
    enough = LIKELY if len(search.measured) < REFINED else DOUBTFUL
    return None if best.chance >= enough else best.depth


def _seconds(curve: Curve, depth: int) -> float:
    """Return how long to measure a depth: until enough I/Os are done at the rate nearest to it."""
    nearest = min(curve.points, key=lambda each: abs(math.log(each.depth / depth)))
    return min(MOST_SECONDS, max(LEAST_SECONDS, LEAST_IOS / math.exp(nearest.iops)))


def _range(value: float, noise: float, found: Estimate) -> FigureRange:
    reach = _EDGE * noise / math.sqrt(found.probes)
    low, middle, high = (math.exp(value + side * reach) for side in (-1, 0, 1))
    return FigureRange(low, middle, high)
