"""Latencies of I/Os, sampled by traces of the block layer, and the daemon's file for `watch`."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, json

from hbatune import loader
from hbatune.act import files
from hbatune.act.block_trace import BlockTrace, pair_requests
from hbatune.probe.result import Histogram

SCHEMA = "hbatune.latency/2"
KEPT_INTERVALS = 4  # intervals
FRESH_INTERVALS = 3  # intervals after which the last one is too old to describe the present
SAMPLE_S, PERIOD_S = 2.0, 15.0
"""Seconds of a sample, and from its begin to the next one."""
RETRY_S = 900.0
"""Seconds to wait after the kernel has forbidden a trace."""
Counts = dict[str, dict[loader.Count, loader.Count]]
"""I/Os by device (``8:0``) and rounded latency in microseconds."""


class Interval(Struct, frozen=True):
    """The I/Os of a sample, which represents its period; ``ended`` is in monotonic seconds."""

    ended: loader.Figure
    seconds: loader.Seconds
    counts: Counts


class Latencies(Struct, frozen=True):
    """The last intervals, the latest last."""

    intervals: tuple[Interval, ...] = ()
    schema: str = SCHEMA


def load_latencies(path: Path) -> Latencies:
    """Return the content of the file, or no intervals if it is missing or unreadable."""
    latencies = loader.load_or(path, Latencies(), loader.STATE_BOUNDS, Latencies)
    return latencies if latencies.schema == SCHEMA else Latencies()


def select_intervals(
    intervals: Sequence[Interval], first: float, last: float
) -> tuple[Interval, ...]:
    """Return the intervals that ended in this span, or the latest one unless it is too old."""
    ended = tuple(interval for interval in intervals if first < interval.ended <= last)
    if ended:
        return ended
    for interval in reversed(intervals):
        if last - FRESH_INTERVALS * interval.seconds <= interval.ended <= last:
            return (interval,)
    return ()


def make_histogram(intervals: Iterable[Interval], devices: Iterable[str]) -> Histogram:
    """Return the latencies on these devices in nanoseconds, as exact as ``round_latency``."""
    ios_by_latency: Counter[int] = Counter()
    for device in devices:
        for interval in intervals:
            ios_by_latency.update(interval.counts.get(device, {}))
    return Histogram({micros * 1000: ios for micros, ios in ios_by_latency.items()})


def round_latency(micros: int) -> int:
    """Return a latency rounded by at most 1.6 %, so a sample has few different ones."""
    shift = max(0, micros.bit_length() - 6)
    return (micros >> shift << shift) + (1 << shift >> 1)


class LatencySampler:
    """Samples latencies, 2 s of 15, and publishes them in the file ``path``, if any. Mutable.

    ``due`` is the time of the next step on the monotonic clock: a sample's begin, or its end.
    ``intervals`` are the last samples. ``problem`` is why no trace was possible, or None.
    """

    due: float
    intervals: tuple[Interval, ...]
    _is_tracing: bool

    def __init__(self, trace: BlockTrace, path: Path | None = None) -> None:
        self.problem: OSError | None = None
        self._trace, self._path, self._earliest = trace, path, 0.0
        self.close()  # an earlier process may have been killed

    def plan(self, current_time: float) -> None:
        """Plan the next sample, unless there is a plan."""
        if self.due == math.inf:
            self.due = max(current_time, self._earliest)

    def advance(self, current_time: float) -> None:
        """Begin or end a sample if it is due."""
        if current_time < self.due:
            return
        try:
            if self._is_tracing:
                self._store_sample(current_time)
                self._is_tracing, self.due = False, math.inf
            else:
                self._trace.start()
                self._is_tracing, self.problem = True, None
                self.due, self._earliest = current_time + SAMPLE_S, current_time + PERIOD_S
        except OSError as error:
            self.close()
            self.problem, self._earliest = error, current_time + RETRY_S

    def _store_sample(self, current_time: float) -> None:
        counts: Counts = defaultdict(Counter)
        for request in pair_requests(self._trace.stop()):
            latency = round_latency(request.completed - request.queued)
            counts[request.device.replace(",", ":")][latency] += 1
        sample = Interval(current_time, PERIOD_S, counts)
        self.intervals = (*self.intervals, sample)[-KEPT_INTERVALS:]
        if self._path is not None:
            files.publish(self._path, json.encode(Latencies(self.intervals)), mode=0o600)

    def close(self) -> None:
        """Remove the trace and the file."""
        self._trace.remove()
        self.due, self._is_tracing, self.intervals = math.inf, False, ()
        if self._path is not None:
            with suppress(OSError):
                files.remove(self._path)


class LatencyReader(LatencySampler):
    """Reads the daemon's samples (``is_daemon``), or samples itself if they are old. Mutable."""

    def __init__(self, trace: BlockTrace, daemon: Path) -> None:
        super().__init__(trace)
        self._daemon, self.is_daemon = daemon, False

    def read(self, current_time: float) -> tuple[Interval, ...]:
        """Return the last samples; begin or end a sample if it is due."""
        intervals = load_latencies(self._daemon).intervals
        self.is_daemon = bool(select_intervals(intervals, current_time, current_time))
        if not self.is_daemon:
            self.plan(current_time)
        self.advance(current_time)
        return intervals if self.is_daemon else self.intervals
