"""Locks: one hbatune at a time changes the machine, and the daemon leaves held targets alone.

``Lock`` keeps a second run, or a second daemon, out. ``Held`` names the targets that a run is
switching back and forth, so that the daemon does not repair them: one small file for each process,
with the ids of its targets, on a memory file system. The file of a process that has ended holds
nothing.
"""

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError, LockedError, UsageError
from hbatune.loader import UnusableFileError
from hbatune.processes import command_and_start
from hbatune.workers import Process, this_process

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux (fcntl.h)
_held: set[Path] = set()
"""The locks that this process holds. Closing any descriptor of such a file releases its lock
(fcntl(2)), so a second one must never be opened."""


class Lock:
    """A POSIX record lock on a file; LockedError where another process holds it.

    ``does`` says in the error's message what the holder does, and ``hint`` what to do then.

    A forked worker does not inherit such a lock (fcntl(2)), so that one stuck in the kernel cannot
    keep the next run out.
    """

    def __init__(
        self, path: Path, does: str = "is changing this machine", *, hint: str | None = None
    ) -> None:
        self._path = path
        self._does, self._hint = does, hint
        self._descriptor = -1

    def __enter__(self) -> Self:
        if self._path in _held:
            raise RuntimeError(f"{self._path} is locked by this process already")
        self._open()
        # The name may lead to another file by now: an uninstallation has removed the one that was
        # opened. A lock on that would exclude nobody.
        while not (self._taken() and self._has_its_name()):
            holder = self._holder()
            if holder is not None:
                os.close(self._descriptor)
                since = command_and_start(holder)
                raise LockedError(holder, self._does, since=since, hint=self._hint)
            if not self._has_its_name():
                os.close(self._descriptor)
                self._open()
        _held.add(self._path)
        return self

    def _open(self) -> None:
        try:
            files.make_folder(self._path.parent)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"the lock {self._path} cannot be made: {error.strerror}",
                hint="run it as root",
            ) from error

    def _has_its_name(self) -> bool:
        """Return whether the path still leads to the opened file. By stat(2): closing a second
        descriptor would release the lock."""
        try:
            named = os.stat(self._path)
        except OSError:
            return False
        return os.path.samestat(named, os.fstat(self._descriptor))

    @property
    def name(self) -> str:
        """The name of its file."""
        return self._path.name

    def remove(self) -> None:
        """Remove the file of the held lock, and its folder if that is empty then.

        After all other state: from now on another process may take a lock of that name.
        """
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self._path.parent.rmdir()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _held.discard(self._path)
        os.close(self._descriptor)

    def _taken(self) -> bool:
        try:
            # Not flock(2): a forked child shares such a lock, and holds it as long as it lives.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # fcntl(2): either
            return False
        return True

    def _holder(self) -> int | None:
        """Return who holds it, 0 for a process in another container; None where it is free now."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else int(pid)


class Hold(msgspec.Struct, frozen=True):
    """A process and the ids of the targets that it is switching."""

    process: Process
    ids: tuple[str, ...]


class HoldError(HbatuneError):
    """The held targets cannot be recorded, so nothing is switched."""


class Held:
    """This process's hold on some targets."""

    def __init__(self, folder: Path, ids: Iterable[str]) -> None:
        self._path = folder / str(os.getpid())
        self._ids = tuple(dict.fromkeys(ids))

    def take(self) -> None:
        """Record the targets as held. HoldError where the file cannot be written."""
        try:
            files.replace(self._path, msgspec.json.encode(Hold(this_process(), self._ids)))
        except OSError as error:
            raise HoldError(
                f"{self._path} cannot be written: {error.strerror}",
                hint="what was applied stays; without --verify nothing is switched",
            ) from error

    def release(self) -> None:
        """End the hold."""
        self._path.unlink(missing_ok=True)


def held(folder: Path) -> frozenset[str]:
    """Return the ids that living processes hold."""
    return frozenset(id for each in _holds(folder) if each.process.alive() for id in each.ids)


def _holds(folder: Path) -> Iterator[Hold]:
    try:
        paths = sorted(folder.iterdir())
    except (FileNotFoundError, PermissionError):
        return
    for path in paths:
        try:
            yield loader.load(path, Hold, loader.SMALL)
        except (OSError, UnusableFileError):
            continue  # released meanwhile, or another program's file
