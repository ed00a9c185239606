"""Lets bpftrace measure latencies for as long as it runs, and keeps the last intervals in a file.

bpftrace takes 100 MiB, so this is a process of its own, which has to be asked for.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hbatune.act import files
from hbatune.errors import HbatuneError, UsageError
from hbatune.policy.config import WatchConfig
from hbatune.render import render
from hbatune.watch import buckets
from hbatune.watch.latency import Interval, Latencies, Lines

FORGET = 60
"""Intervals after which what never completed is forgotten."""

_KEYS = ("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS")  # up to 0.19, and from 0.20 on


class CollectError(HbatuneError):
    """bpftrace could not measure, or ended by itself."""


def script(seconds: int) -> str:
    """Return the script that measures, with intervals of so many seconds."""
    return render(
        "templates", "latency.bt.j2", seconds=seconds, forget=FORGET * seconds, bits=buckets.BITS
    )


def collect(path: Path, config: WatchConfig) -> None:
    """Keep what bpftrace measures in the file until it ends, which only a signal makes it do.

    The file goes with it. Raises ``UsageError`` where there is no bpftrace, ``CollectError`` where
    it ended, with its own words on standard error.
    """
    bpftrace = shutil.which("bpftrace")
    if bpftrace is None:
        raise UsageError("bpftrace is not installed", hint="install the package bpftrace")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    running = subprocess.Popen(
        [bpftrace, "-f", "json", "-e", script(config.latency_seconds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, **dict.fromkeys(_KEYS, str(config.latency_keys))},
    )
    try:
        assert running.stdout is not None
        follow(running.stdout, lambda data: files.publish(path, data, mode=0o600))
        status = running.wait()
    finally:
        running.terminate()
        running.wait()
        path.unlink(missing_ok=True)
    raise CollectError(f"bpftrace ended with status {status}")


def follow(
    lines: Iterable[bytes],
    publish: Callable[[bytes], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Publish the last intervals, encoded, each time that one has ended."""
    taken, known, began = Lines(), Latencies(), clock()
    for line in lines:
        counts = taken.take(line)
        if counts is not None:
            ended = clock()
            known = known.and_then(Interval(ended, ended - began, counts))
            publish(msgspec.json.encode(known))
            began = ended
