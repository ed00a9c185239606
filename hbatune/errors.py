"""The exceptions that stop a command, and the exit codes of all commands.

The exceptions carry data; ``cli`` turns them into text. Help, man page and docs/exit-codes.md show
the table of exit codes.
"""

import errno
import os
from enum import Enum, IntEnum


class HbatuneError(Exception):
    """A failure that ends the command with a message: the event, its target, and the reason.

    ``hint`` is the remedy; ``exit_code`` follows the contract in the README.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HbatuneError):
    """A wrong option, target or profile, a bad configuration, or a missing permission."""

    exit_code = 2


class LockRole(Enum):
    """The role of a lock's holder: its action, and the remedy for a process that needs the lock."""

    RUN = "is changing this machine", None
    DAEMON = "is the daemon of this machine", "`hbatune status` says how it is doing"
    LAST_DAEMON = (
        "is a daemon that still runs",
        "end that process, then run `hbatune uninstall` again",
    )


class LockedError(HbatuneError):
    """Another hbatune is running.

    ``pid`` is its process, or 0 if it is in another container. ``holder`` is its command and start
    time, if known, ``consequence`` a further statement of the message.
    """

    exit_code = 3

    def __init__(
        self,
        pid: int,
        role: LockRole = LockRole.RUN,
        *,
        holder: str = "",
        consequence: str = "",
        hint: str | None = None,
    ) -> None:
        location = f"process {pid}" if pid else "in another container"
        if holder:
            location = f"{location}: {holder}"
        does, remedy = role.value
        message = f"another hbatune ({location}) {does}{consequence}"
        super().__init__(message, hint=hint or remedy)
        self.pid = pid
        self.role = role
        self.holder = holder


def suggest_remedy(error: OSError, path: object) -> str:
    """Return the remedy for a file that cannot be written, depending on the kernel's errno."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"free space on the file system of {path} (`df` and `df -i` show what is full)"
        case errno.EROFS:
            return f"the file system of {path} is read-only: remount it read-write"
        case errno.EACCES | errno.EPERM if os.geteuid():
            return "run it as root"
        case errno.EACCES | errno.EPERM:
            return f"root may not write it: check `lsattr` and the security policy of {path}"
        case errno.EMFILE | errno.ENFILE:
            return "raise the limit of open files (`ulimit -n`)"
        case _:
            return f"check the file system of {path} and the kernel log"


class ExitCode(IntEnum):
    """An exit code of hbatune, with the text of its ``meaning``."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> "ExitCode":
        """Create the code of this number."""
        code = int.__new__(cls, number)
        code._value_ = number
        code.meaning = meaning
        return code

    DONE = 0, "success: no drift and no findings"
    FOUND = (
        1,
        "`diff` or `audit` found drift, `audit` a host that it could not compare, `compare` a "
        "difference, `check`, `status` or `config check` something; a load is too large for the "
        "host, or has no figure (`size`). Or a part failed: a file was not read, a setting not set "
        "or not restored, a probe gave no results, a comparison had no pair of runs. Or a "
        "regression was reverted (or kept on request)",
    )
    USAGE = 2, "bad usage, bad configuration, or not permitted; nothing was written"
    LOCKED = 3, "another hbatune holds the lock, or is the daemon; a rollback is recorded anyway"
    NO_DAEMON = 4, "`status`: the daemon is not running"
    FAULT = 70, "internal error; the message explains how to report it"
    OUTPUT_FAILED = 74, "completed, but the output could not be written"
    NOT_THERE = 127, "with `-H`: there is no ssh here, or no hbatune on that host"
    READER_GONE = (
        141,
        "completed, but the reader of the output had exited, as in `hbatune list | head`",
    )
    NO_CONNECTION = 255, "with `-H`: ssh could not connect to the host"


def list_exit_codes() -> list[tuple[str, str]]:
    """Return each number with its meaning, in the order of the numbers."""
    return [(str(code.value), code.meaning) for code in sorted(ExitCode)]
