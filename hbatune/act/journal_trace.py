"""The trace of the journal: the sequence number of its last state, on the memory file system.

A journal that is missing, or has a lower number, has lost original values of this boot. The trace
is written after the journal is durable, so it may lag and never lead. A trace that cannot be
written or read proves nothing, and causes no error.
"""

import os
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from hbatune import loader
from hbatune.act import files
from hbatune.loader import UnusableFileError


def next_sequence() -> int:
    """Return a number that is higher than all before it in this boot."""
    # Nanoseconds since boot, suspend included (clock_gettime(2)): no counter has to be read first,
    # and no state that a restored backup brings back can be as high.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@lru_cache(maxsize=8)
def trace_of(journal: Path) -> Path:
    """Return the path of the trace: below /run for a journal below /var/lib, else next to it."""
    return Path(str(journal.with_suffix(".sequence")).replace("/var/lib/", "/run/"))


def read(journal: Path, boot_id: str) -> int | None:
    """Return the sequence number of the journal's last state in this boot, or None if unknown."""
    with suppress(OSError, UnusableFileError, ValueError):
        boot, _, number = loader.read_bytes(trace_of(journal), 4096).rpartition(b" ")
        if boot == boot_id.encode():
            return int(number)
    return None


def write(journal: Path, boot_id: str, sequence: int) -> None:
    """Write the number of the state that was just made durable; a failure is ignored."""
    trace, data = trace_of(journal), b"%b %020d\n" % (boot_id.encode(), sequence)
    with suppress(OSError):
        try:
            # In place: a full file system takes no second file.
            descriptor = os.open(trace, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            files.make_folder(trace.parent)
            files.publish(trace, data, mode=files.READABLE)
            return
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)


def remove(journal: Path) -> bool:
    """Remove the trace before an empty journal is removed; return whether it is absent now."""
    try:
        trace_of(journal).unlink(missing_ok=True)
    except OSError:
        return False
    return True
