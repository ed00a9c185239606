"""A latency histogram: how many I/Os took how long. Pure.

Percentiles and means of several runs come from their merged histogram, since percentiles
themselves cannot be averaged. The bins are fio's, under 2 % wide (stat.h: FIO_IO_U_PLAT_BITS).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import force_setattr


class Histogram(Struct, frozen=True):
    """Latency in nanoseconds → I/Os, in rising order; no bin is empty or negative."""

    counts: dict[int, int] = {}

    def __post_init__(self) -> None:
        if any(value < 0 or count < 0 for value, count in self.counts.items()):
            raise ValueError("a latency or a count below zero")
        rising = {value: self.counts[value] for value in sorted(self.counts) if self.counts[value]}
        # Sorted, for percentiles in one walk; without empty bins, so that equals compare as such.
        force_setattr(self, "counts", rising)

    @property
    def count(self) -> int:
        """The number of I/Os in it."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """The mean in nanoseconds, as exact as the bins. Raises ``ValueError`` if empty."""
        if not self.counts:
            raise ValueError("the mean of nothing")
        return sum(value * count for value, count in self.counts.items()) / self.count

    def percentile(self, percent: float) -> int:
        """Return the lowest latency in ns that ``percent`` of the I/Os do not exceed.

        The same counting as fio's (stat.c: calc_clat_percentiles). Raises ``ValueError`` if empty.
        """
        return percentile(self.counts, percent)

    def minus(self, earlier: "Histogram") -> "Histogram":
        """Return the difference to ``earlier``, an older state of the same counters.

        Raises ``ValueError`` where a counter went back: then it is not the same run.
        """
        left = Counter(self.counts)
        left.subtract(earlier.counts)
        return Histogram(dict(left))


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms."""
    total: Counter[int] = Counter()
    for each in histograms:
        total.update(each.counts)
    return Histogram(dict(total))


def percentile(rising: Mapping[int, int], percent: float) -> int:
    """Return the lowest value of a rising histogram that ``percent`` of the counts do not exceed.

    Raises ``ValueError`` if empty.
    """
    needed = percent / 100 * sum(rising.values())
    seen = 0
    for value, count in rising.items():
        seen += count
        if seen >= needed:
            return value
    raise ValueError("a percentile of nothing")
