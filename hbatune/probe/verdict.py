"""Judges whether a change helped: `improved`, `unchanged`, `regressed`, or `cannot tell`. Pure.

Two runs that differ only in the change make a pair, in random order. Three questions are
asked of the pairs, for IOPS, mean and p99 alike:

- could chance have done this? A randomisation test over the exchanges of the pairs, for all
  metrics together at ``ALPHA`` (``chance``): its rate of false alarms holds under any
  kind of noise;
- how large is it? A bootstrap interval of the ratio, shared out over the metrics (Bonferroni);
- is it more than this machine does by itself? A noise floor from runs of one and the same setting
  that follow each other.

A change whose whole interval lies within the profile's tolerance is `unchanged`
(Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987: equivalence is shown, not
assumed). A change that is shown neither to exist nor to be small is `cannot tell`.

Where the setting cannot be switched back and forth there are two blocks of runs, and drift looks
like an effect. Then the interval is widened by the drift within each block.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from random import Random
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from hbatune.loader import Count, Figure
from hbatune.policy.profile import Tolerance
from hbatune.probe.result import Figures

ALPHA = 0.01
"""False alarms per verdict, all metrics together."""
PAIRS = 10
"""Two more than ``ALPHA`` needs at least, so that one odd pair does not decide."""
FEWEST = 8
"""As many as ``ALPHA`` needs at least (``fewest_pairs``), for where time is short."""
DRIFT = 3.0
"""Factor from the drift between the halves of one block to that allowed between two blocks.

Two blocks with a linear drift lie twice as far apart as the halves of each.
"""

EXACT = 12
"""Up to so many pairs, every exchange is tried; beyond, ``DRAWN`` random ones are."""
DRAWN = 4095
RESAMPLES = 1999


MOST_METRICS = 16
"""Metrics of a verdict at most, in a file of whatever version."""


class Metric(StrEnum):
    """A metric that a verdict judges."""

    IOPS = "iops"
    MEAN = "mean"
    P99 = "p99"

    def of(self, figures: Figures) -> float:
        """Return its value, never zero: a rate, or a latency in µs."""
        values = {Metric.IOPS: figures.iops, Metric.MEAN: figures.mean_us}
        return max(values.get(self, figures.p99_us), 1e-3)

    def tolerated(self, tolerance: Tolerance) -> float:
        """Return the share of it that the profile tolerates to lose."""
        by_name = {Metric.IOPS: tolerance.iops, Metric.MEAN: tolerance.mean}
        return by_name.get(self, tolerance.p99)

    @property
    def sign(self) -> int:
        """1 where more of it is better, -1 where less is."""
        return 1 if self is Metric.IOPS else -1


class Conclusion(StrEnum):
    """The word of a verdict."""

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    REGRESSED = "regressed"
    CANNOT_TELL = "cannot tell"


class Design(StrEnum):
    """The order of the runs with and without the change."""

    INTERLEAVED = "interleaved"
    BLOCKS = "blocks"


class MetricChange(Struct, frozen=True):
    """One metric: the ratio of after to before with its interval, and its word.

    ``floor`` is the ratio less one that this machine reaches with no change at all. ``chance`` is
    how often chance alone has as large an effect on any metric, None where the runs were not
    interleaved. ``beyond`` says whether it is worse than the profile tolerates.
    """

    metric: Metric
    before: Figure
    after: Figure
    ratio: Figure
    low: Figure
    high: Figure
    floor: Figure
    chance: Figure | None
    word: Conclusion
    beyond: bool


class Verdict(Struct, frozen=True, tag="verdict"):
    """The verdict on a change, from all metrics.

    ``runs`` is the number of runs on each side. Where the word is `cannot tell`, ``more_runs`` of
    each and ``more_seconds`` for them would be needed.
    """

    word: Conclusion
    design: Design
    runs: Count
    changes: Annotated[tuple[MetricChange, ...], Meta(max_length=MOST_METRICS)]
    more_runs: Count | None = None
    more_seconds: Figure | None = None

    @property
    def beyond(self) -> tuple[Metric, ...]:
        """The metrics that regressed beyond the profile's tolerance."""
        return tuple(change.metric for change in self.changes if change.beyond)


def judge_pairs(
    pairs: Sequence[tuple[Figures, Figures]], tolerance: Tolerance, seconds: float
) -> Verdict:
    """Return the verdict of pairs of runs, before and after, in the order they were made.

    The order within each pair was random; ``seconds`` is the time of one pair.
    """
    if len(pairs) < 2:
        return _nothing(Design.INTERLEAVED, len(pairs), fewest_pairs(ALPHA), seconds)
    logs = [[_gap(metric, *pair) for metric in Metric] for pair in pairs]
    rare = chance(logs)
    changes = []
    for number, metric in enumerate(Metric):
        gaps = [log[number] for log in logs]
        floor = noise_floor([[metric.of(pair[side]) for pair in pairs] for side in (0, 1)])
        low, high = bootstrap_interval(gaps, _CONFIDENCE)
        # Test and interval come from different methods; a change counts only where both show it.
        told = rare[number] <= ALPHA and not low <= 0 <= high
        mean = statistics.fmean(gaps)
        sides = ([first for first, _ in pairs], [second for _, second in pairs])
        change = _change(metric, sides, (low, mean, high), floor, told, tolerance)
        changes.append(replace(change, chance=rare[number]))
    return _verdict(Design.INTERLEAVED, len(pairs), changes, tolerance, seconds)


def judge_blocks(
    before: Sequence[Figures], after: Sequence[Figures], tolerance: Tolerance, seconds: float
) -> Verdict:
    """Return the verdict of a block of runs before and one after; ``seconds`` is two runs' time."""
    runs = min(len(before), len(after))
    # Drift is measured between the halves of a block, each of which needs two runs.
    if runs < 4:
        return _nothing(Design.BLOCKS, runs, PAIRS, seconds)
    changes = []
    for metric in Metric:
        first, second = ([math.log(metric.of(run)) for run in block] for block in (before, after))
        drift = DRIFT * max(_drifted(first), _drifted(second))
        low, high = bootstrap_difference(first, second, _CONFIDENCE)
        low, high = low - drift, high + drift
        gap = statistics.fmean(second) - statistics.fmean(first)
        told = not low <= 0 <= high
        ends = (low, gap, high)
        changes.append(_change(metric, (before, after), ends, drift, told, tolerance))
    return _verdict(Design.BLOCKS, runs, changes, tolerance, seconds)


def noise_floor(sides: Iterable[Sequence[float]]) -> float:
    """Return the smallest log ratio that exceeds this machine's own noise.

    ``sides`` are the runs of each setting in their order. Runs of one setting that follow each
    other differ by noise alone; the floor is what that noise does to the mean of as many pairs.
    """
    steps = [math.log(b / a) for side in sides for a, b in pairwise(side)]
    spread = math.sqrt(statistics.fmean(step**2 for step in steps))
    runs = len(steps) // 2 + 1
    return student_quantile(_CONFIDENCE, runs - 1) * spread / math.sqrt(runs)


# Shared out over the metrics (Bonferroni), so that ALPHA holds for all of them together.
_CONFIDENCE = 1 - ALPHA / len(Metric)
_FAR = 20.0
"""A log ratio that stands for "unbounded": with very few pairs, intervals would overflow."""


def _gap(metric: Metric, before: Figures, after: Figures) -> float:
    return math.log(metric.of(after) / metric.of(before))


def _ratio(log: float) -> float:
    return math.exp(max(-_FAR, min(_FAR, log)))


def _drifted(block: Sequence[float]) -> float:
    """Return how far the second half of a block lies from its first."""
    half = len(block) // 2
    return abs(statistics.fmean(block[-half:]) - statistics.fmean(block[:half]))


def _change(
    metric: Metric,
    sides: tuple[Sequence[Figures], Sequence[Figures]],
    ends: tuple[float, float, float],
    floor: float,
    told: bool,
    tolerance: Tolerance,
) -> MetricChange:
    low, gap, high = ends
    allowed = metric.tolerated(tolerance)
    word = _word(metric, low, gap, high, floor, told, allowed)
    before, after = (statistics.fmean(metric.of(run) for run in side) for side in sides)
    return MetricChange(
        metric=metric,
        before=before,
        after=after,
        ratio=_ratio(gap),
        low=_ratio(low),
        high=_ratio(high),
        floor=_ratio(floor) - 1,
        chance=None,
        word=word,
        beyond=word is Conclusion.REGRESSED and abs(_ratio(gap) - 1) > allowed,
    )


def _word(
    metric: Metric, low: float, gap: float, high: float, floor: float, told: bool, allowed: float
) -> Conclusion:
    # Equivalence first: a real change that is small enough to be tolerated is not worth a word.
    if math.log1p(-allowed) < low and high < math.log1p(allowed):
        return Conclusion.UNCHANGED
    if told and abs(gap) > floor:
        return Conclusion.IMPROVED if gap * metric.sign > 0 else Conclusion.REGRESSED
    return Conclusion.CANNOT_TELL


def _verdict(
    design: Design, runs: int, changes: Sequence[MetricChange], tolerance: Tolerance, seconds: float
) -> Verdict:
    word = _overall([change.word for change in changes])
    more: int | None = None
    if word is Conclusion.CANNOT_TELL:
        open_ = (change for change in changes if change.word is Conclusion.CANNOT_TELL)
        needed = max(_runs_needed(each, runs, each.metric.tolerated(tolerance)) for each in open_)
        more = max(1, math.ceil(needed) - runs)
    return Verdict(
        word, design, runs, tuple(changes), more, None if more is None else more * seconds
    )


def _runs_needed(change: MetricChange, runs: int, allowed: float) -> float:
    """Return how many runs of each side it takes to decide about this metric.

    An interval shrinks with the root of the runs; it has to become small enough to lie within the
    tolerance, or to exclude zero.
    """
    gap = abs(math.log(change.ratio))
    reach = (math.log(change.high) - math.log(change.low)) / 2
    small = reach / max(math.log1p(allowed) - gap, 1e-9)
    large = max(reach, math.log1p(change.floor)) / max(gap, 1e-9)
    return max(fewest_pairs(ALPHA), runs * min(small, large) ** 2)


def _overall(words: Sequence[Conclusion]) -> Conclusion:
    return next(
        (
            word
            for word in (Conclusion.REGRESSED, Conclusion.IMPROVED, Conclusion.CANNOT_TELL)
            if word in words
        ),
        Conclusion.UNCHANGED,
    )


def _nothing(design: Design, runs: int, needed: int, seconds: float) -> Verdict:
    more = needed - runs
    return Verdict(Conclusion.CANNOT_TELL, design, runs, (), more, more * seconds)


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
