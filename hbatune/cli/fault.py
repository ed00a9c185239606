"""The message for an internal error or an interrupted command.

It tells an administrator the state of the machine and how to report the error. The traceback is
written to a file: a terminal may be closed, and other users may read a log.
"""

import errno
import os
import platform
import shlex
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeGuard

from hbatune import __version__
from hbatune.act import files, journal
from hbatune.act.paths import Paths
from hbatune.facts.assembly import read_boot_id
from hbatune.text.basic_output import format_count
from hbatune.workers import find_this_process

MAX_TRACEBACKS = 20
_NAME = "fault-*.txt"


def describe_crash(error: BaseException, arguments: Sequence[str]) -> list[str]:
    """Return a message on an internal error, with its traceback or the file that contains it."""
    trace = format_traceback(error)
    file = _save_traceback(arguments, trace)
    location = f"the traceback is in {file}" if file else "the traceback:"
    return [
        _make_summary(error),
        *describe_interrupted_run(),
        "please report it to those who gave you hbatune, with this command "
        f"(`{shlex.join(['hbatune', *arguments])}`)",
        f"and version ({__version__}); {location}",
        *([] if file else trace.splitlines()),
    ]


def format_traceback(error: BaseException) -> str:
    """Return the traceback that the interpreter would print."""
    return "".join(traceback.format_exception(error))


_OF_SYSTEM = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_OF_SYSTEM |= {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
"""Errors caused by a broken, full or read-only file system, or by a lack of resources."""


def is_of_system(error: Exception) -> TypeGuard[OSError]:
    """Return whether the system caused an error, and not a bug of hbatune."""
    return isinstance(error, OSError) and error.errno in _OF_SYSTEM


def describe_system_error(error: OSError) -> list[str]:
    """Return the lines of a message on a system error that no command handles."""
    problem = "a system call failed" if error.filename is None else f"cannot use {error.filename}"
    return [
        f"{problem}: {error.strerror}",
        *describe_interrupted_run(),
        "run the command again when the system has recovered",
    ]


def summarise_fault(error: BaseException, arguments: Sequence[str]) -> str:
    """Return a line on an internal error for a log, and write its traceback to a file."""
    file = _save_traceback(arguments, format_traceback(error))
    location = f"the traceback is in {file}" if file else "its traceback could be kept nowhere"
    return f"{_make_summary(error)}; {location}: please report it to those who gave you hbatune"


def describe_interrupted_run() -> list[str]:
    """Return lines on the state of the machine if this process was changing it, or no lines."""
    with suppress(Exception):  # this is part of another error's message
        recorded, _ = journal.load(Paths.journal, read_boot_id())
        run = recorded.run
        if run is not None and run.process == find_this_process():
            values = format_count(len(recorded.entries), "value")
            targets = format_count(len({entry.id for entry in recorded.entries}), "target")
            return [
                f"`{run.command}` was changing the machine: the journal has the original values, "
                f"{values} of {targets}",
                "`hbatune rollback` restores them, `hbatune apply` completes the change; "
                "`hbatune diff` shows the current values",
            ]
    return []


def _make_summary(error: BaseException) -> str:
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines() or ["unknown"]
    return f"internal error: {lines[-1]}"


def _save_traceback(arguments: Sequence[str], trace: str) -> str | None:
    """Write a report to a new file. Return its path, or None if no file can be written."""
    versions = f"Python {platform.python_version()}, Linux {platform.release()}"
    text = f"hbatune {__version__}, {versions}\ncommand: {shlex.join(['hbatune', *arguments])}\n"
    text += f"time: {time.strftime('%Y-%m-%d %H:%M:%S %z')}\n\n{trace}"
    data = text.encode("utf-8", "backslashreplace")
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    with suppress(OSError, RuntimeError):  # RuntimeError: this user has no home
        directory = _get_directory()
        # Workers may have several errors within a second.
        candidates = (directory / _NAME.replace("*", f"{stamp}-{number}") for number in count(1))
        path = next(candidate for candidate in candidates if not candidate.exists())
        files.replace(path, data)
        for old in sorted(directory.glob(_NAME))[:-MAX_TRACEBACKS]:
            old.unlink(missing_ok=True)
        return str(path)
    with suppress(OSError):
        import tempfile  # rarely needed, and it would cost the daemon memory

        descriptor, temporary = tempfile.mkstemp(prefix="hbatune-fault-", suffix=".txt")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return temporary
    return None


def _get_directory() -> Path:
    """Return the directory of reports: in root's state or the user's (XDG_STATE_HOME)."""
    if os.geteuid() == 0:
        return Paths.state / "log"
    configured = os.environ.get("XDG_STATE_HOME", "")
    # The specification ignores a path that is not absolute.
    state = Path(configured) if configured.startswith("/") else Path.home() / ".local" / "state"
    return state / "hbatune"
