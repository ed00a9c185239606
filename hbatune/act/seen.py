"""Remembers earlier looks at the machine: the disks that were there, and the errors counted.

A disk that was not there is new. Each disk that was tuned or looked at has an empty file, its mark,
in a folder on a memory file system, so that marks are of this boot and a udev rule can test for one
(`TEST`). The mark is named after the disk's sequence number, which the kernel gives to no other
disk in the same boot (block/genhd.c: inc_diskseq); a device without one goes by its id.

The error counters of the last look are a small file in the state folder, lost without harm.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from hbatune import loader
from hbatune.act import files
from hbatune.facts.health import Counted
from hbatune.facts.model import Machine
from hbatune.facts.targets import targets
from hbatune.loader import UnusableFileError


def marks(machine: Machine) -> dict[str, str]:
    """Return by id the mark of every target on the machine."""
    numbers = {each.id: each.diskseq for each in machine.endpoints}
    return {id: _mark(id, numbers.get(id)) for id in targets(machine)}


def unseen(folder: Path, machine: Machine) -> frozenset[str]:
    """Return the ids of the new targets on the machine: those without a mark in the folder."""
    known = _names(folder)
    return frozenset(id for id, mark in marks(machine).items() if mark not in known)


def remember(
    folder: Path,
    machine: Machine,
    ids: Collection[str] | None = None,
    *,
    unfinished: Collection[str] = (),
) -> None:
    """Mark the targets with these ids as seen, or all of them and then forget marks of absent ones.

    ``unfinished`` targets stay new. A mark that cannot be written is missing, so that the device is
    new at the next look, too.
    """
    there = marks(machine)
    known = _names(folder)
    chosen = there if ids is None else there.keys() & ids
    wanted = {there[id] for id in chosen if id not in unfinished} - known
    with suppress(OSError):
        if wanted:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in wanted:
            (folder / name).touch(mode=0o600)
        # Only a look at everything knows that a mark's disk is gone.
        if ids is None:
            for name in known - set(there.values()):
                (folder / name).unlink(missing_ok=True)


def _mark(id: str, diskseq: object) -> str:
    if isinstance(diskseq, int):
        return str(diskseq)
    # An id may hold slashes and be longer than a file name.
    return f"id-{blake2b(id.encode(), digest_size=16).hexdigest()}"


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(each.name for each in folder.iterdir())
    except OSError:
        return frozenset()


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
