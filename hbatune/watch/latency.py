"""Latencies measured by bpftrace, which a separate process runs: its output, its buckets, the file.

bpftrace takes 100 MiB, so an administrator has to start that process. The file is for the others:
it holds the last few intervals, so that a reader at another pace misses none. The buckets are
those of the shipped script, at most 1/32 wide: in bpftrace's own histograms each bucket is twice
as wide as the one before, which is too coarse for a p99.
"""

import errno
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, json

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError, UsageError
from hbatune.loader import Count, Figure, Seconds, UnusableFileError
from hbatune.policy.config import WatchConfig
from hbatune.probe.result import Histogram, merge_histograms

SCHEMA = "hbatune.latency/1"
KEPT = 4  # intervals
FRESH = 3  # intervals after which the last one is too old to describe the present
START_S = 120.0
"""Seconds for bpftrace to compile and attach its script. Then it prints after each interval."""
_MAP = "@latency"
_END = "end"
Bucket = Annotated[int, Meta(ge=0, le=64 << 5)]
"""The number of a bucket; the greatest is that of 2**64 ns."""
Counts = dict[str, dict[Bucket, Count]]
BITS = 5
"""Each octave has 2**BITS buckets of equal width; below 2**(BITS + 1) ns each is 1 ns wide."""

FORGET = 60
"""Intervals after which the map of I/Os in flight is cleared.

Some bio-based devices never report completions, and would fill it up.
"""

_KEYS = ("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS")  # up to 0.19, and from 0.20 on


class Interval(Struct, frozen=True):
    """The counts of one interval: I/Os by device (``8:0``) and bucket.

    ``ended`` is in seconds of the monotonic clock, which all processes of a boot share.
    """

    ended: Figure
    seconds: Seconds
    counts: Counts


class Latencies(Struct, frozen=True):
    """The last intervals, the newest last."""

    intervals: tuple[Interval, ...] = ()
    schema: str = SCHEMA

    def and_then(self, interval: Interval) -> "Latencies":
        """Return the intervals with one more, without the oldest beyond ``KEPT``."""
        return Latencies((*self.intervals, interval)[-KEPT:])


class _Map(Struct, tag="map"):
    data: dict[str, dict[str, int]]


class _Printed(Struct, tag="printf"):
    data: str


_LINES = json.Decoder(_Map | _Printed)


class Lines:
    """Parses bpftrace's ``-f json`` output line by line. Mutable: it keeps the counts so far."""

    def __init__(self) -> None:
        self._counts: Counts = {}

    def take(self, line: bytes) -> Counts | None:
        """Return the counts of an interval at the line that ends it, None at all other lines.

        Other messages of bpftrace (probes attached, events lost) are skipped.
        """
        try:
            said = _LINES.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if isinstance(said, _Map):
            self._counts = parse_counts(said.data.get(_MAP, {}))
            return None
        if said.data.strip() != _END:
            return None
        counts, self._counts = self._counts, {}
        return counts


def load(path: Path) -> Latencies:
    """Return the content of the file; no intervals where it is missing or unreadable."""
    try:
        found = loader.load(path, Latencies, loader.OWN)
    except (OSError, UnusableFileError):
        return Latencies()
    return found if found.schema == SCHEMA else Latencies()


def parse_counts(printed: Mapping[str, int]) -> Counts:
    """Return a printed map, ``{"8388656,482": 3}``, by device and bucket.

    A device is the number by which the kernel knows it (include/linux/kdev_t.h: MINORBITS).
    Keys that cannot be parsed are skipped.
    """
    found: Counts = {}
    for key, count in printed.items():
        device, _, bucket = key.partition(",")
        if device.isdecimal() and bucket.isdecimal():
            major, minor = divmod(int(device), 1 << 20)
            found.setdefault(f"{major}:{minor}", {})[int(bucket)] = count
    return found


def intervals_between(
    intervals: Sequence[Interval], first: float, last: float
) -> tuple[Interval, ...]:
    """Return the intervals that ended after ``first`` and by ``last``.

    If none did, since they are longer than that span, return the newest, unless it is too old.
    """
    ended = tuple(interval for interval in intervals if first < interval.ended <= last)
    if ended:
        return ended
    before = [
        interval
        for interval in intervals
        if last - FRESH * interval.seconds <= interval.ended <= last
    ]
    return tuple(before[-1:])


def latency_histogram(intervals: Iterable[Interval], devices: Iterable[str]) -> Histogram:
    """Return the latencies on these devices in nanoseconds, as exact as the buckets."""
    wanted = tuple(devices)
    return merge_histograms(
        Histogram({bucket_middle(bucket): count for bucket, count in counts.items()})
        for interval in intervals
        for device in wanted
        if (counts := interval.counts.get(device))
    )


def bucket_number(ns: int) -> int:
    """Return the bucket of a latency in nanoseconds."""
    shift = (ns >> (BITS + 1)).bit_length()
    return (shift << BITS) + (ns >> shift)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the least latency of a bucket and that of the next one, in nanoseconds."""
    shift = max(0, (bucket >> BITS) - 1)
    low = (bucket - (shift << BITS)) << shift
    return low, low + (1 << shift)


def bucket_middle(bucket: int) -> int:
    """Return the latency in nanoseconds that stands for a bucket."""
    low, beyond = bucket_bounds(bucket)
    return (low + beyond) // 2


class CollectError(HbatuneError):
    """bpftrace could not measure, or ended by itself."""


def bpftrace_script(seconds: int) -> str:
    """Return the bpftrace script, with intervals of so many seconds."""
    from hbatune.render import render  # the daemon reads what was measured, and makes no script

    return render("templates", "latency.bt.j2", seconds=seconds, forget=FORGET * seconds, bits=BITS)


def collect(path: Path, config: WatchConfig) -> None:
    """Run bpftrace until a signal ends it, and keep its latest intervals in the file.

    The file is removed at the end. Raises ``UsageError`` where bpftrace is missing,
    ``CollectError`` where it cannot be started, has ended by itself, or the file cannot be
    written; its own messages go to standard error.
    """
    import shutil  # heavy, and the daemon, which shares this module, has no use for them
    import subprocess

    from hbatune import children

    bpftrace = shutil.which("bpftrace")
    if bpftrace is None:
        raise UsageError("bpftrace is not installed", hint="install the package bpftrace")
    script = bpftrace_script(config.latency_seconds)
    try:
        running = subprocess.Popen(
            [bpftrace, "-f", "json", "-e", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Both names of the variable: each version of bpftrace ignores the other one.
            env={**os.environ, **dict.fromkeys(_KEYS, str(config.latency_keys))},
            start_new_session=True,
        )
    except OSError as error:
        raise CollectError(
            f"{bpftrace} cannot be started: {error.strerror}",
            hint="`bpftrace --version` must work; installing the package bpftrace anew may help",
        ) from error
    try:
        assert running.stdout is not None
        files.make_folder(path.parent)
        lines = _lines(running.stdout.fileno(), START_S + FRESH * config.latency_seconds)
        publish_intervals(lines, lambda data: files.publish(path, data, mode=0o600))
        status = children.wait(running, children.GRACE_S)
    except TimeoutError as error:
        raise CollectError(
            f"bpftrace hangs: {error.strerror}",
            hint="`systemctl restart hbatune-latency` starts it again",
        ) from error
    except OSError as error:
        raise CollectError(
            f"{path} cannot be written: {error.strerror}",
            hint="make room or make it writable: others read the latencies there",
        ) from error
    finally:
        children.stop(running)
        # A file left behind would pass for current latencies.
        with suppress(OSError):
            path.unlink()
    raise CollectError(
        f"bpftrace ended with {_how(status)}",
        hint="its own message is above; it needs root and a kernel with BTF (/sys/kernel/btf)",
    )


def _lines(descriptor: int, seconds: float) -> Iterator[bytes]:
    """Yield the lines of a program's output; TimeoutError if it prints nothing for too long."""
    poll, line = select.poll(), b""
    poll.register(descriptor, select.POLLIN)
    while poll.poll(seconds * 1000):
        part = os.read(descriptor, 1 << 16)
        if not part:
            return
        *lines, line = (line + part).split(b"\n")
        yield from lines
    raise TimeoutError(errno.ETIMEDOUT, f"it printed nothing for {seconds:g} s")


def _how(status: int | None) -> str:
    """Return the end of a process in words; a negative status is the signal that ended it."""
    if status is None:
        return "its output, and did not exit"
    return f"status {status}" if status >= 0 else f"signal {-status}"


def publish_intervals(
    lines: Iterable[bytes],
    publish: Callable[[bytes], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Publish the last intervals, encoded, at the end of each interval."""
    taken, known, began = Lines(), Latencies(), clock()
    for line in lines:
        counts = taken.take(line)
        if counts is not None:
            ended = clock()
            known = known.and_then(Interval(ended, ended - began, counts))
            publish(msgspec.json.encode(known))
            began = ended
