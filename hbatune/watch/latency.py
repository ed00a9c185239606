"""Latencies of all I/Os by bpftrace, or of the daemon's samples: their buckets and their file.

bpftrace takes 100 MiB, so an administrator has to start it, as a separate process. Other processes
read the file. It contains the last few intervals, so a reader with another interval misses none.
"""

import errno
import os
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, json

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError, UsageError
from hbatune.policy.config import WatchConfig
from hbatune.probe.result import Histogram

SCHEMA = "hbatune.latency/1"
KEPT_INTERVALS = 4  # intervals
FRESH_INTERVALS = 3  # intervals after which the last one is too old to describe the present
START_S = 120.0
"""Seconds for bpftrace to compile and attach its script. Then it prints after each interval."""
_MAP = "@latency"
_END = "end"
Bucket = Annotated[int, Meta(ge=0, le=64 << 5)]
"""The number of a bucket; the maximum is the bucket of 2**64 ns."""
Counts = dict[str, dict[Bucket, loader.Count]]
BUCKET_BITS = 5
"""Each octave has 2**BITS buckets of equal width; below 2**(BITS + 1) ns each is 1 ns wide.

The shipped script defines them. In bpftrace's own histograms each bucket is twice as wide as the
previous one, which is too coarse for a p99.
"""

FORGET_INTERVALS = 60
"""Intervals after which the map of I/Os in flight is cleared.

Some bio-based devices never report completions, and would fill it.
"""

_KEYS = ("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS")  # up to 0.19, and from 0.20 on


class Interval(Struct, frozen=True):
    """The counts of one interval: I/Os by device (``8:0``) and bucket.

    ``ended`` is in seconds of the monotonic clock, which all processes of a boot share. ``sampled``
    is whether only a part of the interval was measured.
    """

    ended: loader.Figure
    seconds: loader.Seconds
    counts: Counts
    sampled: bool = False


class Latencies(Struct, frozen=True):
    """The last intervals, the latest last."""

    intervals: tuple[Interval, ...] = ()
    schema: str = SCHEMA


class _Map(Struct, tag="map"):
    data: dict[str, dict[str, int]]


class _Printed(Struct, tag="printf"):
    data: str


_LINES = json.Decoder(_Map | _Printed)


def read_intervals(lines: Iterable[bytes]) -> Iterator[Counts]:
    """Yield the counts of each interval in bpftrace's ``-f json`` output, at the line that ends it.

    Other messages of bpftrace (probes attached, events lost) are skipped.
    """
    counts: Counts = {}
    for line in lines:
        try:
            message = _LINES.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(message, _Map):
            counts = parse_counts(message.data.get(_MAP, {}))
        elif message.data.strip() == _END:
            yield counts
            counts = {}


def load_latencies(path: Path) -> Latencies:
    """Return the content of the file, or no intervals if it is missing or unreadable."""
    latencies = loader.load_or(path, Latencies(), loader.STATE_BOUNDS, Latencies)
    return latencies if latencies.schema == SCHEMA else Latencies()


def parse_counts(printed: Mapping[str, int]) -> Counts:
    """Return a printed map, ``{"8388656,482": 3}``, by device and bucket.

    A device is its number in the kernel (include/linux/kdev_t.h: MINORBITS). Keys that cannot be
    parsed are skipped.
    """
    counts: Counts = {}
    for key, count in printed.items():
        device, _, bucket = key.partition(",")
        if device.isdecimal() and bucket.isdecimal():
            major, minor = divmod(int(device), 1 << 20)
            counts.setdefault(f"{major}:{minor}", {})[int(bucket)] = count
    return counts


def select_intervals(
    intervals: Sequence[Interval], first: float, last: float
) -> tuple[Interval, ...]:
    """Return the intervals that ended after ``first`` and by ``last``.

    If none did, since they are longer than that span, return the latest, unless it is too old.
    """
    ended = tuple(interval for interval in intervals if first < interval.ended <= last)
    if ended:
        return ended
    for interval in reversed(intervals):
        if last - FRESH_INTERVALS * interval.seconds <= interval.ended <= last:
            return (interval,)
    return ()


def make_histogram(intervals: Iterable[Interval], devices: Iterable[str]) -> Histogram:
    """Return the latencies on these devices in nanoseconds, as exact as the buckets."""
    ios_by_bucket: Counter[int] = Counter()
    for device in devices:
        for interval in intervals:
            ios_by_bucket.update(interval.counts.get(device, {}))
    histogram = {}
    for bucket, ios in ios_by_bucket.items():
        low, beyond = get_bucket_bounds(bucket)
        histogram[(low + beyond) // 2] = ios
    return Histogram(histogram)


def get_bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the lowest latency of a bucket and of the next one, in nanoseconds."""
    shift = max(0, (bucket >> BUCKET_BITS) - 1)
    low = (bucket - (shift << BUCKET_BITS)) << shift
    return low, low + (1 << shift)


def find_bucket(ns: int) -> int:
    """Return the bucket of a latency in nanoseconds."""
    shift = (ns >> (BUCKET_BITS + 1)).bit_length()
    return (shift << BUCKET_BITS) + (ns >> shift)


class CollectError(HbatuneError):
    """bpftrace could not measure, or ended by itself."""


def format_script(seconds: int) -> str:
    """Return the bpftrace script, with intervals of ``seconds`` seconds."""
    from hbatune.render import render_template  # the daemon makes no script

    values = {"seconds": seconds, "forget": FORGET_INTERVALS * seconds, "bits": BUCKET_BITS}
    return render_template("templates", "latency.bt.j2", **values)


def collect_latencies(path: Path, config: WatchConfig) -> None:
    """Run bpftrace until a signal ends it, and store its latest intervals in the file.

    The file is removed at the end. Raises ``UsageError`` if bpftrace is missing, and
    ``CollectError`` if it cannot be started, has ended by itself, or the file cannot be written.
    bpftrace's own messages go to standard error.
    """
    import shutil  # heavy, and the daemon, which shares this module, does not use them
    import subprocess

    from hbatune import children

    bpftrace = shutil.which("bpftrace")
    if bpftrace is None:
        raise UsageError("bpftrace is not installed", hint="install the package bpftrace")
    script = format_script(config.latency_seconds)
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
            hint="`bpftrace --version` must work; reinstalling the package bpftrace may help",
        ) from error
    try:
        assert running.stdout is not None
        files.make_folder(path.parent)
        patience = START_S + FRESH_INTERVALS * config.latency_seconds
        lines = _read_lines(running.stdout.fileno(), patience)
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
            hint="free disk space or make it writable: other programs read the latencies there",
        ) from error
    finally:
        children.stop(running)
        # A stale file would look like current latencies.
        with suppress(OSError):
            path.unlink()
    end = None
    if status is not None:
        end = f"status {status}" if status >= 0 else f"signal {-status}"
    raise CollectError(
        f"bpftrace ended with {end or 'its output, and did not exit'}",
        hint="its own message is above; it needs root and a kernel with BTF (/sys/kernel/btf)",
    )


def _read_lines(descriptor: int, seconds: float) -> Iterator[bytes]:
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


def publish_intervals(
    lines: Iterable[bytes],
    publish: Callable[[bytes], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Publish the last intervals, encoded, at the end of each interval."""
    began = clock()
    intervals: tuple[Interval, ...] = ()
    for counts in read_intervals(lines):
        ended = clock()
        intervals = (*intervals, Interval(ended, ended - began, counts))[-KEPT_INTERVALS:]
        publish(json.encode(Latencies(intervals)))
        began = ended
