"""Whether a daemon runs, and how to wake it: for commands that have nothing else to do with it."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hbatune.workers import Process


class _Status(Struct, frozen=True):
    """What of the daemon's status says which process it is."""

    process: Process


def daemon(path: Path) -> Process | None:
    """Return the daemon whose status this is, None where none runs or nobody may know."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Status).process
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.alive() else None


def nudge(path: Path) -> None:
    """Have the daemon that runs, if one does, look at the configuration and at everything now."""
    found = daemon(path)
    if found is not None:
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGHUP)
