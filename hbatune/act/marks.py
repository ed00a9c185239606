"""Marks of disks in this boot: which were seen, and which baselines udev rules have saved.

Remembers earlier looks at the machine: the disks that were there, and the errors counted.

A disk that was not there is new. Each disk that was tuned or looked at has an empty file, its mark,
in a folder on a memory file system, so that marks are of this boot and a udev rule can test for one
(`TEST`). The mark is named after the disk's sequence number, which the kernel gives to no other
disk in the same boot (block/genhd.c: inc_diskseq); a device without one goes by its id.

The error counters of the last look are a small file in the state folder, lost without harm.

Baselines that udev rules saved before they wrote, at boot or on hotplug.

A rule may write before any process of hbatune runs. It first saves the old value in udev's
database, and that value is the baseline: it goes into the journal. After a rollback has restored
it, the saved value is out of date but still in udev's database; such spent values are remembered
until the next boot, as the database is.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from hbatune import loader
from hbatune.act import files
from hbatune.act.journal import Entry, Journal
from hbatune.errors import HbatuneError, remedy
from hbatune.facts.health import Counted
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.targets import targets
from hbatune.facts.udev import Saved, saved
from hbatune.loader import UnusableFileError
from hbatune.settings.table import ASYNC_DEPTH, saved_values


class MarkError(HbatuneError):
    """A mark cannot be written or removed. Other processes take a device without one for new."""


def marks_of(machine: Machine) -> dict[str, str]:
    """Return by id the mark of every target on the machine."""
    numbers = {endpoint.id: endpoint.diskseq for endpoint in machine.endpoints}
    return {id: _seen_mark(id, numbers.get(id)) for id in targets(machine)}


def unseen_targets(folder: Path, machine: Machine) -> frozenset[str]:
    """Return the ids of the new targets on the machine: those without a mark in the folder."""
    there = marks_of(machine)
    known = _names(folder, there.values()) | {
        path.name for path in _unwritten if path.parent == folder
    }
    return frozenset(id for id, mark in there.items() if mark not in known)


def remember_disks(
    folder: Path,
    machine: Machine,
    ids: Collection[str] | None = None,
    *,
    unfinished: Collection[str] = (),
) -> None:
    """Mark the targets with these ids as seen, or all of them and then forget marks of absent ones.

    ``unfinished`` targets stay new. Raises MarkError if a mark cannot be written or removed.
    """
    there = marks_of(machine)
    chosen = there if ids is None else there.keys() & ids
    names = {there[id] for id in chosen if id not in unfinished}
    wanted = names - _names(folder, names)
    try:
        if wanted:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in wanted:
            (folder / name).touch(mode=0o600)
        if ids is None:  # only a look at everything knows that a mark's disk is gone
            _forget_others(folder, frozenset(there.values()))
    except OSError as error:
        _unwritten.update(folder / name for name in wanted)
        raise MarkError(
            f"disks cannot be marked as seen in {folder}: {error.strerror}",
            hint=remedy(error, folder),
        ) from error


def _seen_mark(id: str, diskseq: object) -> str:
    if isinstance(diskseq, int):
        return str(diskseq)
    # An id may hold slashes and be longer than a file name.
    return f"id-{files.digest(id.encode())}"


_unwritten: set[Path] = set()
"""Marks that could not be written. This process knows their disks anyway: values that an
administrator sets on a disk that stays new would be overwritten."""

_FEW = 64
"""Marks that are looked for one by one: the folder may hold thousands."""


def _names(folder: Path, wanted: Collection[str]) -> frozenset[str]:
    """Return those of the marks that are in the folder."""
    if len(wanted) <= _FEW:
        return frozenset(name for name in wanted if os.path.lexists(f"{folder}/{name}"))
    known = frozenset(wanted)
    try:
        # One after another: where disks come and go, most marks are of disks that are gone.
        with os.scandir(folder) as found:
            return frozenset(each.name for each in found if each.name in known)
    except OSError:
        return frozenset()


def _forget_others(folder: Path, names: Collection[str]) -> None:
    """Remove all other marks. Raises OSError."""
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for each in found:
            if each.name not in names:
                with suppress(FileNotFoundError):
                    os.unlink(each.path)


def load_counted(path: Path) -> tuple[Counted, ...]:
    """Return the observations in the file; none where it is missing or cannot be parsed."""
    try:
        return loader.load(path, tuple[Counted, ...], loader.OWN)
    except (OSError, UnusableFileError):
        return ()


def save_counted(path: Path, observations: Iterable[Counted]) -> None:
    """Remember the observations, if this user may write them; a failure loses them without harm."""
    if os.geteuid() != 0:
        return
    try:
        files.replace(path, msgspec.json.encode(tuple(observations)), mode=files.READABLE)
    except OSError:
        return


def with_udev_baselines(
    recorded: Journal,
    endpoints: Iterable[Endpoint],
    spent: Path,
    *,
    unmarked: Collection[str] = (),
) -> Journal:
    """Return the journal with the values saved for these endpoints, where it has no entry yet.

    The database is not asked for ``unmarked`` ones, by kernel name, of which it has nothing.
    """
    listed = [endpoint for endpoint in endpoints if endpoint.target not in unmarked]
    known, done = saved(listed), _load(spent)
    entries = {entry.key: entry for entry in recorded.entries}
    for each in listed:
        found = known.get(each.id)
        if found is None or _saved_mark(each.id, found) in done:
            continue
        was = saved_values(found.texts)
        first = entries.get((each.id, "scheduler"))
        for name, before in was.items():
            if name == ASYNC_DEPTH and first and first.before != was.get("scheduler"):
                continue  # belongs to a scheduler that was set before udev's rules ran
            diskseq = each.diskseq if isinstance(each.diskseq, int) else None
            entry = Entry(each.id, each.target, each.adapter, name, before, diskseq=diskseq)
            entries.setdefault(entry.key, entry)
    return msgspec.structs.replace(recorded, entries=tuple(entries.values()))


def mark_restored(endpoints: Iterable[Endpoint], spent: Path) -> None:
    """Remember that the saved values of these endpoints, which were just put back, are spent.

    Raises OSError if that cannot be written: they would be taken for baselines again.
    """
    marks = {_saved_mark(id, found) for id, found in saved(endpoints).items()}
    known = _load(spent)
    if marks - known:
        files.replace(spent, msgspec.json.encode(sorted(known | marks)))


def _saved_mark(id: str, found: Saved) -> str:
    """Return a name for one appearance of a device: a later one saves its own values."""
    return f"{found.appeared} {id}"


def _load(path: Path) -> frozenset[str]:
    try:
        return loader.load(path, frozenset[str], loader.OWN)
    except (OSError, UnusableFileError):
        return frozenset()
