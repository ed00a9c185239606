"""Runs bpftrace to measure latencies, and keeps the last intervals in a file for other processes.

bpftrace takes 100 MiB, so this is a separate process, which an administrator has to start.
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
from hbatune.watch import latency
from hbatune.watch.latency import Interval, Latencies, Lines

FORGET = 60
"""Intervals after which the map of I/Os in flight is cleared.

Some bio-based devices never report completions, and would fill it up.
"""

_KEYS = ("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS")  # up to 0.19, and from 0.20 on


class CollectError(HbatuneError):
    """bpftrace could not measure, or ended by itself."""


def bpftrace_script(seconds: int) -> str:
    """Return the bpftrace script, with intervals of so many seconds."""
    return render(
        "templates", "latency.bt.j2", seconds=seconds, forget=FORGET * seconds, bits=latency.BITS
    )


def collect(path: Path, config: WatchConfig) -> None:
    """Run bpftrace until a signal ends it, and keep its latest intervals in the file.

    The file is removed at the end. Raises ``UsageError`` where bpftrace is missing,
    ``CollectError`` where it ended by itself; its own messages go to standard error.
    """
    bpftrace = shutil.which("bpftrace")
    if bpftrace is None:
        raise UsageError("bpftrace is not installed", hint="install the package bpftrace")
    files.make_folder(path.parent)
    running = subprocess.Popen(
        [bpftrace, "-f", "json", "-e", bpftrace_script(config.latency_seconds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # Both names of the variable: each version of bpftrace ignores the other one.
        env={**os.environ, **dict.fromkeys(_KEYS, str(config.latency_keys))},
    )
    try:
        assert running.stdout is not None
        publish_intervals(running.stdout, lambda data: files.publish(path, data, mode=0o600))
        status = running.wait()
    finally:
        running.terminate()
        running.wait()
        # A file left behind would pass for current latencies.
        path.unlink(missing_ok=True)
    raise CollectError(f"bpftrace ended with status {status}")


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
