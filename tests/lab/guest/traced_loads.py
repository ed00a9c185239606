"""Loads of fio that a capture records, and the figures of a trace."""

import hashlib
import subprocess
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

from msgspec import Struct

from hbatune.probe.trace_file import Trace, load_trace
from tests.lab.guest.command import Done, Forked, hbatune
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.values import cat

SERVICE_NS = 10_000_000
"""So long that an emulated CPU's own delays are a small part of a latency."""
LOADS = {
    "steady": ("--rw=randread", "--iodepth=16", "--rate_iops=300", "--rate_process=poisson"),
    "closed": ("--rw=randread", "--iodepth=8"),
    "mixed": ("--rw=randrw", "--iodepth=32", "--rate_iops=200,80", "--rate_process=poisson"),
    "bursts": ("--rw=randread", "--iodepth=16", "--thinktime=100ms", "--thinktime_blocks=32"),
}
PAUSE_US = 200_000
"""fio waits longer before a replay, and no load pauses for so long."""
LOCK = Path("/run/hbatune/trace.lock")


class TraceFigures(Struct, frozen=True):
    """The rate of a trace, percentiles in ms, and the shares of I/Os by the number in flight."""

    iops: float
    p50_ms: float
    p99_ms: float
    depths: dict[int, float]


def make_twins(loader: Callable[..., list[str]]) -> list[str]:
    """Return two equal disks."""
    return loader(delay=0, ndelay=SERVICE_NS, dev_size_mb=64, max_luns=2, max_queue=64)


def capture_load(disk: str, load: tuple[str, ...], file: Path, seconds: int) -> Trace:
    """Return the trace of this load on the disk."""
    shape = ("--bs=4k", "--direct=1", "--ioengine=libaio", "--thread", "--runtime=600")
    fio = ("fio", "--name=load", f"--filename=/dev/{disk}", "--time_based", *shape, *load)
    running = subprocess.Popen(fio, stdout=subprocess.DEVNULL)
    try:
        while sum(map(int, cat(disk, "stat").split()[:5:4])) < 100:  # reads and writes
            assert running.poll() is None
            wait_a_moment()
        done = hbatune("capture", disk, str(file), "--seconds", str(seconds), "--force")
        assert done.code == 0, done.out + done.err
    finally:
        running.kill()
        running.wait()
    return load_trace(file)


def replay_trace(file: Path, disk: str, copy: Path, *words: str) -> tuple[Done, Trace]:
    """Replay the trace on the disk; return the outcome, and a trace of the replay."""
    seconds = round(load_trace(file).header.seconds) + 5
    capturing = Forked("capture", disk, str(copy), "--seconds", str(seconds), "--force")
    while not LOCK.exists():
        wait_a_moment()
    done = hbatune("probe", "--trace", str(file), "--json", *words, disk)
    captured = capturing.wait()
    assert captured.code == 0, captured.err
    assert done.code == 0, done.out + done.err
    return done, load_trace(copy)


def select_replay(trace: Trace, count: int) -> Trace:
    """Return the replay of ``count`` I/Os in a trace: hbatune and udev read before and after.

    It begins the longest part without a pause. The part with the most I/Os would begin and end with
    a complete burst, unlike the original.
    """
    arrivals = trace.arrivals_us
    starts = [0]
    for number, (earlier, later) in enumerate(pairwise(arrivals), 1):
        if later - earlier > PAUSE_US:
            starts.append(number)
    parts = [slice(*ends) for ends in pairwise([*starts, len(arrivals)])]
    longest = max(parts, key=lambda part: part.stop - part.start)
    replay = slice(longest.start, min(longest.start + count, longest.stop))
    return Trace(trace.header, *(column[replay] for column in trace.columns))


def measure_trace(trace: Trace) -> TraceFigures:
    """Return the figures of a trace, between its first and its last arrival."""
    arrivals, latencies = trace.arrivals_us, trace.latencies_us
    percentiles = quantiles(latencies, n=100)
    ends = sorted(map(int.__add__, arrivals, latencies))
    depths, ended = Counter[int](), 0
    for number, arrival in enumerate(arrivals, 1):
        while ends[ended] <= arrival:
            ended += 1
        depths[number - ended] += 1
    shares = {depth: count / len(arrivals) for depth, count in depths.items()}
    rate = (len(arrivals) - 1) * 1e6 / (arrivals[-1] - arrivals[0])
    return TraceFigures(rate, percentiles[49] / 1000, percentiles[98] / 1000, shares)


def compare_depths(first: dict[int, float], second: dict[int, float]) -> float:
    """Return the fraction of the I/Os that would need another depth for equal shares."""
    depths = first.keys() | second.keys()
    return sum(abs(first.get(depth, 0) - second.get(depth, 0)) for depth in depths) / 2


def hash_disk(disk: str) -> str:
    """Return the digest of a whole disk."""
    with open(f"/dev/{disk}", "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
