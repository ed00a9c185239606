"""Statistics over pairs: a randomisation test and a bootstrap. Pure.

The unit is a pair of whole runs, one with and one without the change. The windows within a run
resemble their neighbours, so they would count the same accident many times over.
"""

import math
import statistics
from collections.abc import Sequence
from random import Random

EXACT = 12
"""Up to so many pairs, every exchange is tried; beyond, ``DRAWN`` random ones are."""
DRAWN = 4095
RESAMPLES = 1999


def chance(pairs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return for each metric how often chance alone has as large an effect on any metric.

    ``pairs`` has the differences of each pair, one for each metric. Where the order within each
    pair was drawn by lot, a change that does nothing makes every exchange of a pair's two runs
    equally likely, whatever the noise: autocorrelated, heavy-tailed or drifting (Fisher, The
    Design of Experiments, 1935). Taking the largest statistic of all metrics together keeps the
    rate of false alarms for all of them at once (Westfall and Young, Resampling-Based Multiple
    Testing, 1993: single-step maxT).
    """
    metrics = len(pairs[0])
    # All metrics on one scale, so that the largest of them can be compared.
    scale = [math.sqrt(sum(pair[k] ** 2 for pair in pairs)) or 1.0 for k in range(metrics)]
    scaled = [[pair[k] / scale[k] for k in range(metrics)] for pair in pairs]
    seen = [abs(sum(pair[k] for pair in scaled)) for k in range(metrics)]
    largest = _exchanges(scaled) if len(pairs) <= EXACT else _drawn(scaled)
    # A rounding error must not make the observed order look rarer than its own mirror image.
    return tuple(sum(each >= value - 1e-12 for each in largest) / len(largest) for value in seen)


def fewest_pairs(alpha: float) -> int:
    """Return the fewest pairs with which ``chance`` can reach ``alpha``.

    With n pairs there are 2^(n-1) exchanges up to mirror images; the observed one is always among
    them.
    """
    return math.ceil(1 - math.log2(alpha))


def bootstrap_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the bootstrap-t confidence interval for the mean of at least two values.

    Studentised, since percentile intervals of so few values are too narrow (Hall, The Annals of
    Statistics 16, 1988; Efron and Tibshirani, An Introduction to the Bootstrap, 1993, 12.5). The
    same values give the same interval.
    """
    mean, error = statistics.fmean(values), _error(values)
    if error == 0:
        return mean, mean
    ratios = sorted(_studentised(values, mean))
    return mean - _quantile(ratios, confidence) * error, mean + _quantile(
        [-ratio for ratio in reversed(ratios)], confidence
    ) * error


def bootstrap_difference(
    first: Sequence[float], second: Sequence[float], confidence: float
) -> tuple[float, float]:
    """Return the bootstrap-t interval for the mean of ``second`` less that of ``first``."""
    gap = statistics.fmean(second) - statistics.fmean(first)
    error = math.hypot(_error(first), _error(second))
    if error == 0:
        return gap, gap
    # A fixed seed, so that the same runs never give two verdicts.
    random, ratios = Random(len(first)), []
    for _ in range(RESAMPLES):
        one, two = (random.choices(values, k=len(values)) for values in (first, second))
        spread = math.hypot(_error(one), _error(two)) or error
        ratios.append((statistics.fmean(two) - statistics.fmean(one) - gap) / spread)
    ratios.sort()
    upper = _quantile(ratios, confidence)
    lower = _quantile([-ratio for ratio in reversed(ratios)], confidence)
    return gap - upper * error, gap + lower * error


def student_quantile(confidence: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t (Abramowitz and Stegun, 1964, 26.7.5)."""
    x, v = statistics.NormalDist().inv_cdf((1 + confidence) / 2), freedom
    terms = (
        x,
        (x**3 + x) / (4 * v),
        (5 * x**5 + 16 * x**3 + 3 * x) / (96 * v**2),
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * v**3),
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / (92160 * v**4),
    )
    return sum(terms)


def _exchanges(pairs: Sequence[Sequence[float]]) -> list[float]:
    """Return the largest statistic of every way to exchange the pairs, up to mirror images.

    One pair is exchanged at a time, in the order of the reflected binary code (Gray, 1953).
    """
    signs = [1] * len(pairs)
    sums = [sum(column) for column in zip(*pairs, strict=True)]
    largest = [max(map(abs, sums))]
    for step in range(1, 1 << (len(pairs) - 1)):
        index = (step & -step).bit_length() - 1
        signs[index] = -signs[index]
        sums = [s + 2 * signs[index] * d for s, d in zip(sums, pairs[index], strict=True)]
        largest.append(max(map(abs, sums)))
    return largest


def _drawn(pairs: Sequence[Sequence[float]]) -> list[float]:
    """Return the largest statistic of random exchanges, the observed order among them."""
    random = Random(len(pairs))
    columns = list(zip(*pairs, strict=True))
    largest = [max(abs(sum(column)) for column in columns)]
    for _ in range(DRAWN):
        signs = [
            1 if bit == "1" else -1 for bit in f"{random.getrandbits(len(pairs)):0{len(pairs)}b}"
        ]
        largest.append(
            max(abs(sum(s * d for s, d in zip(signs, each, strict=True))) for each in columns)
        )
    return largest


def _studentised(values: Sequence[float], mean: float) -> list[float]:
    random, error = Random(len(values)), _error(values)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = random.choices(values, k=len(values))
        # A resample of one repeated value has no error of its own; the whole sample's stands in.
        ratios.append((statistics.fmean(drawn) - mean) / (_error(drawn) or error))
    return ratios


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 where the values are one and the same."""
    count, mean = len(values), math.fsum(values) / len(values)
    square = math.fsum((value - mean) ** 2 for value in values)
    # Rounding leaves a tiny square even where all values are equal.
    return math.sqrt(square / (count - 1) / count) if square > 1e-24 else 0.0


def _quantile(rising: Sequence[float], confidence: float) -> float:
    """Return the upper end of the middle ``confidence`` of rising values."""
    index = math.ceil((1 + confidence) / 2 * (len(rising) + 1)) - 1
    return rising[min(index, len(rising) - 1)]
