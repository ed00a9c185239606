"""Chooses a depth from a curve, and says how likely it is as good as the best. Pure.

By a parametric bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, 6.5): the
estimates are disturbed again and again by the noise of the probes they are from, and each time it
is seen which depths are as good as the best one within the objective. Between two measured depths
the curve is a line of logarithms, which is on the safe side where a rate bends down and a p99 up.
"""

import math
from collections.abc import Sequence
from random import Random

from msgspec import Struct

from hbatune.loader import Count, Figure
from hbatune.search.curve import Curve, level

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
    weights = [each.probes for each in curve.points]
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
