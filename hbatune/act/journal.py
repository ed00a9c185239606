"""The journal of original values. A baseline is durable before the first write and never replaced.

An entry is one setting of one endpoint with its value before hbatune first changed it in this boot.
Values of another boot mean nothing: a reboot has restored the kernel's defaults. The journal is one
JSON file, and next to it a log of later changes (``Change``), one per line. Each line of both has a
checksum, and each state a sequence number (``journal_format``), which prove a ``Loss``. The journal
then has all other values.
"""

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files, journal_format, rollback_record
from hbatune.errors import HbatuneError
from hbatune.facts.ids import Renaming
from hbatune.facts.model import Machine
from hbatune.plan.rows import RevertedValue
from hbatune.settings.table import SCHEDULER, Value, is_setting, is_tunable
from hbatune.workers import Process

SCHEMA = "hbatune.journal/1"
_GROWTH = 2
"""Space to reserve, in sizes of the journal: at the end of a run, doubts add processes to it."""
_NAMED = 20
"""Maximum lines, targets and settings that a loss names."""
_DAMAGED_FILES = 3
"""Maximum damaged files that are kept."""
_LOG_ROOM = 32 << 10
"""Bytes to reserve for a log next to a shorter journal. Otherwise every other event of a small
machine would rewrite the journal."""


class Entry(Struct, frozen=True):
    """The baseline of one setting.

    ``value`` is the value that hbatune set, or None if a write to another setting may have
    changed it and left the ``effect``. ``former`` is the value that hbatune had set before,
    while a run that sets another one is in progress. ``under`` is the scheduler at the
    baseline, for settings that depend on it. ``doubt`` is the worker that may still be writing
    it. ``diskseq`` is the kernel's sequence number of the disk (``Endpoint.diskseq``), if any.
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
        return is_setting(self.setting)

    def ours(self, current: Value | None) -> bool:
        """Return whether the current value is one that hbatune has set or caused."""
        return current is not None and current in (self.value, self.former, self.effect)


DISOWNED_FIELDS: dict[str, None] = {"value": None, "former": None, "effect": None}
"""Fields of an entry whose value is no longer hbatune's, or is the baseline again."""


class LossKind(StrEnum):
    """The evidence that original values of this boot are lost."""

    MISSING = "missing"
    OLDER = "older"
    DAMAGED = "damaged"


class Loss(Struct, frozen=True):
    """Original values of this boot that the ``file`` has lost, ``about`` readable names.

    After a loss no value is recorded as a baseline, because it may be hbatune's, until a
    rollback has restored and reported the others (``settle``).
    """

    kind: LossKind
    file: str
    lines: tuple[int, ...] = ()
    about: str = ""


class Run(Struct, frozen=True):
    """A run in progress that changes the machine; ``started`` is in seconds since the epoch."""

    command: str
    profile: str | None
    process: Process
    started: float


class Journal(Struct, frozen=True):
    """The baselines of one boot, the run in progress, and the reverted values.

    ``reverted`` values cost too much, and are not tried until an apply names their target.
    ``losses`` were not reported by a rollback yet. ``sequence`` is the number of this state, or 0
    before it is saved.
    """

    boot_id: str
    entries: tuple[Entry, ...] = ()
    run: Run | None = None
    reverted: tuple[RevertedValue, ...] = ()
    schema: str = SCHEMA
    losses: tuple[Loss, ...] = ()
    sequence: int = 0

    @property
    def by_key(self) -> dict[tuple[str, str], Entry]:
        """The entries by target id and setting."""
        return {entry.key: entry for entry in self.entries}

    def concerning(self, ids: Collection[str] | None) -> list[Entry]:
        """Return the entries of the targets with these ids, or all."""
        return [entry for entry in self.entries if ids is None or entry.id in ids]

    def begun(self, run: Run, baselines: Iterable[Entry]) -> "Journal":
        """Return the journal with the run in progress; recorded entries keep their baselines."""
        recorded, entries = self.by_key, self.by_key
        for entry in baselines:
            # They disappear with their scheduler, and cannot be restored once the first one is.
            is_switched = (entry.id, SCHEDULER) in recorded
            if is_switched and is_tunable(entry.setting) and entry.value is None:
                continue
            if self.losses and entry.key not in entries:
                continue
            # The first baseline stays: a later run changes only the value that was set.
            first = entries.setdefault(entry.key, entry)
            if entry.value is not None and first.value != entry.value:
                entries[entry.key] = replace(first, value=entry.value, former=first.value)
        return replace(self, entries=tuple(entries.values()), run=run)

    def ended(self, entries: Iterable[Entry]) -> "Journal":
        """Return the journal with these entries and no run in progress."""
        return replace(self, entries=tuple(entries), run=None)

    def disowning(self, keys: Iterable[tuple[str, str]]) -> "Journal":
        """Return the journal in which these values are no longer hbatune's; the baselines stay."""
        entries = self.by_key
        for key in entries.keys() & set(keys):
            entries[key] = replace(entries[key], **DISOWNED_FIELDS)
        return replace(self, entries=tuple(entries.values()))

    def trying(self, ids: Collection[str] | None) -> "Journal":
        """Return the journal in which reverted values of these ids, or of all, may be tried."""
        retained = () if ids is None else (v for v in self.reverted if v.id not in ids)
        return replace(self, reverted=tuple(retained))


class Change(Struct, frozen=True):
    """A line of the log: the changed entries, the removed keys (``gone``), and the run.

    The daemon appends one after an event (``kept_journal``). Other changes rewrite the file and
    remove the log. ``base`` is the sequence number of the file that a line changes: a log that a
    crash has left with a newer file is ignored.
    """

    entries: tuple[Entry, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    run: Run | None = None
    base: int = 0
    sequence: int = 0


class _Header(Struct, frozen=True):
    """The fields that a journal of any version has."""

    schema: str
    boot_id: str
    sequence: int = 0


class JournalError(HbatuneError):
    """The journal cannot be read or made durable; nothing has been written to a device."""


class UnwritableJournalError(JournalError):
    """The file, or its log, cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        hint = (
            "free disk space or make it writable: without the journal hbatune cannot restore values"
        )
        super().__init__(f"the journal {path} cannot be written: {error.strerror}", hint=hint)


class LostError(JournalError):
    """Original values of this boot are lost."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        super().__init__(
            f"{self.describe(losses)}: original values are lost",
            hint="`hbatune rollback` restores the values that are still recorded; a reboot "
            "restores all",
        )

    @staticmethod
    def describe(losses: Iterable[Loss]) -> str:
        """Return the files of the losses, with the damaged lines."""
        evidence: list[str] = []
        for loss in losses:
            numbers = ", ".join(map(str, loss.lines))
            if loss.kind is LossKind.MISSING:
                evidence.append(f"the journal {loss.file} is missing")
            elif loss.kind is LossKind.OLDER:
                evidence.append(f"the journal {loss.file} is older than the last one of this boot")
            else:
                lines = f"line {numbers} is" if len(loss.lines) == 1 else f"lines {numbers} are"
                about = f" ({loss.about})" if loss.about else ""
                evidence.append(f"{loss.file}: {lines} damaged{about}")
        return ", ".join(evidence)


def find_log(path: Path) -> Path:
    """Return the path of the log of changes to the journal at ``path``."""
    return path.with_suffix(".log")


class _Stored(Struct, frozen=True):
    """The content of the journal's file: the intact part as a JSON ``document``, and the loss."""

    data: bytes
    document: bytes
    header: _Header = _Header("", "")
    loss: Loss | None = None


def _read_content(path: Path, boot_id: str) -> _Stored:
    """Return the content of the file. Raises OSError, and UnusableFileError if it is unusable."""
    data = loader.read_bytes(path, loader.STATE_BOUNDS.bytes)
    head, entries, damaged = journal_format.open_document(data)
    if head is None:
        head = msgspec.json.encode(_Header(SCHEMA, boot_id))
        # Only the trace proves that the journal is of this boot.
        entries = entries if journal_format.read_trace(path, boot_id) else []
    document = journal_format.with_entries(head, entries)
    # Within bounds: the checksums prove that hbatune wrote each line.
    header = loader.decode(head, _Header)
    return _Stored(data, document, header, _describe_damage(path, damaged))


def _describe_damage(path: Path, damaged: Collection[tuple[int, bytes]]) -> Loss | None:
    if not damaged:
        return None
    lines, texts = zip(*damaged, strict=True)
    about: list[str] = []
    for pattern in (rb'"target":"([\w:.!-]+)"', rb'"setting":"([\w/]+)"'):
        if names := dict.fromkeys(re.findall(pattern, b"\n".join(texts))[:_NAMED]):
            about.append(b", ".join(names).decode())
    return Loss(LossKind.DAMAGED, str(path), lines[:_NAMED], " ".join(about))


def _read_changes(
    path: Path, stored: _Stored, traced: int | None = None
) -> tuple[list[Change], Loss | None]:
    """Return the changes since the file was written, and the loss in their log. Raises OSError."""
    try:
        log = loader.read_bytes(find_log(path), loader.STATE_BOUNDS.bytes)
    except FileNotFoundError:
        return [], None
    changes, damaged, torn = list[Change](), list[tuple[int, bytes]](), False
    for number, text in enumerate(log.split(b"\n"), 1):
        line = text.strip()
        if not line:
            continue
        unsealed = journal_format.unseal(line)
        parts = [unsealed] if unsealed else journal_format.find_intact_objects(line, b"entries")
        intact = []
        for part in parts:
            with suppress(loader.UnusableFileError):
                loader.require_bounded(part, loader.SMALL_BOUNDS)
                intact.append(loader.decode(part, Change))
        # The changes of the file before this one do not apply. A damaged file may have no number.
        is_lost = stored.loss is not None and not stored.header.sequence
        if not is_lost and any(change.base != stored.header.sequence for change in intact):
            return [], None
        changes += intact
        torn = not intact
        if unsealed is None or torn:
            damaged.append((number, line))
    if torn and (traced is None or traced <= _get_last_sequence(stored, changes)):
        damaged.pop()
    return changes, _describe_damage(find_log(path), damaged)


def _get_last_sequence(stored: _Stored, changes: Iterable[Change]) -> int:
    return max((stored.header.sequence, *(change.sequence for change in changes)))


def load(path: Path, boot_id: str) -> tuple[Journal, Journal | None]:
    """Return this boot's journal, and an earlier boot's if the file holds one.

    Damaged lines and a missing file are losses, not errors. Raises JournalError if the file
    cannot be read, or another version wrote it in this boot.
    """
    journals = _load(path, boot_id)
    # Without the lock another process may have changed the files between two reads.
    return _load(path, boot_id) if journals[0].losses else journals


def list_changed_settings(path: Path, boot_id: str) -> frozenset[str]:
    """Return the settings that hbatune has changed in this boot. Raises JournalError."""
    recorded, _ = load(path, boot_id)
    return frozenset(e.setting for e in recorded.entries if (e.value, e.effect) != (None, None))


def _load(path: Path, boot_id: str) -> tuple[Journal, Journal | None]:
    # First: a journal that is replaced later is newer than its trace, not older.
    traced = journal_format.read_trace(path, boot_id)
    older = () if traced is None else (Loss(LossKind.OLDER, str(path)),)
    try:
        stored = _read_content(path, boot_id)
        # The header first: a schema of another version need not decode completely.
        if stored.header.schema != SCHEMA and stored.header.boot_id != boot_id:
            return Journal(boot_id, losses=older), Journal(stored.header.boot_id)
        journal = loader.decode(stored.document, Journal)
        is_current = (journal.boot_id, journal.schema) == (boot_id, SCHEMA)
        changes, log_loss = _read_changes(path, stored, traced) if is_current else ([], None)
    except FileNotFoundError:
        missing = () if traced is None else (Loss(LossKind.MISSING, str(path)),)
        return Journal(boot_id, losses=missing), None
    except (OSError, loader.UnusableFileError) as error:
        hint = "make it readable: only it has the original values of this boot"
        raise JournalError(f"the journal {path} cannot be read: {error}", hint=hint) from error
    if journal.schema != SCHEMA:
        message = f"the journal {path} is of schema {journal.schema}, not {SCHEMA}"
        raise JournalError(message, hint="use the hbatune that wrote it to roll back")
    if not is_current:
        # Baselines end with their boot; verdicts outlast it.
        return Journal(boot_id, reverted=journal.reverted, losses=older), journal
    losses = tuple(filter(None, (stored.loss, log_loss)))
    sequence = _get_last_sequence(stored, changes)
    if not losses and traced is not None and traced > sequence:
        losses = older
    losses = tuple(dict.fromkeys((*journal.losses, *losses)))
    entries, run = journal.by_key, journal.run
    for change in changes:
        run = change.run
        for key in change.gone:
            entries.pop(key, None)
        for entry in change.entries:
            entries[entry.key] = entry
    current = replace(journal, losses=losses, sequence=sequence, run=run)
    return replace(current, entries=tuple(entries.values())), None


def save(path: Path, journal: Journal, *, keep_room: bool = False) -> tuple[int, int]:
    """Make the journal durable; return the file's size and sequence number. Raises JournalError.

    An empty journal has no file. Content that a newer version wrote stays in it. Afterwards there
    is no log. A damaged file is kept under another name. ``keep_room`` reserves the space for
    the saves at the end of the run and of a rollback, in case the disk fills up during the run.
    """
    stored = _read_current(path, journal.boot_id)
    sequence = stored.header.sequence
    journal = replace(journal, sequence=sequence)
    document = loader.encode_merged(journal, stored.document)
    is_logged = find_log(path).exists()
    full = journal.entries or journal.run or journal.reverted or journal.losses
    is_empty = not full and document == msgspec.json.encode(journal)
    data = stored.data
    try:
        if stored.loss is not None:
            _keep_damaged(path)
        # The trace first: a trace without its file would be a loss.
        if is_empty and journal_format.remove_trace(path):
            files.remove(path)
            data, sequence = b"", 0
        elif document != stored.document or is_logged or stored.loss is not None:
            sequence = journal_format.make_sequence()
            data = journal_format.seal_document(document, sequence)
            files.replace(path, data, mode=files.READABLE_MODE)
            journal_format.write_trace(path, journal.boot_id, sequence)
        # After the file: until then the log belongs to the existing file.
        if is_logged:
            with suppress(OSError, loader.UnusableFileError):
                if _read_changes(path, stored)[1] is not None:
                    _keep_damaged(find_log(path))
            files.remove(find_log(path))
        if keep_room:
            files.reserve_space(path, max(_GROWTH * len(data), len(data) + _LOG_ROOM))
            # A rollback is recorded before it restores, even on a full disk.
            rollback_record.reserve_space(path.parent, {entry.id for entry in journal.entries})
    except OSError as error:
        raise UnwritableJournalError(path, error) from error
    return len(data), sequence


def settle(path: Path, boot_id: str) -> None:
    """Forget the losses, which a rollback has reported. Raises JournalError."""
    recorded, _ = load(path, boot_id)
    if recorded.losses:
        save(path, replace(recorded, losses=()))


def _keep_damaged(path: Path) -> None:
    """Give a damaged file a second name, which keeps it when it is replaced."""
    for number in range(1, _DAMAGED_FILES + 1):
        with suppress(OSError):  # the name exists, or the file system has no links
            os.link(path, path.with_name(f"{path.name}.damaged-{number}"))
            return


def _read_current(path: Path, boot_id: str) -> _Stored:
    """Return the present content, or nothing if it is unreadable or older."""
    with suppress(OSError, loader.UnusableFileError):
        stored = _read_content(path, boot_id)
        if (stored.header.schema, stored.header.boot_id) == (SCHEMA, boot_id):
            return stored
    return _Stored(b"", b"")


def load_with_current_ids(path: Path, machine: Machine) -> tuple[Journal, Journal | None]:
    """Return this boot's journal with current ids, and an earlier boot's, as ``load`` does."""
    recorded, earlier = load(path, machine.boot_id)
    return with_current_ids(recorded, Renaming(machine)), earlier


def with_current_ids(recorded: Journal, renaming: Renaming) -> Journal:
    """Return the journal with current ids."""
    entries: dict[tuple[str, str], Entry] = {}
    for entry in recorded.entries:
        id = renaming.of_this_boot(entry.id, entry.diskseq)
        current = replace(entry, id=id)
        # Two ids may be one now, and the first baseline stays.
        entries.setdefault(current.key, current)
    reverted: dict[RevertedValue, None] = {}
    for value in recorded.reverted:
        for id in renaming.that_lasts(value.id):
            reverted[replace(value, id=id)] = None
    return replace(recorded, entries=tuple(entries.values()), reverted=tuple(reverted))
