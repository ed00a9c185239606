"""Keeps this machine's CPUs from sleeping while guests are timed.

A CPU that sleeps needs a while to wake up, and a guest's timers wake it thousands of times a
second: half of what 20 ms of scsi_debug took too long. What runs here yields to everything else.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_BUSY = ("chrt", "--idle", "0", "sh", "-c", "while :; do :; done")


@contextmanager
def awake() -> Iterator[None]:
    """Have every CPU busy with nothing. The kernel ends it with the thread that began it."""
    command = ("setpriv", "--pdeathsig", "KILL", "--", *_BUSY)
    running = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
