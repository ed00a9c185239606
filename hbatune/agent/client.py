"""The daemon as commands see it: whether it runs, waking it, and waiting for its pass to end."""

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from hbatune import loader
from hbatune.act import paths
from hbatune.act.lock import Lock
from hbatune.errors import LockedError
from hbatune.loader import UnusableFileError
from hbatune.workers import Process

PATIENCE = 60.0
"""Seconds to wait for the daemon's passes: the one after a boot may take long."""
AGAIN = 0.02
"""Seconds after which the lock is tried again: a pass over a disk has ended by then."""


class _Status(Struct, frozen=True):
    """The field of the daemon's status that identifies its process."""

    process: Process


def daemon(path: Path) -> Process | None:
    """Return the daemon with this status file, None where none runs or the file cannot be read."""
    try:
        found = loader.load(path, _Status, loader.OWN).process
    except (OSError, UnusableFileError):
        return None
    return found if found.alive() else None


def nudge(path: Path) -> None:
    """Have the running daemon, if there is one, read the configuration and look at everything."""
    found = daemon(path)
    if found is not None:
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGHUP)


class LockAfterPass:
    """The lock, taken as soon as a pass of the daemon that is under way has ended.

    Raises LockedError where another command holds it, or the daemon for more than ``PATIENCE``.
    """

    def __init__(self) -> None:
        self._lock = Lock(paths.LOCK, spare=paths.LOCK_SPARE)

    def __enter__(self) -> Lock:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._lock.__enter__()
            except LockedError as error:
                left = until - time.monotonic()
                # Only a pass of the daemon is waited for, since it ends soon; another command may
                # run for hours.
                if left <= 0 or not (_has_ended(error.pid) or _makes_a_pass(error.pid)):
                    raise
                # Its process may stay and wait for the next event, so that its end says nothing.
                _wait_for_end(error.pid, min(left, AGAIN))
            else:
                return self._lock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, trace)


def _has_ended(pid: int) -> bool:
    """Whether a process has ended since it was seen to hold the lock."""
    return pid > 0 and not os.path.exists(f"/proc/{pid}")


def _makes_a_pass(pid: int) -> bool:
    """Whether a process was started by the daemon for a pass."""
    found = daemon(paths.STATUS)
    with suppress(OSError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
        parent = int(file.read().rpartition(b")")[2].split()[1])  # proc(5)
        return found is not None and parent == found.pid
    return False


def _wait_for_end(pid: int, seconds: float) -> None:
    """Wait for a process to end, and so many seconds at most."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)
