"""Marks of disks in this boot: scanned ones, and ones whose baselines udev rules have saved.

A disk that was not present in an earlier scan is new. Each disk that was tuned or scanned has an
empty file, its mark, in a directory on a memory file system. Marks are therefore of this boot, and
a udev rule can test for one (`TEST`). The mark is named after the disk's sequence number, which the
kernel gives to no other disk in the same boot (block/genhd.c: inc_diskseq), or else after its id.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.act.journal import Entry, Journal
from hbatune.errors import HbatuneError, suggest_remedy
from hbatune.facts.health import ErrorCounters
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.targets import list_targets
from hbatune.facts.udev import SavedTexts, read_saved_texts
from hbatune.settings.table import ASYNC_DEPTH, parse_saved_values


class MarkError(HbatuneError):
    """A mark cannot be written or removed. Other processes treat a device without one as new."""


def list_marks(machine: Machine) -> dict[str, str]:
    """Return, by id, the mark of every target on the machine."""
    marks = {}
    for id, target in list_targets(machine).items():
        # An id may contain slashes and be longer than a file name.
        number = target.diskseq
        marks[id] = f"id-{files.compute_digest(id.encode())}" if number is None else str(number)
    return marks


def find_unseen_targets(folder: Path, machine: Machine) -> frozenset[str]:
    """Return the ids of the new targets on the machine: those without a mark in the directory."""
    marks = list_marks(machine)
    existing = _find_marks(folder, marks.values())
    existing.update(path.name for path in _unwritten if path.parent == folder)
    return frozenset(id for id, mark in marks.items() if mark not in existing)


def remember_disks(
    folder: Path,
    machine: Machine,
    ids: Collection[str] | None = None,
    *,
    unfinished: Collection[str] = (),
) -> None:
    """Mark these targets, or all, as seen, except ``unfinished`` ones. Raises MarkError."""
    marks = list_marks(machine)
    chosen = marks.keys() if ids is None else marks.keys() & ids
    names = set(map(marks.__getitem__, chosen - set(unfinished)))
    wanted = names - _find_marks(folder, names)
    try:
        if wanted:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in wanted:
            (folder / name).touch(mode=0o600)
        if ids is None:  # only a full scan shows that a mark's disk no longer exists
            retained = frozenset(marks.values())
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name not in retained:
                        with suppress(FileNotFoundError):
                            os.unlink(entry.path)
    except OSError as error:
        _unwritten.update(map(folder.joinpath, wanted))
        message = f"disks cannot be marked as seen in {folder}: {error.strerror}"
        raise MarkError(message, hint=suggest_remedy(error, folder)) from error


_unwritten: set[Path] = set()
"""Marks that could not be written. This process knows their disks anyway. Otherwise values that an
administrator sets on a disk that stays new would be overwritten."""


def _find_marks(folder: Path, names: Iterable[str]) -> set[str]:
    # Not listed: if disks often change, it holds thousands of marks of removed disks.
    return {name for name in names if os.path.lexists(f"{folder}/{name}")}


def load_counted(path: Path) -> tuple[ErrorCounters, ...]:
    """Return the observations in the file, or none if it is missing or cannot be parsed."""
    return loader.load_or(path, (), loader.STATE_BOUNDS, tuple[ErrorCounters, ...])


def save_counted(path: Path, observations: Iterable[ErrorCounters]) -> None:
    """Save the observations for all users to read. OSError if that fails."""
    files.replace(path, msgspec.json.encode(tuple(observations)), mode=files.READABLE_MODE)


def with_udev_baselines(
    recorded: Journal, endpoints: Iterable[Endpoint], spent: Path, *, unmarked: Collection[str] = ()
) -> Journal:
    """Return the journal with the saved values of these endpoints for which it has no entry.

    A udev rule may write at boot or hotplug, before any process of hbatune runs. It first saves the
    original value in udev's database, which has nothing about ``unmarked`` ones (kernel names).
    After a rollback has restored it, the saved value is ``spent``: out of date but still there.
    """
    listed = [endpoint for endpoint in endpoints if endpoint.target not in unmarked]
    saved_by_id = read_saved_texts(listed)
    done = loader.load_or(spent, frozenset(), loader.STATE_BOUNDS, frozenset[str])
    entries = recorded.by_key
    for endpoint in listed:
        record = saved_by_id.get(endpoint.id)
        if record is None or _name_saved_mark(endpoint.id, record) in done:
            continue
        originals = parse_saved_values(record.texts)
        first = entries.get((endpoint.id, "scheduler"))
        for name, before in originals.items():
            if name == ASYNC_DEPTH and first and first.before != originals.get("scheduler"):
                continue  # belongs to a scheduler that was set before udev's rules ran
            diskseq = endpoint.diskseq if isinstance(endpoint.diskseq, int) else None
            entry = Entry(endpoint.id, endpoint.target, endpoint.adapter, name, before)
            entries.setdefault(entry.key, replace(entry, diskseq=diskseq))
    return replace(recorded, entries=tuple(entries.values()))


def mark_restored(endpoints: Iterable[Endpoint], spent: Path) -> None:
    """Mark these saved values as spent, or raise OSError: they would be used as baselines again."""
    marks = {_name_saved_mark(id, record) for id, record in read_saved_texts(endpoints).items()}
    spent_marks = loader.load_or(spent, frozenset(), loader.STATE_BOUNDS, frozenset[str])
    if marks - spent_marks:
        files.replace(spent, msgspec.json.encode(sorted(spent_marks | marks)))


def _name_saved_mark(id: str, record: SavedTexts) -> str:
    """Return a name for one appearance of a device: a later one saves its own values."""
    return f"{record.appeared} {id}"
