"""Judge whether a change helped: `improved`, `unchanged`, `regressed`, or `cannot tell`. Pure.

Two runs that differ only in the change make a pair, in random order. The pairs are tested in three
ways, each for IOPS, mean and p99. One is the chance of such an effect without a change
(``compute_chance``). The others are the size of the effect (``compute_interval``) and this
machine's noise (``compute_noise_floor``).
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise, product, repeat
from operator import mul
from random import Random
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from hbatune.loader import Count, Figure
from hbatune.policy.profile import Tolerance
from hbatune.probe.result import Figures

ALPHA = 0.01  # false alarms per verdict, all metrics together
DEFAULT_PAIRS = 10  # the minimum of which ``OUTLIERS`` leaves out any
MIN_PAIRS = 8  # 2^7 exchanges: with fewer, ``compute_chance`` cannot reach ``ALPHA``
BURST_PAIRS = 2  # enough to describe, too few to decide
OUTLIERS = 0.1  # the fraction of the pairs at each end that does not count for an interval
DRIFT_FACTOR = 3.0
"""Factor from the drift between the halves of one block to the drift allowed between two blocks.

Two blocks with a linear drift are twice as far apart as the halves of each.
"""

MAX_EXACT_PAIRS = 12  # with more, ``RANDOM_EXCHANGES`` random exchanges are tried instead of all
RANDOM_EXCHANGES = 4095
MAX_PAIRS = 1000  # that ``verify_pairs`` allows (policy.config.ProbeConfig)
MAX_ADVICE_S = 600.0  # the default of ``verify_limit``
MAX_METRICS = 16  # maximum number of metrics of a verdict, in a file of any version


class Metric(StrEnum):
    """A metric that a verdict evaluates."""

    IOPS = "iops"
    MEAN = "mean"
    P99 = "p99"

    def of(self, figures: Figures) -> float:
        """Return its value, never zero: a rate, or a latency in µs."""
        values = {Metric.IOPS: figures.iops, Metric.MEAN: figures.mean_us}
        return max(values.get(self, figures.p99_us), 1e-3)

    def list_values(self, runs: Iterable[Figures]) -> list[float]:
        """Return its values in these runs."""
        return [self.of(run) for run in runs]

    def tolerated(self, tolerance: Tolerance) -> float:
        """Return the fraction of it that the profile tolerates to lose."""
        return float(getattr(tolerance, self.value))

    @property
    def sign(self) -> int:
        """1 if a higher value is better, -1 if a lower value is."""
        return 1 if self is Metric.IOPS else -1


# Divided among the metrics (Bonferroni), so ALPHA is valid for all of them together.
_CONFIDENCE = 1 - ALPHA / len(Metric)
_FAR = 20.0
"""A log ratio that represents "unbounded": with very few pairs, intervals would overflow."""


class Conclusion(StrEnum):
    """The conclusion of a verdict."""

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    REGRESSED = "regressed"
    CANNOT_TELL = "cannot tell"


class Design(StrEnum):
    """The order of the runs with and without the change."""

    INTERLEAVED = "interleaved"
    BLOCKS = "blocks"
    BURSTS = "bursts"  # a few pairs: an interval is their range, without a confidence


class MetricChange(Struct, frozen=True):
    """One metric: the ratio of after to before with its interval, and its conclusion.

    ``floor`` is the ratio minus one that this machine reaches without a change. ``compute_chance``
    is the probability of as large an effect on any metric by chance, or None if the runs were not
    interleaved. ``beyond`` is whether it is worse than the profile tolerates.
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

    ``runs`` is the number of runs on each side. If the conclusion is `cannot tell`, a decision
    requires ``more_runs`` on each side, which take ``more_seconds``. Both are None if nothing was
    compared, or if a decision takes more than is allowed.
    """

    word: Conclusion
    design: Design
    runs: Count
    changes: Annotated[tuple[MetricChange, ...], Meta(max_length=MAX_METRICS)]
    more_runs: Count | None = None
    more_seconds: Figure | None = None

    @property
    def beyond(self) -> tuple[Metric, ...]:
        """The metrics that regressed beyond the profile's tolerance."""
        return tuple(change.metric for change in self.changes if change.beyond)


def evaluate_pairs(
    pairs: Sequence[tuple[Figures, Figures]], tolerance: Tolerance, seconds: float
) -> Verdict:
    """Return the verdict of pairs of runs, before and after, in the order of the runs.

    The order within each pair was random; ``seconds`` is the time of one pair.
    """
    if len(pairs) < 2:
        verdict = Verdict(Conclusion.CANNOT_TELL, Design.INTERLEAVED, len(pairs), ())
        return _advise_runs(verdict, tolerance, seconds)
    logs = []
    for before, after in pairs:
        logs.append([math.log(metric.of(after) / metric.of(before)) for metric in Metric])
    rare = compute_chance(logs)
    sides = ([before for before, _ in pairs], [after for _, after in pairs])
    changes = []
    for metric, gaps, chance in zip(Metric, zip(*logs, strict=True), rare, strict=True):
        floor = compute_noise_floor(map(metric.list_values, sides))
        # Each limit is wrong with the probability ``ALPHA``: so is `unchanged` (Schuirmann 1987).
        interval = compute_interval([gaps], 1 - 2 * ALPHA, OUTLIERS)
        # Test and interval come from different methods; a change counts only if both show it.
        change = _make_change(metric, sides, interval, floor, chance <= ALPHA, tolerance)
        changes.append(replace(change, chance=chance))
    verdict = _make_verdict(Design.INTERLEAVED, len(pairs), changes)
    return _advise_runs(verdict, tolerance, seconds)


def evaluate_blocks(
    before: Sequence[Figures], after: Sequence[Figures], tolerance: Tolerance, seconds: float
) -> Verdict:
    """Return the verdict of a block of runs before and one after; ``seconds`` is two runs' time.

    Drift looks like an effect. So the interval is widened by the drift within each block.
    """
    runs = min(len(before), len(after))
    # Drift is measured between the halves of a block, and each half needs two runs.
    if runs < 4:
        verdict = Verdict(Conclusion.CANNOT_TELL, Design.BLOCKS, runs, ())
        return _advise_runs(verdict, tolerance, seconds)
    changes = []
    for metric in Metric:
        first = list(map(math.log, metric.list_values(before)))
        second = list(map(math.log, metric.list_values(after)))
        drift = DRIFT_FACTOR * max(_measure_drift(first), _measure_drift(second))
        low, high = compute_interval([first, second], _CONFIDENCE)
        interval = (low - drift, high + drift)
        changes.append(_make_change(metric, (before, after), interval, drift, True, tolerance))
    verdict = _make_verdict(Design.BLOCKS, runs, changes)
    return _advise_runs(verdict, tolerance, seconds)


def describe_bursts(
    pairs: Sequence[tuple[Figures, Figures]], tolerance: Tolerance, seconds: float
) -> Verdict:
    """Return how a few pairs of bursts differ; it decides nothing (``evaluate_pairs``).

    A metric improved or regressed only if it did in every pair, beyond the tolerance.
    """
    if len(pairs) < BURST_PAIRS:
        return Verdict(Conclusion.CANNOT_TELL, Design.BURSTS, len(pairs), ())
    sides = ([before for before, _ in pairs], [after for _, after in pairs])
    changes = []
    for metric in Metric:
        gaps = [math.log(metric.of(after) / metric.of(before)) for before, after in pairs]
        low, high = min(gaps), max(gaps)
        allowed = metric.tolerated(tolerance)
        has_effect = low > math.log1p(allowed) or high < math.log1p(-allowed)
        changes.append(_make_change(metric, sides, (low, high), 0, has_effect, tolerance))
    return _make_verdict(Design.BURSTS, len(pairs), changes)


def compute_noise_floor(sides: Iterable[Sequence[float]]) -> float:
    """Return the smallest log ratio that exceeds this machine's own noise.

    ``sides`` are the runs of each setting in their order. Consecutive runs of one setting differ
    only by noise; the floor is the effect of that noise on the mean of as many pairs.
    """
    steps = []
    for side in sides:
        for earlier, later in pairwise(side):
            steps.append(math.log(later / earlier))
    spread = math.sqrt(statistics.fmean(step**2 for step in steps))
    runs = len(steps) // 2 + 1
    return compute_student_quantile(_CONFIDENCE, runs - 1) * spread / math.sqrt(runs)


def _compute_ratio(log: float) -> float:
    return math.exp(max(-_FAR, min(_FAR, log)))


def _measure_drift(block: Sequence[float]) -> float:
    """Return the distance between the second half of a block and the first."""
    half = len(block) // 2
    return abs(statistics.fmean(block[-half:]) - statistics.fmean(block[:half]))


def _make_change(
    metric: Metric,
    sides: tuple[Sequence[Figures], Sequence[Figures]],
    interval: tuple[float, float],
    floor: float,
    significant: bool,
    tolerance: Tolerance,
) -> MetricChange:
    allowed = metric.tolerated(tolerance)
    (low, high), gap = interval, sum(interval) / 2
    conclusion = Conclusion.CANNOT_TELL
    # Equivalence first: a real change within the tolerance is not reported (Schuirmann, Journal of
    # Pharmacokinetics and Biopharmaceutics 15, 1987: equivalence is shown, not assumed).
    if math.log1p(-allowed) < low and high < math.log1p(allowed):
        conclusion = Conclusion.UNCHANGED
    elif significant and not low <= 0 <= high and abs(gap) > floor:
        is_better = gap * metric.sign > 0
        conclusion = Conclusion.IMPROVED if is_better else Conclusion.REGRESSED
    before, after = (statistics.fmean(_trim(metric.list_values(side))) for side in sides)
    ratio = _compute_ratio(gap)
    return MetricChange(
        metric=metric,
        before=before,
        after=after,
        ratio=ratio,
        low=_compute_ratio(low),
        high=_compute_ratio(high),
        floor=_compute_ratio(floor) - 1,
        chance=None,
        word=conclusion,
        beyond=conclusion is Conclusion.REGRESSED and abs(ratio - 1) > allowed,
    )


def _make_verdict(design: Design, runs: int, changes: Sequence[MetricChange]) -> Verdict:
    words = [change.word for change in changes]
    conclusion = Conclusion.UNCHANGED
    for word in (Conclusion.CANNOT_TELL, Conclusion.IMPROVED, Conclusion.REGRESSED):
        if word in words:
            conclusion = word
    return Verdict(conclusion, design, runs, tuple(changes))


def _advise_runs(verdict: Verdict, tolerance: Tolerance, seconds: float) -> Verdict:
    """Return the verdict with the runs that a decision about all metrics lacks, if allowed.

    An interval shrinks with the root of the runs. It has to become small enough to lie within the
    tolerance, or to exclude zero.
    """
    needed = float(DEFAULT_PAIRS if verdict.design is Design.BLOCKS else MIN_PAIRS)
    for change in verdict.changes:
        if change.word is Conclusion.CANNOT_TELL:
            allowed = change.metric.tolerated(tolerance)
            gap = abs(math.log(change.ratio))
            reach = (math.log(change.high) - math.log(change.low)) / 2
            small = reach / max(math.log1p(allowed) - gap, 1e-9)
            large = max(reach, math.log1p(change.floor)) / max(gap, 1e-9)
            needed = max(needed, verdict.runs * min(small, large) ** 2)
    is_undecided = verdict.word is Conclusion.CANNOT_TELL and verdict.runs > 0
    if not is_undecided or needed > MAX_PAIRS or needed * seconds > MAX_ADVICE_S:
        return verdict
    more_runs = max(1, math.ceil(needed) - verdict.runs)
    return replace(verdict, more_runs=more_runs, more_seconds=more_runs * seconds)


def compute_chance(pairs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return for each metric the probability of as large an effect on any metric by chance.

    ``pairs`` has the differences of each pair, one for each metric. If the order within each pair
    was random, a change without effect makes every exchange of a pair's two runs equally likely.
    This is true under any noise: autocorrelated, heavy-tailed or drifting (Fisher, The Design of
    Experiments, 1935). Taking the largest statistic of all metrics keeps the rate of false alarms
    for all of them together (Westfall and Young, Resampling-Based Multiple Testing, 1993:
    single-step maxT).
    """
    columns = []
    for gaps in zip(*pairs, strict=True):
        # All metrics on one scale, so the largest can be compared.
        scale = math.sqrt(sum(gap**2 for gap in gaps)) or 1.0
        columns.append([gap / scale for gap in gaps])
    largest = []
    for signs in _list_exchanges(len(pairs)):
        largest.append(max(abs(sum(map(mul, signs, column))) for column in columns))
    chances = []
    for column in columns:
        # A rounding error must not make the observed order look rarer than its own mirror image.
        observed = abs(sum(column)) - 1e-12
        chances.append(sum(statistic >= observed for statistic in largest) / len(largest))
    return tuple(chances)


def compute_interval(
    sides: Sequence[Sequence[float]], confidence: float, trimmed: float = 0.0
) -> tuple[float, float]:
    """Return a confidence interval for the mean of a side of at least two values.

    With two sides, it is for the mean of the second minus the mean of the first. The distribution
    has to be symmetric. Differences within pairs are, because the order within each pair is random.
    The means leave out the fraction ``trimmed`` of the values at each end (Yuen, Biometrika 61,
    1974). Without it, the interval is Student's or Welch's.
    """
    mean, errors = 0.0, []  # each error squared, with its degrees of freedom
    for side in sides:
        middle = _trim(side, trimmed)
        cut = (len(side) - len(middle)) // 2
        padded = [*cut * middle[:1], *middle, *cut * middle[-1:]]
        mean = statistics.fmean(middle) - mean
        freedom = len(middle) - 1
        spread = statistics.variance(padded) * (len(side) - 1) / freedom
        errors.append((spread / len(middle), freedom))
    total = sum(square for square, _ in errors)
    if total == 0:
        return mean, mean
    inverse = sum((square / total) ** 2 / freedom for square, freedom in errors)
    freedom = int(1 / inverse + 1e-9)  # rounding must not cost a degree
    reach = compute_student_quantile(confidence, freedom) * math.sqrt(total)
    return mean - reach, mean + reach


def _trim(values: Sequence[float], fraction: float = OUTLIERS) -> list[float]:
    """Return the values in order, without this fraction at each end."""
    cut = int(fraction * len(values))
    return sorted(values)[cut : len(values) - cut]


@lru_cache(maxsize=256)
def compute_student_quantile(confidence: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # halvings, to the precision of a float
        angle = (low + high) / 2
        if _compute_student_probability(angle, freedom) < confidence:
            low = angle
        else:
            high = angle
    return math.tan(low) * math.sqrt(freedom)


def _compute_student_probability(angle: float, freedom: int) -> float:
    """Return the probability of a value up to tan(angle) * sqrt(freedom), positive or negative.

    It is a finite sum (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4).
    """
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (number - 1) / number
        total += term
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total


def _list_exchanges(pairs: int) -> Iterator[Sequence[int]]:
    """Yield the sign of each pair: in the observed order, and in all exchanges or in random ones.

    Mirror images are left out: their statistics are the same.
    """
    if pairs <= MAX_EXACT_PAIRS:
        yield from product((1,), *repeat((1, -1), pairs - 1))
        return
    yield (1,) * pairs
    random = Random(pairs)
    for _ in range(RANDOM_EXCHANGES):
        bits = f"{random.getrandbits(pairs):0{pairs}b}"
        yield [1 if bit == "1" else -1 for bit in bits]
