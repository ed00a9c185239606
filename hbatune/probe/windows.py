"""Cuts a run into windows: fio's cumulative status documents, differenced. Pure.

With ``--status-interval`` fio writes one JSON document after another, each counting from the end
of the warm-up. Those written during the warm-up count the warm-up's I/Os, hold no latencies, and
the counters start again after it (seen with fio 3.33; stat.c: reset_io_stats).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from hbatune.probe.histogram import Histogram
from hbatune.probe.model import Window

SHORTEST = 0.5
"""Of the longest stretch: a shorter one, such as the rest at the end, joins the one before."""
LATE = 1.02
"""Of the time asked for: what is counted later waits for what was in flight at the end."""


class Count(Struct, frozen=True):
    """What a run has counted up to some moment, all its jobs together; seconds since warm-up."""

    seconds: float
    by_job: tuple[int, ...]
    bytes: int
    histogram: Histogram
    mean_ns: float
    user: float
    system: float

    @property
    def ios(self) -> int:
        """The I/Os of all jobs."""
        return sum(self.by_job)


def documents(output: str) -> Iterator[object]:
    """Yield the JSON objects in fio's output; words between them are passed over.

    An object that is cut off or broken ends it: what follows cannot be told apart from it.
    """
    decoder = json.JSONDecoder()
    start = re.compile(r"^\{", re.MULTILINE)
    found = start.search(output)
    while found:
        try:
            document, end = decoder.raw_decode(output, found.start())
        except (ValueError, RecursionError):
            return
        yield document
        found = start.search(output, end)


def in_time(counts: Sequence[Count], asked: float) -> list[Count]:
    """Return those counts of a run that lie in the seconds ``asked`` for, after its warm-up.

    The last one, of the whole run, is among them only where the others tell of less than half. Its
    latencies may be more than its I/Os: those were waited for when the time was up.
    """
    *told, whole = _after_warm_up(counts)
    found = [count for count in told if count.seconds <= LATE * asked]
    if not found or found[-1].seconds < SHORTEST * asked:
        waited = whole.histogram.count > whole.ios
        found.append(replace(whole, seconds=min(whole.seconds, asked)) if waited else whole)
    return found


def windows(counts: Sequence[Count]) -> tuple[Window, ...]:
    """Return the stretches between counts of one run, which add up to the last of them."""
    return tuple(_between(first, second) for first, second in pairwise(_marks(counts)))


def _after_warm_up(counts: Iterable[Count]) -> list[Count]:
    kept: list[Count] = []
    for count in counts:
        if kept and not _follows(kept[-1], count):
            kept = []
        if count.histogram.counts:
            kept.append(count)
    return kept


def _follows(earlier: Count, later: Count) -> bool:
    return later.seconds >= earlier.seconds and all(
        later.histogram.counts.get(value, 0) >= count
        for value, count in earlier.histogram.counts.items()
    )


def _marks(counts: Sequence[Count]) -> list[Count]:
    """Return the counts to cut at, from nothing to the last one."""
    if not counts:
        return []
    ends = [0.0, *(count.seconds for count in counts)]
    longest = max(second - first for first, second in pairwise(ends))
    marks = [Count(0.0, (), 0, Histogram(), 0.0, 0.0, 0.0)]
    for count in counts:
        if count.seconds - marks[-1].seconds >= SHORTEST * longest:
            marks.append(count)
    if len(marks) > 1:
        marks[-1] = counts[-1]
    return marks


def _between(first: Count, second: Count) -> Window:
    return Window(
        seconds=second.seconds - first.seconds,
        ios=max(0, second.ios - first.ios),
        bytes=max(0, second.bytes - first.bytes),
        histogram=second.histogram.minus(first.histogram),
        user=max(0.0, second.user - first.user),
        system=max(0.0, second.system - first.system),
    )
