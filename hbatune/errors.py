"""The exceptions that stop a command, and the exit codes of all commands.

The exceptions that stop a command. They carry data; ``cli`` turns them into text.

The exit codes of all commands, in one table: help, man page and docs/exit-codes.md show it.
"""

import errno
import os
from enum import IntEnum


class HbatuneError(Exception):
    """A failure that ends the command with a message: what happened, to which target, and why.

    ``hint`` says what to do about it; ``exit_code`` follows the contract in the README.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HbatuneError):
    """A wrong option, target or profile, a bad configuration, or a missing permission."""

    exit_code = 2


class LockedError(HbatuneError):
    """Another hbatune is at work.

    ``pid`` is its process, 0 for one in another container, and ``does`` is what it does, for the
    message. ``holder`` are its command and start time, empty if unknown. ``consequence`` is a
    further statement of the message.
    """

    exit_code = 3

    def __init__(
        self,
        pid: int,
        does: str = "is changing this machine",
        *,
        holder: str = "",
        consequence: str = "",
        hint: str | None = None,
    ) -> None:
        where = f"process {pid}" if pid else "in another container"
        if holder:
            where = f"{where}: {holder}"
        super().__init__(f"another hbatune ({where}) {does}{consequence}", hint=hint)
        self.pid = pid
        self.does = does
        self.holder = holder


def remedy(error: OSError, path: object) -> str:
    """Return the remedy for a file that cannot be written, by the kernel's reason."""
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
    """An exit code of hbatune, with its ``meaning`` in words."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> "ExitCode":
        """Make the code of this number."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.meaning = meaning
        return made

    DONE = 0, "done; no drift, nothing found, all is well"
    FOUND = (
        1,
        "`diff` or `audit` found drift, `compare` a difference, `check` or `status` something; a "
        "load is too much for the host (`size`); or not everything could be done: a file not read, "
        "a setting was not set or not put back, a probe gave no figures, a regression was reverted "
        "or, as asked, kept",
    )
    USAGE = 2, "bad usage, bad configuration, or not permitted; nothing was written"
    LOCKED = 3, "another hbatune holds the lock, or is the daemon; a rollback is recorded anyway"
    NO_DAEMON = 4, "`status`: the daemon is not running"
    FAULT = 70, "a fault of hbatune itself, with a message that says how to report it"
    OUTPUT_FAILED = 74, "all was done, and the output could not be written"
    NOT_THERE = 127, "with `-H`: there is no ssh here, or no hbatune on that host"
    READER_GONE = (
        141,
        "all was done, and what read the output has ended, as in `hbatune list | head`",
    )
    NO_CONNECTION = 255, "with `-H`: ssh could not connect to the host"


def exit_code_lines() -> list[tuple[str, str]]:
    """Return each number with its meaning, in the order of the numbers."""
    return [(str(code.value), code.meaning) for code in sorted(ExitCode)]
