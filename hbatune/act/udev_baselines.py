"""Baselines that udev rules saved before they wrote, at boot or on hotplug.

A rule may write before any process of hbatune runs. It first saves the old value in udev's
database, and that value is the baseline: it goes into the journal. After a rollback has restored
it, the saved value is out of date but still in udev's database; such spent values are remembered
until the next boot, as the database is.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from hbatune import loader
from hbatune.act import files
from hbatune.act.journal import Entry, Journal
from hbatune.facts.model import Endpoint
from hbatune.facts.udev import Saved, saved
from hbatune.loader import UnusableFileError
from hbatune.settings.table import ASYNC_DEPTH, saved_values


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
    listed = [each for each in endpoints if each.target not in unmarked]
    known, done = saved(listed), _load(spent)
    entries = {entry.key: entry for entry in recorded.entries}
    for each in listed:
        found = known.get(each.id)
        if found is None or _mark(each.id, found) in done:
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
    marks = {_mark(id, found) for id, found in saved(endpoints).items()}
    known = _load(spent)
    if marks - known:
        files.replace(spent, msgspec.json.encode(sorted(known | marks)))


def _mark(id: str, found: Saved) -> str:
    """Return a name for one appearance of a device: a later one saves its own values."""
    return f"{found.appeared} {id}"


def _load(path: Path) -> frozenset[str]:
    try:
        return loader.load(path, frozenset[str], loader.OWN)
    except (OSError, UnusableFileError):
        return frozenset()
