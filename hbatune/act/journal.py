"""What was there before: durable before the first write, and the first baseline stays.

An entry is one setting of one endpoint with the value it had before hbatune first touched it in
this boot. Values of another boot mean nothing: a reboot has restored the kernel's own.

The journal is one JSON file, and a log of changes since beside it: a line for each. The daemon
appends to the log after an event (``kept_journal``), so that it need not write all entries for one;
every other change, and each of its looks at everything, rewrites the file and removes the log.
Each line has the digest of the file that it changes: a log that a crash has left beside a newer
file is ignored. So is a last line that is not whole: nothing was written to a device after it.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files, rollback_record
from hbatune.act.rollback_record import RollbackRecords
from hbatune.errors import HbatuneError
from hbatune.facts.ids import Renaming, unmapped
from hbatune.facts.model import Machine
from hbatune.facts.targets import targets
from hbatune.loader import UnusableFileError
from hbatune.plan.rows import Reverted
from hbatune.settings.table import SCHEDULER_TUNABLES, Value, known
from hbatune.workers import Process

SCHEMA = "hbatune.journal/1"
_GROWTH = 2
"""Room to reserve, in sizes of the journal: at the end of a run doubts add processes to it."""
_LOG_ROOM = 32 << 10
"""Bytes to reserve for a log beside a journal that is shorter than that, which every other event of
a small machine would rewrite otherwise."""


class Entry(msgspec.Struct, frozen=True):
    """The baseline of one setting.

    ``value`` is the value that hbatune set, None where a write to another setting may have changed
    it: ``effect`` is then the value that this write left, where it is not the baseline. ``former``
    is the value that hbatune had set before, while a run that sets another one is under way.
    ``under`` is the scheduler in force at the baseline, for settings that exist only with a
    scheduler or are reset by a switch. ``doubt`` is the worker that may still be writing it.
    ``diskseq`` is the kernel's sequence number of the disk (``Endpoint.diskseq``), None where it
    has none.
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
        """The endpoint's id and the setting, under which the entry is recorded."""
        return self.id, self.setting

    @property
    def known(self) -> bool:
        """Whether this version has the setting: a newer version may have recorded the entry."""
        return known(self.setting)

    def ours(self, current: Value | None) -> bool:
        """Whether the current value is one that hbatune has set or caused."""
        return current is not None and current in (self.value, self.former, self.effect)


NOT_OURS: dict[str, None] = {"value": None, "former": None, "effect": None}
"""Fields of an entry whose value is no longer hbatune's, or is back at the baseline."""


class Run(msgspec.Struct, frozen=True):
    """A run that changes the machine; it is in the journal until it has ended.

    ``started`` is in seconds since the epoch.
    """

    command: str
    profile: str | None
    process: Process
    started: float


class Journal(msgspec.Struct, frozen=True):
    """The baselines of one boot, the run under way, and the values that were reverted.

    ``reverted`` are values that cost too much; they are not tried until an apply names their
    target. ``excluded`` are ids that an earlier version rolled back; ``rollback_record`` has them
    now.
    """

    boot_id: str
    entries: tuple[Entry, ...] = ()
    run: Run | None = None
    excluded: tuple[str, ...] = ()
    reverted: tuple[Reverted, ...] = ()
    schema: str = SCHEMA

    def begun(self, run: Run, baselines: Iterable[Entry]) -> "Journal":
        """Return the journal with the run under way; recorded entries keep their baselines.

        The tunables of a scheduler that replaced the baseline's get no entry: they disappear with
        their scheduler, and cannot be restored once the first scheduler is back.
        """
        entries = {entry.key: entry for entry in self.entries}
        switched = {entry.id for entry in self.entries if entry.setting == "scheduler"}
        for entry in baselines:
            if entry.id in switched and entry.setting.startswith(SCHEDULER_TUNABLES):
                continue
            # The first baseline is the baseline: a later run changes only the value that was set.
            first = entries.setdefault(entry.key, entry)
            if entry.value is not None and first.value != entry.value:
                changed = msgspec.structs.replace(first, value=entry.value, former=first.value)
                entries[entry.key] = changed
        return msgspec.structs.replace(self, entries=tuple(entries.values()), run=run)

    def ended(self, entries: Iterable[Entry]) -> "Journal":
        """Return the journal with these entries and no run under way."""
        return msgspec.structs.replace(self, entries=tuple(entries), run=None)

    def disowning(self, keys: Iterable[tuple[str, str]]) -> "Journal":
        """Return the journal in which the values of these settings are no longer hbatune's.

        Their baselines stay.
        """
        gone = set(keys)
        entries = (
            msgspec.structs.replace(each, **NOT_OURS) if each.key in gone else each
            for each in self.entries
        )
        return msgspec.structs.replace(self, entries=tuple(entries))

    def trying(self, ids: Collection[str] | None) -> "Journal":
        """Return the journal in which reverted values of these ids, or of all, may be tried."""
        left = tuple(each for each in self.reverted if ids is not None and each.id not in ids)
        return msgspec.structs.replace(self, reverted=left)


class Change(msgspec.Struct, frozen=True):
    """A line of the log: the entries that have changed, the keys of those that are gone, the run.

    ``of`` is the digest of the file that it changes.
    """

    of: str
    entries: tuple[Entry, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    run: Run | None = None


class _Header(msgspec.Struct, frozen=True):
    """The fields that a journal of any version has."""

    schema: str
    boot_id: str


class JournalError(HbatuneError):
    """The journal cannot be read or made durable; nothing has been written to a device."""


class _Set(msgspec.Struct, frozen=True):
    """The fields of an entry about the value that was set."""

    setting: str
    value: Value | None = None
    effect: Value | None = None


class _WhatWasSet(msgspec.Struct, frozen=True):
    """A journal, read for the settings that were set and for nothing else."""

    boot_id: str
    entries: tuple[_Set, ...] = ()


def settings_set(path: Path, boot_id: str) -> frozenset[str]:
    """Return the settings that hbatune has changed in this boot; none from an unreadable file."""
    try:
        found = loader.load(path, _WhatWasSet, loader.OWN)
    except (OSError, UnusableFileError):
        return frozenset()
    if found.boot_id != boot_id:
        return frozenset()
    with suppress(OSError, UnusableFileError):
        for change in changes(path, loader.read_bytes(path, loader.OWN.bytes)):
            found = replace(found, entries=(*found.entries, *change.entries))
    changed = (each for each in found.entries if (each.value, each.effect) != (None, None))
    return frozenset(each.setting for each in changed)


@lru_cache(maxsize=8)
def log_of(path: Path) -> Path:
    """Return the place of the log of changes to the journal at ``path``."""
    return path.with_suffix(".log")


def changes(path: Path, data: bytes) -> list[Change]:
    """Return the changes since the journal at ``path`` had this content.

    Raises UnusableFileError where a line before the last one makes no sense, and OSError.
    """
    try:
        log = loader.read_bytes(log_of(path), loader.OWN.bytes)
    except FileNotFoundError:
        return []
    lines = [line for line in log.split(b"\n") if line.strip()]
    found, of = list[Change](), files.digest(data)
    for number, line in enumerate(lines):
        try:
            loader.require_bounded(line, loader.OWN)
            change = loader.decode(line, Change)
        except UnusableFileError:
            if number == len(lines) - 1:
                break  # a crash has left a part of it
            raise
        if change.of != of:
            return []
        found.append(change)
    return found


def _changed(journal: Journal, found: Iterable[Change]) -> Journal:
    """Return the journal after these changes."""
    entries, run = {entry.key: entry for entry in journal.entries}, journal.run
    for change in found:
        for key in change.gone:
            entries.pop(key, None)
        entries |= {entry.key: entry for entry in change.entries}
        run = change.run
    return replace(journal, entries=tuple(entries.values()), run=run)


def load(path: Path, boot_id: str) -> tuple[Journal, Journal | None]:
    """Return this boot's journal, and an earlier boot's where the file holds one.

    Raises JournalError for a file that cannot be read or parsed. A file of another version is
    ignored where it is of an earlier boot, whose values the reboot has replaced.
    """
    try:
        data = loader.read(path, loader.OWN)
        header = loader.decode(data, _Header)
        # The header first: a schema of another version need not decode as a whole.
        if header.schema != SCHEMA and header.boot_id != boot_id:
            return Journal(boot_id), Journal(header.boot_id)
        found = loader.decode(data, Journal)
        if (found.boot_id, found.schema) == (boot_id, SCHEMA):
            found = _changed(found, changes(path, data))
    except FileNotFoundError:
        return Journal(boot_id), None
    except (OSError, UnusableFileError) as error:
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
    # Baselines end with their boot; decisions of people and verdicts outlast it.
    return Journal(boot_id, excluded=found.excluded, reverted=found.reverted), found


def save(
    path: Path, journal: Journal, *, keep_room: bool = False, over: bytes | None = None
) -> bytes:
    """Make the journal durable, and return the file's content; JournalError where that fails.

    ``over`` is the present content, where the caller has just written that, under the same lock.
    Unchanged content is not written again, and an empty journal is no file; what a newer version
    wrote into this boot's stays in it. There is no log of changes afterwards. ``keep_room``
    reserves the room for the saves at the end of the run and of a rollback, even where the disk
    fills up meanwhile.
    """
    before = _of_this_boot(path, journal.boot_id) if over is None else over
    data = loader.encode_keeping(journal, before)
    full = journal.entries or journal.run or journal.excluded or journal.reverted
    try:
        if not full and data == msgspec.json.encode(journal):
            files.remove(path)
        elif not files.holds(path, data):
            files.replace(path, data, mode=files.READABLE)
        # After the file: until then the log belongs to what is there.
        if log_of(path).exists():
            files.remove(log_of(path))
        if keep_room:
            files.keep_room(path, max(_GROWTH * len(data), len(data) + _LOG_ROOM))
            # A rollback is recorded before it restores, on a full disk, too.
            rollback_record.reserve_space(path.parent, {entry.id for entry in journal.entries})
    except OSError as error:
        raise JournalError(
            f"the journal {path} cannot be written: {error.strerror}",
            hint="make room or make it writable: without it nothing could be put back",
        ) from error
    return data


def _of_this_boot(path: Path, boot_id: str) -> bytes:
    """Return the journal's present content, nothing where it cannot be read or is older."""
    with suppress(OSError, UnusableFileError):
        data = loader.read(path, loader.OWN)
        if loader.decode(data, _Header) == _Header(SCHEMA, boot_id):
            return data
    return b""


def load_for(path: Path, machine: Machine) -> tuple[Journal, Journal | None]:
    """Return this boot's journal with current ids, and an earlier boot's where the file holds one.

    Raises JournalError as ``load`` does.
    """
    recorded, earlier = load(path, machine.boot_id)
    return with_current_ids(recorded, Renaming(machine)), earlier


def with_current_ids(recorded: Journal, renaming: Renaming) -> Journal:
    """Return the journal with every id in its current form; an unknown id stays as it is.

    Earlier versions made ids of host numbers and NVMe instances, which change between boots.
    Entries are of this boot; excluded and reverted ids may be of an earlier one.
    """
    entries: dict[tuple[str, str], Entry] = {}
    for entry in recorded.entries:
        now = replace(entry, id=renaming.of_this_boot(entry.id, entry.diskseq))
        # Two former ids may be one now, and the first baseline is the baseline.
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


def current_records(
    recorded: Journal, records: RollbackRecords, machine: Machine
) -> RollbackRecords:
    """Return the rollback records with current ids.

    Rollbacks that an earlier version recorded in the journal are included.
    """
    if not (records.ids or records.lifted or recorded.excluded):
        return records
    renaming = Renaming(machine)

    def rename(ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for id in ids for name in renaming.that_lasts(id)))

    return records.renamed(recorded.excluded, rename)


def unknown_ids(recorded: Journal, records: RollbackRecords, machine: Machine) -> tuple[str, ...]:
    """Return recorded ids in a former format that match no target of this machine.

    They were to keep a target from being tuned, and now protect none.
    """
    ids = (
        *current_records(recorded, records, machine).ids,
        *(each.id for each in recorded.reverted),
    )
    return unmapped(ids, targets(machine)) if ids else ()
