"""What was there before: durable before the first write, and the first baseline stays.

The journal is one JSON file. An entry is one setting of one endpoint with the value it had before
hbatune first touched it in this boot. Values of another boot mean nothing: a reboot has put the
kernel's own back.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hbatune.act import files, hands_off
from hbatune.act.hands_off import HandsOff
from hbatune.errors import HbatuneError
from hbatune.facts.ids import Renaming, unmapped
from hbatune.facts.model import Machine
from hbatune.facts.targets import targets
from hbatune.plan.rows import Reverted
from hbatune.settings.table import SCHEDULER_TUNABLES, Value, known
from hbatune.workers import Process

SCHEMA = "hbatune.journal/1"
_GROWTH = 2
"""How much larger a journal may get at the end of a run: doubts name processes."""


class Entry(msgspec.Struct, frozen=True):
    """The baseline of one setting.

    ``value`` is what hbatune set it to, None where a write to another setting may have changed
    it: ``effect`` is what that write left there, where it is not the baseline. ``former`` is what
    hbatune had set before, while a run that sets another value is under way.
    ``under`` is the scheduler in force at the baseline, for what comes and goes with a scheduler.
    ``doubt`` is the worker that may still be writing it. ``diskseq`` is the kernel's number of the
    very disk (``Endpoint.diskseq``), None where it has none.
    """

    id: str
    target: str
    adapter: str | None
    setting: str
    before: Value
    value: Value | None = None
    doubt: Process | None = None
    former: Value | None = None
    under: Value | None = None
    diskseq: int | None = None
    effect: Value | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What the entry is recorded under: the endpoint's id and the setting."""
        return self.id, self.setting

    @property
    def known(self) -> bool:
        """Whether this version has the setting: a newer one may have recorded the entry."""
        return known(self.setting)

    def ours(self, current: Value | None) -> bool:
        """Whether a value that is there now is one that hbatune has set or brought about."""
        return current is not None and current in (self.value, self.former, self.effect)


NOT_OURS: dict[str, None] = {"value": None, "former": None, "effect": None}
"""What an entry has of a value that is not hbatune's any more, or is back at the baseline."""


class Run(msgspec.Struct, frozen=True):
    """A run that changes the machine: it stands in the journal until it has ended.

    ``started`` is in seconds since the epoch.
    """

    command: str
    profile: str | None
    process: Process
    started: float


class Journal(msgspec.Struct, frozen=True):
    """The baselines of one boot, the run under way, and the values that were put back.

    ``reverted`` are the values that cost too much; they are not tried until an apply names their
    target. ``excluded`` are ids that an earlier version rolled back (``hands_off`` has them now).
    """

    boot_id: str
    entries: tuple[Entry, ...] = ()
    run: Run | None = None
    excluded: tuple[str, ...] = ()
    reverted: tuple[Reverted, ...] = ()
    schema: str = SCHEMA

    def begun(self, run: Run, baselines: Iterable[Entry]) -> "Journal":
        """Return the journal with the run under way; what is recorded already stays as it is.

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
                changed = msgspec.structs.replace(first, value=entry.value, former=first.value)
                entries[entry.key] = changed
        return msgspec.structs.replace(self, entries=tuple(entries.values()), run=run)

    def ended(self, entries: Iterable[Entry]) -> "Journal":
        """Return the journal with no run under way and these entries."""
        return msgspec.structs.replace(self, entries=tuple(entries), run=None)

    def disowning(self, keys: Iterable[tuple[str, str]]) -> "Journal":
        """Return the journal in which the values of these settings are not hbatune's any more.

        Their baselines stay.
        """
        gone = set(keys)
        entries = (
            msgspec.structs.replace(each, **NOT_OURS) if each.key in gone else each
            for each in self.entries
        )
        return msgspec.structs.replace(self, entries=tuple(entries))

    def trying(self, ids: Collection[str] | None) -> "Journal":
        """Return the journal in which what was reverted on these ids, or on all, may be tried."""
        left = tuple(each for each in self.reverted if ids is not None and each.id not in ids)
        return msgspec.structs.replace(self, reverted=left)


class _Header(msgspec.Struct, frozen=True):
    """What any version's journal says of itself."""

    schema: str
    boot_id: str


class JournalError(HbatuneError):
    """The journal cannot be read or made durable; nothing has been written to a device."""


class _Set(msgspec.Struct, frozen=True):
    """What an entry says of what was set, and nothing else."""

    setting: str
    value: Value | None = None
    effect: Value | None = None


class _WhatWasSet(msgspec.Struct, frozen=True):
    """A journal, read for what was set alone."""

    boot_id: str
    entries: tuple[_Set, ...] = ()


def settings_set(path: Path, boot_id: str) -> frozenset[str]:
    """Return the settings that hbatune has changed in this boot; none if that cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_WhatWasSet)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return frozenset()
    if found.boot_id != boot_id:
        return frozenset()
    changed = (each for each in found.entries if (each.value, each.effect) != (None, None))
    return frozenset(each.setting for each in changed)


def load(path: Path, boot_id: str) -> tuple[Journal, Journal | None]:
    """Return this boot's journal, and an earlier boot's where that is what the file holds.

    JournalError for a file that cannot be read or makes no sense. A foreign one is passed over
    where it is of an earlier boot, whose values a reboot has put back.
    """
    try:
        data = path.read_bytes()
        header = msgspec.json.decode(data, type=_Header)
        if header.schema != SCHEMA and header.boot_id != boot_id:
            return Journal(boot_id), Journal(header.boot_id)
        found = msgspec.json.decode(data, type=Journal)
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


def save(path: Path, journal: Journal, *, keep_room: bool = False) -> None:
    """Make the journal durable; JournalError where the disk does not take it.

    What is on disk already is not written again, and an empty journal is no file. With
    ``keep_room`` there is room afterwards for what will be saved when the run has ended and when
    it is rolled back, even where the disk fills up meanwhile.
    """
    data = msgspec.json.encode(journal)
    try:
        if not (journal.entries or journal.run or journal.excluded or journal.reverted):
            files.remove(path)
        elif not (path.exists() and path.read_bytes() == data):
            files.replace(path, data)
        if keep_room:
            files.keep_room(path, _GROWTH * len(data))
            hands_off.keep_room(path.parent, {entry.id for entry in journal.entries})
    except OSError as error:
        raise JournalError(
            f"the journal {path} cannot be written: {error.strerror}",
            hint="make room or make it writable: without it nothing could be put back",
        ) from error


def load_for(path: Path, machine: Machine) -> tuple[Journal, Journal | None]:
    """Return this boot's journal with the ids of now, and an earlier boot's where that is there.

    JournalError as ``journal.load`` raises.
    """
    recorded, earlier = load(path, machine.boot_id)
    return with_current_ids(recorded, Renaming(machine)), earlier


def with_current_ids(recorded: Journal, renaming: Renaming) -> Journal:
    """Return this boot's journal with every id as it is now; an unknown id stays as it is.

    Ids were made of host numbers and NVMe instances once, which change between boots.

    Entries are of this boot; what was excluded or reverted may be of an earlier one.
    """
    entries: dict[tuple[str, str], Entry] = {}
    for entry in recorded.entries:
        now = replace(entry, id=renaming.of_this_boot(entry.id, entry.diskseq))
        entries.setdefault(now.key, now)
    excluded = (each for id in recorded.excluded for each in renaming.that_lasts(id))
    reverted = (
        replace(each, id=id) for each in recorded.reverted for id in renaming.that_lasts(each.id)
    )
    return replace(
        recorded,
        entries=tuple(entries.values()),
        excluded=tuple(dict.fromkeys(excluded)),
        reverted=tuple(dict.fromkeys(reverted)),
    )


def rollback_record(recorded: Journal, machine: Machine) -> HandsOff:
    """Return the record of rollbacks with the ids of now.

    What an earlier version kept in the journal for it is in it, too.
    """
    record = hands_off.load()
    if not (record.ids or record.lifted or recorded.excluded):
        return record
    renaming = Renaming(machine)

    def now(ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for id in ids for each in renaming.that_lasts(id)))

    return replace(record, ids=now((*record.ids, *recorded.excluded)), lifted=now(record.lifted))


def unknown_ids(recorded: Journal, machine: Machine) -> tuple[str, ...]:
    """Return what is kept from being tuned by an id of before that means nothing here."""
    ids = (*rollback_record(recorded, machine).ids, *(each.id for each in recorded.reverted))
    return unmapped(ids, targets(machine)) if ids else ()
