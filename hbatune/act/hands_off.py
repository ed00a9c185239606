"""The record of rollbacks: targets that stay as they are until an apply lifts the rollback.

The daemon, the compiled udev rules and every apply obey it, whatever the configuration says. It is
written before anything is restored. A rollback of everything is an empty file, which takes no room
on a full disk; a second one on the memory file system holds for this boot even where the first
cannot be made. Single targets are listed in a file that room is reserved for.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.act.paths import HANDS_OFF_TARGETS, Paths
from hbatune.errors import HbatuneError
from hbatune.loader import UnusableFileError

ROOM = 4096
"""Bytes kept for the list of targets, beyond what the ids of the journal take."""


class HandsOff(Struct, frozen=True):
    """The targets that a rollback has taken out of hbatune's hands.

    ``everything`` is a rollback without targets; ``lifted`` are the ids that an apply has named
    since. ``ids`` are targets that were rolled back by name, until an apply names them. ``damaged``
    says that the list cannot be read, so that everything is left alone.
    """

    everything: bool = False
    ids: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()
    damaged: bool = False

    @property
    def whole(self) -> bool:
        """Whether the daemon may tune nothing at all."""
        return self.everything and not self.lifted

    def covers(self, id: str) -> bool:
        """Whether the daemon leaves this target alone."""
        return id in self.ids or (self.everything and id not in self.lifted)

    def with_targets(self, ids: Iterable[str]) -> "HandsOff":
        """Return the record after these targets were rolled back by name."""
        named = tuple(dict.fromkeys((*self.ids, *ids)))
        return replace(self, ids=named, lifted=_without(self.lifted, set(named)))

    def applied(self, named: Collection[str] | None) -> "HandsOff":
        """Return the record after an apply to everything, or to the ``named`` ids."""
        if named is None:
            return replace(self, everything=False, lifted=())
        lifted = (*self.lifted, *sorted(named)) if self.everything else ()
        return replace(self, ids=_without(self.ids, named), lifted=tuple(dict.fromkeys(lifted)))


class RecordError(HbatuneError):
    """The record cannot be made durable."""


class _Listed(Struct, frozen=True):
    """The content of the file of single targets."""

    ids: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()


def load(paths: Paths) -> HandsOff:
    """Return the record; where the list cannot be read, everything is left alone.

    A user without permission to read it gets an empty record.
    """
    try:
        # One mark is enough: on a full disk only the one in /run could be made.
        everything = any(path.exists() for path in _marks(paths))
        listed = loader.load(paths.hands_off_targets, _Listed, loader.OWN)
    except FileNotFoundError:
        return HandsOff(everything)
    # An ordinary user writes nothing, so that an empty record is safe there.
    except PermissionError:
        return HandsOff()
    except (OSError, UnusableFileError):
        return HandsOff(everything=True, damaged=True)
    return HandsOff(everything, listed.ids, listed.lifted)


def roll_back_everything(paths: Paths) -> None:
    """Record that everything is rolled back, for good and for this boot.

    Raises RecordError where the record does not outlive a reboot; for this boot it is made all the
    same.
    """
    problem: OSError | None = None
    for mark in reversed(_marks(paths)):  # /run first: it needs no disk
        try:
            _make(mark)
        except OSError as error:
            problem = error
    # Targets that an apply had lifted from an earlier rollback are rolled back again.
    known = load(paths)
    if known.lifted:
        with suppress(RecordError):  # then the daemon tunes them, and `rollback` says so
            _save(replace(known, lifted=()), paths)
    if problem is not None:
        raise RecordError(
            f"the rollback cannot be recorded in {paths.state}: {problem.strerror}",
            hint="make room or make it writable, and roll back again: after a reboot the daemon "
            "would tune once more",
        ) from problem


def save(record: HandsOff, paths: Paths) -> None:
    """Make the record durable. RecordError where that fails."""
    try:
        if record.everything:
            for mark in _marks(paths):
                _make(mark)
        else:
            for mark in _marks(paths):
                files.remove(mark)
    except OSError as error:
        raise _failure(error, paths) from error
    _save(record, paths)


def keep_room(folder: Path, ids: Iterable[str]) -> None:
    """Reserve the room in the state folder that a rollback of these ids by name may need.

    Raises OSError where there is none.
    """
    size = sum(len(msgspec.json.encode(id)) + 1 for id in ids)
    known = folder / HANDS_OFF_TARGETS.name
    size += known.stat().st_size if known.exists() else 0
    files.keep_room(known, size + ROOM)


def _save(record: HandsOff, paths: Paths) -> None:
    listed = _Listed(record.ids, record.lifted)
    try:
        if listed == _Listed():
            files.remove(paths.hands_off_targets)
        else:
            data = msgspec.json.encode(listed)
            files.replace(paths.hands_off_targets, data, mode=files.READABLE)
    except OSError as error:
        raise _failure(error, paths) from error


def _marks(paths: Paths) -> tuple[Path, Path]:
    return paths.hands_off, paths.hands_off_now


def _make(mark: Path) -> None:
    if not mark.exists():
        files.make_folder(mark.parent)
        mark.touch(mode=0o644, exist_ok=True)
        files.sync_folder(mark.parent)


def _without(ids: Iterable[str], gone: Collection[str]) -> tuple[str, ...]:
    return tuple(id for id in ids if id not in gone)


def _failure(error: OSError, paths: Paths) -> RecordError:
    return RecordError(
        f"the record of what was rolled back cannot be written: {error.strerror}",
        hint=f"make room in {paths.state}, or make it writable",
    )
