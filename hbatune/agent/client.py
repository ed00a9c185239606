"""Commands' access to the daemon: find it, wake it, and wait for its pass to end."""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from hbatune import loader
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.errors import LockedError
from hbatune.processes import find_parent
from hbatune.workers import Process

DAEMON_WAIT_S = 60.0
"""Seconds to wait for the daemon's passes: the first pass after boot may take long."""
LOCK_RETRY_S = 0.02
"""Seconds after which the lock is tried again: a pass on one disk has ended by then."""


class _Status(Struct, frozen=True):
    """The field of the daemon's status that identifies its process."""

    process: Process


def find_daemon(path: Path) -> Process | None:
    """Return the running daemon of a status file, or None, also if the file is unreadable."""
    status = loader.load_or(path, None, loader.STATE_BOUNDS, _Status)
    return status.process if status is not None and status.process.alive() else None


def reload_daemon(path: Path) -> None:
    """Make a running daemon reload the configuration and scan everything."""
    process = find_daemon(path)
    if process is not None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGHUP)


@contextmanager
def take_lock_after_pass() -> Iterator[Lock]:
    """Take the lock as soon as the daemon's current pass has ended.

    Raises LockedError if another command holds it, or the daemon for more than ``DAEMON_WAIT_S``.
    """
    deadline = time.monotonic() + DAEMON_WAIT_S
    lock = Lock(Paths.lock, spare=Paths.lock_spare)
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock)
                break
            except LockedError as error:
                remaining = deadline - time.monotonic()
                # Wait only for a pass of the daemon, which ends soon. Another command may run for
                # hours.
                if remaining <= 0 or not (_has_ended(error.pid) or _is_pass_process(error.pid)):
                    raise
                # Its process may stay and wait for the next event, so retry the lock regularly.
                _wait_for_end(error.pid, min(remaining, LOCK_RETRY_S))
        yield lock


def _has_ended(pid: int) -> bool:
    return pid > 0 and not os.path.exists(f"/proc/{pid}")


def _is_pass_process(pid: int) -> bool:
    """Return whether the daemon started a process for a pass."""
    process = find_daemon(Paths.status)
    return process is not None and find_parent(pid) == process.pid


def _wait_for_end(pid: int, seconds: float) -> None:
    with suppress(ProcessLookupError), loader.close_on_exit(os.pidfd_open(pid)) as descriptor:
        select.select([descriptor], [], [], seconds)
