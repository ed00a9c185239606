"""A file to probe where there is no free disk.

It has no name in the filesystem, so that even a crash leaves nothing behind.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from hbatune.errors import UsageError

LARGEST = 1 << 30
"""Bytes of the file: large enough that a probe of seconds does not read it twice."""
LEAST = 64 << 20
SHARE = 10
"""The file takes one part in so many of the free space, to leave room for all others."""

_BLOCK = 1 << 20


class ScratchFile(Struct, frozen=True):
    """The file: a path by which child processes reach it, and its size in bytes."""

    path: str
    size: int


@contextmanager
def scratch_file(
    folder: Path, *, largest: int = LARGEST, least: int = LEAST
) -> Iterator[ScratchFile]:
    """Make a file of random bytes in the folder; it vanishes with this process.

    UsageError where the folder cannot hold one.
    """
    try:
        free = os.statvfs(folder)
        size = min(largest, free.f_bavail * free.f_frsize // SHARE) // _BLOCK * _BLOCK
        if size < least:
            raise UsageError(
                f"{str(folder)!r} has too little free space for a file to probe",
                hint=f"a tenth of it has to be {least >> 20} MiB at least",
            )
        descriptor = _unnamed(folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{str(folder)!r} cannot hold a file to probe: {reason}") from error
    try:
        _fill(descriptor, size, folder)
        # With the pid: in fio, /proc/self would be fio's own.
        yield ScratchFile(f"/proc/{os.getpid()}/fd/{descriptor}", size)
    finally:
        os.close(descriptor)


def _unnamed(folder: Path) -> int:
    """Open a file without a name; not every filesystem supports O_TMPFILE (open(2))."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # EISDIR is the answer of kernels or filesystems that do not know the flag (open(2)).
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    import tempfile  # not for a daemon that starts, whose memory counts

    descriptor, name = tempfile.mkstemp(prefix=".hbatune-", dir=folder)
    os.unlink(name)
    return descriptor


def _fill(descriptor: int, size: int, folder: Path) -> None:
    """Write random bytes: a filesystem may store zeros as a hole and read them from nowhere."""
    try:
        for _ in range(size // _BLOCK):
            os.write(descriptor, os.urandom(_BLOCK))
        # Otherwise the probe would compete with the writeback of its own file.
        os.fsync(descriptor)
    except OSError as error:
        raise UsageError(f"{str(folder)!r} could not be filled: {error.strerror}") from error
