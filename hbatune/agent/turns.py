"""Taking turns with the daemon: its passes are short, and nobody should be told to come again."""

import os
import select
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from hbatune.act import paths
from hbatune.act.lock import Lock
from hbatune.agent.running import daemon
from hbatune.errors import LockedError

PATIENCE = 60.0
"""Seconds in which the passes of a daemon are waited for: one after a boot may take long."""


class Turn:
    """The lock, after a pass of the daemon that is under way.

    LockedError where anybody else holds it, or the daemon does for too long.
    """

    def __init__(self) -> None:
        self._lock = Lock(paths.LOCK)

    def __enter__(self) -> Self:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._lock.__enter__()
            except LockedError as error:
                left = until - time.monotonic()
                if error.pid is None or left <= 0 or not _makes_a_pass(error.pid):
                    raise
                _wait_for_end(error.pid, left)
            else:
                return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, trace)


def _makes_a_pass(pid: int) -> bool:
    """Whether a process is one that the daemon has started for a pass."""
    found = daemon(paths.STATUS)
    with suppress(OSError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
        parent = int(file.read().rpartition(b")")[2].split()[1])  # proc(5)
        return found is not None and parent == found.pid
    return False


def _wait_for_end(pid: int, seconds: float) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)
