"""What was there before: durable before the first write, and the first baseline stays.

The journal is one JSON file. An entry is one setting of one endpoint with the value it had before
hbatune first touched it in this boot. Values of another boot mean nothing: a reboot has put the
kernel's own back.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from hbatune.act import files
from hbatune.errors import HbatuneError
from hbatune.rows import Reverted
from hbatune.settings.table import SCHEDULER_TUNABLES, Value
from hbatune.workers import Process

SCHEMA = "hbatune.journal/1"


class Entry(msgspec.Struct, frozen=True):
    """The baseline of one setting.

    ``value`` is what hbatune set it to, None where a write to another setting may have changed
    it. ``doubt`` is the worker that may still be writing it.
    """

    id: str
    target: str
    adapter: str | None
    setting: str
    before: Value
    value: Value | None = None
    doubt: Process | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What the entry is filed under: the endpoint's id and the setting."""
        return self.id, self.setting


class Run(msgspec.Struct, frozen=True):
    """A run that changes the machine: it stands in the journal until it has ended.

    ``started`` is in seconds since the epoch.
    """

    command: str
    profile: str | None
    process: Process
    started: float


class Journal(msgspec.Struct, frozen=True):
    """The baselines of one boot, the run under way, and the endpoints that were rolled back.

    ``excluded`` are ids that a rollback took out until an apply names them again, ``reverted`` the
    values that cost too much, likewise.
    """

    boot_id: str
    entries: tuple[Entry, ...] = ()
    run: Run | None = None
    excluded: tuple[str, ...] = ()
    reverted: tuple[Reverted, ...] = ()
    schema: str = SCHEMA

    def begun(self, run: Run, baselines: Iterable[Entry]) -> "Journal":
        """Return the journal with the run under way; what is filed already stays as it is.

        The tunables of a scheduler that came after the baseline's go with it: they are nobody's to
        put back, and cannot be, once the first scheduler is there again.
        """
        entries = {entry.key: entry for entry in self.entries}
        switched = {entry.id for entry in self.entries if entry.setting == "scheduler"}
        for entry in baselines:
            if entry.id in switched and entry.setting.startswith(SCHEDULER_TUNABLES):
                continue
            first = entries.setdefault(entry.key, entry)
            if entry.value is not None and first.value != entry.value:
                entries[entry.key] = msgspec.structs.replace(first, value=entry.value)
        return msgspec.structs.replace(self, entries=tuple(entries.values()), run=run)

    def ended(self, entries: Iterable[Entry]) -> "Journal":
        """Return the journal with no run under way and these entries."""
        return msgspec.structs.replace(self, entries=tuple(entries), run=None)

    def excluding(self, ids: Iterable[str]) -> "Journal":
        """Return the journal with exactly these ids excluded."""
        return msgspec.structs.replace(self, excluded=tuple(dict.fromkeys(ids)))

    def trying(self, ids: Collection[str] | None) -> "Journal":
        """Return the journal in which what was reverted on these ids, or on all, may be tried."""
        left = tuple(each for each in self.reverted if ids is not None and each.id not in ids)
        return msgspec.structs.replace(self, reverted=left)


class JournalError(HbatuneError):
    """The journal cannot be read or made durable; nothing has been written to a device."""


def load(path: Path, boot_id: str) -> tuple[Journal, Journal | None]:
    """Return this boot's journal, and an earlier boot's where that is what the file holds.

    JournalError for a file that cannot be read or makes no sense.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return Journal(boot_id), None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JournalError(
            f"the journal {path} cannot be read: {error}",
            hint="move it aside to go on; `rollback` then knows nothing of what it held",
        ) from error
    if found.schema != SCHEMA:
        raise JournalError(
            f"the journal {path} is of schema {found.schema}, not {SCHEMA}",
            hint="use the hbatune that wrote it to roll back",
        )
    if found.boot_id == boot_id:
        return found, None
    return Journal(boot_id, excluded=found.excluded, reverted=found.reverted), found


def save(path: Path, journal: Journal) -> None:
    """Make the journal durable; JournalError where the disk does not take it.

    What is on disk already is not written again, and an empty journal is no file.
    """
    data = msgspec.json.encode(journal)
    try:
        if not (journal.entries or journal.run or journal.excluded or journal.reverted):
            files.remove(path)
        elif not (path.exists() and path.read_bytes() == data):
            files.replace(path, data)
    except OSError as error:
        raise JournalError(
            f"the journal {path} cannot be written: {error.strerror}",
            hint="make room or make it writable: without it nothing could be put back",
        ) from error
