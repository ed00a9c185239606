"""One hbatune at a time changes a machine, and one daemon keeps it so."""

import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from hbatune.errors import LockedError, UsageError

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux (fcntl.h)


class Lock:
    """A POSIX record lock on a file; LockedError where another process holds it.

    ``does`` is what the holder of this lock does, for the message, and ``hint`` what to do then.

    A forked worker does not inherit such a lock (fcntl(2)), so that one stuck in the kernel
    cannot keep the next run out.
    """

    def __init__(
        self, path: Path, does: str = "is changing this machine", *, hint: str | None = None
    ) -> None:
        self._path = path
        self._does, self._hint = does, hint
        self._descriptor = -1

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"the lock {self._path} cannot be made: {error.strerror}",
                hint="run it as root",
            ) from error
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self._holder()
            os.close(self._descriptor)
            raise LockedError(holder, self._does, hint=self._hint) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def _holder(self) -> int | None:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked)
        return int(_FLOCK.unpack(answer)[4]) or None
