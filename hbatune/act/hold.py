"""Which targets a run is switching back and forth, so that nobody "repairs" them meanwhile.

A process that does so keeps one small file named after its pid, with the ids of its targets. The
folder is on a memory file system; the hold of a process that is gone holds nothing.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from hbatune.act import files
from hbatune.errors import HbatuneError
from hbatune.workers import Process, this_process


class Hold(msgspec.Struct, frozen=True):
    """A process and the ids of what it is switching."""

    process: Process
    ids: tuple[str, ...]


class HoldError(HbatuneError):
    """It cannot be said which targets are held, so nothing is switched."""


class Held:
    """This process's own hold on some targets."""

    def __init__(self, folder: Path, ids: Iterable[str]) -> None:
        self._path = folder / str(os.getpid())
        self._ids = tuple(dict.fromkeys(ids))

    def take(self) -> None:
        """Say that the targets are held. HoldError where that cannot be written."""
        try:
            files.replace(self._path, msgspec.json.encode(Hold(this_process(), self._ids)))
        except OSError as error:
            raise HoldError(
                f"{self._path} cannot be written: {error.strerror}",
                hint="what was applied stays; without --verify nothing is switched",
            ) from error

    def release(self) -> None:
        """Let them go."""
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
            yield msgspec.json.decode(path.read_bytes(), type=Hold)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            continue  # gone just now, or written by somebody else
