"""The exceptions that stop a command, and the exit codes of all commands.

The exceptions carry data; ``cli`` turns them into text.
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
    TRACE = "is tracing a disk", None
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
    """An exit code of hbatune. ``templates/messages.toml`` has the meanings."""

    DONE = 0
    FOUND = 1
    USAGE = 2
    LOCKED = 3
    NO_DAEMON = 4
    FAULT = 70
    OUTPUT_FAILED = 74
    NOT_THERE = 127
    READER_GONE = 141
    NO_CONNECTION = 255
