"""The exceptions that stop a command. They carry data; ``cli`` turns them into text."""

import errno
import os


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
