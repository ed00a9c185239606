"""A file to probe where no free disk is: without a name, so that nothing is left of it, ever."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from hbatune.errors import UsageError

LARGEST = 1 << 30
"""Bytes of a file; a probe of seconds does not come around it twice."""
LEAST = 64 << 20
SHARE = 10
"""Of what is free, one in so many may be taken: nobody else is to run out of space."""

_BLOCK = 1 << 20


class ScratchFile(Struct, frozen=True):
    """The file, by a path through which this process's programs reach it; bytes."""

    path: str
    size: int


@contextmanager
def scratch_file(
    folder: Path, *, largest: int = LARGEST, least: int = LEAST
) -> Iterator[ScratchFile]:
    """Make a file of random bytes in the folder; it goes with the process, however that ends.

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
        yield ScratchFile(f"/proc/{os.getpid()}/fd/{descriptor}", size)
    finally:
        os.close(descriptor)


def _unnamed(folder: Path) -> int:
    """Open a file without a name; not every filesystem has such (open(2): O_TMPFILE)."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    descriptor, name = tempfile.mkstemp(prefix=".hbatune-", dir=folder)
    os.unlink(name)
    return descriptor


def _fill(descriptor: int, size: int, folder: Path) -> None:
    """Write random bytes: zeros may be stored as nothing, and be read from nowhere."""
    try:
        for _ in range(size // _BLOCK):
            os.write(descriptor, os.urandom(_BLOCK))
        os.fsync(descriptor)
    except OSError as error:
        raise UsageError(f"{str(folder)!r} could not be filled: {error.strerror}") from error
