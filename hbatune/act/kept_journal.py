"""The journal of a process that makes many small changes: read once, and appended to.

Only under the lock, where no other process changes it. Between two of those times others may: then
it is read again. If it has lost values since, the memory of them is written back (``recover``).
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files, journal, journal_format
from hbatune.act.files import Signature
from hbatune.act.journal import (
    Change,
    Entry,
    Journal,
    JournalError,
    Loss,
    UnreadableJournalError,
)
from hbatune.act.rollback_record import RollbackRecords
from hbatune.facts.model import Machine
from hbatune.loader import UnusableFileError

LONGEST = 1 << 20
"""Bytes of a log; when it is longer, the journal is rewritten."""
_BLOCK = 4096
NEW_IDS = 32
"""Targets that are in the log alone. The room that is kept for a rollback's record of all targets
(``rollback_record.SPARE_BYTES``) has to suffice for these as well."""

_encode = msgspec.json.Encoder().encode


class KeptJournal:
    """This boot's journal. Mutable: it follows what this process and others write.

    ``refresh`` comes before all else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[Signature, Signature] | None = None
        self._journal = Journal("")
        self._entries: dict[str, dict[str, Entry]] = {}
        self._settings: frozenset[str] = frozenset()
        self._of, self._base, self._sequence = "", 0, 0
        self._records: RollbackRecords | None = None
        self._longest = 0
        self._end = 0
        self._appendable = False
        self._new: set[str] = set()

    def refresh(self, machine: Callable[[], Machine]) -> None:
        """Read the journal again if it was changed; ids are those of the ``machine`` now.

        Raises JournalError where it cannot be read.
        """
        seen = self._signatures()
        if seen == self._seen:
            return
        there = machine()
        recorded, earlier = journal.load(self._path, there.boot_id)
        now, _ = journal.load_for(self._path, there)
        self._take(now)
        # A line has the ids of now: beside those of an earlier version they would be two targets.
        # A log that is there may end in a part of a line.
        self._appendable &= earlier is None and recorded == now and not self.is_logged
        self._sequence = recorded.sequence
        self._seen = seen

    def recover(self, records: RollbackRecords) -> tuple[Loss, ...]:
        """Write the journal again from memory if it has lost values since; return these losses.

        Under the lock, at the start of a pass, with the rollback ``records``. The memory must be
        of the last state that the trace knows, and no rollback may be newer. Raises JournalError if
        the journal cannot be read or written.
        """
        remembered, self._records = self._records, records
        if self._seen is None or self._signatures() == self._seen:
            return ()
        boot_id, old = self._journal.boot_id, self._journal.losses
        traced = journal_format.read_trace(self._path, boot_id)
        if traced is None or traced > self._sequence or records != remembered:
            return ()
        losses = journal.load(self._path, boot_id)[0].losses
        lost = tuple(loss for loss in losses if loss not in old)
        if lost:
            self._rewrite(self._whole(self._journal))
        return lost

    @property
    def settings(self) -> frozenset[str]:
        """The settings that hbatune has changed in this boot."""
        return self._settings

    @property
    def is_logged(self) -> bool:
        """Whether there is a log."""
        return journal.log_of(self._path).exists()

    def part(self, ids: Iterable[str]) -> Journal:
        """Return the journal with the entries of these targets alone."""
        found = (entry for id in ids for entry in self._entries.get(id, {}).values())
        return replace(self._journal, entries=tuple(found))

    def save(self, part: Journal, ids: Iterable[str], *, keep_room: bool = False) -> None:
        """Make the entries of these targets, which are a part of the journal, durable.

        ``keep_room`` and JournalError are as for ``journal.save``.
        """
        old = {entry.key: entry for id in ids for entry in self._entries.get(id, {}).values()}
        new = {entry.key: entry for entry in part.entries}
        changed = tuple(entry for key, entry in new.items() if old.get(key) != entry)
        gone = tuple(key for key in old if key not in new)
        others = replace(part, entries=(), run=None) != replace(self._journal, entries=(), run=None)
        # A run that sets recorded values again changes no entry: the journal restores as it is.
        if not (changed or gone or others) and self._journal.run in (part.run, None):
            return
        sequence = journal_format.next_sequence()
        change = Change(self._of, changed, gone, part.run, self._base, sequence)
        line = journal_format.seal(_encode(change)) + b"\n"
        coming = self._new | {entry.id for entry in changed if entry.id not in self._entries}
        fits = self._end + 3 * len(line) <= self._longest and len(coming) <= NEW_IDS
        # Whatever goes wrong in between: what is there is then read again.
        self._seen = None
        if self._appendable and fits and not others:
            self._append(line, keep_room=keep_room)
            journal_format.write_trace(self._path, self._journal.boot_id, sequence)
            self._apply(changed, gone)
            self._journal, self._new = replace(self._journal, run=part.run), coming
            self._sequence = sequence
            self._seen = self._signatures()
        else:
            self._apply(changed, gone)
            self._rewrite(self._whole(part), keep_room=keep_room)

    def compact(self) -> None:
        """Rewrite the journal where there is a log. Raises JournalError."""
        if self.is_logged:
            self._rewrite(self._whole(self._journal))

    def _rewrite(self, whole: Journal, *, keep_room: bool = True) -> None:
        journal.save(self._path, whole, keep_room=keep_room)
        self._take(whole)
        self._seen = self._signatures()

    def _append(self, line: bytes, *, keep_room: bool) -> None:
        log, room = journal.log_of(self._path), b""
        if keep_room:
            # Blanks hold the room for the line at the end of the run, on a disk that fills
            # meanwhile. To the end of a block: most lines then leave the file's size as it is.
            needed = self._end + 3 * len(line)
            end = max(needed, min(-(-needed // _BLOCK) * _BLOCK, self._longest))
            room = b" " * (end - self._end - len(line) - 1) + b"\n"
        try:
            files.write_at(log, self._end, line + room, mode=files.READABLE)
        except OSError as error:
            raise JournalError(
                f"the journal {log} cannot be written: {error.strerror}",
                hint="make room or make it writable: without it nothing could be put back",
            ) from error
        self._end += len(line)

    def _apply(self, changed: Iterable[Entry], gone: Iterable[tuple[str, str]]) -> None:
        for id, setting in gone:
            del self._entries[id][setting]
        for entry in changed:
            self._entries.setdefault(entry.id, {})[entry.setting] = entry
            if (entry.value, entry.effect) != (None, None):
                self._settings |= {entry.setting}

    def _whole(self, part: Journal) -> Journal:
        entries = tuple(entry for found in self._entries.values() for entry in found.values())
        return replace(part, entries=entries)

    def _take(self, found: Journal) -> None:
        self._entries = {}
        for entry in found.entries:
            self._entries.setdefault(entry.id, {})[entry.setting] = entry
        self._journal = replace(found, entries=(), sequence=0)
        self._settings = frozenset(
            entry.setting for entry in found.entries if (entry.value, entry.effect) != (None, None)
        )
        try:
            data = loader.read_bytes(self._path, loader.OWN.bytes)
        except FileNotFoundError:
            data = b""
        except (OSError, UnusableFileError) as error:
            raise UnreadableJournalError(self._path, error) from error
        self._of = files.digest(data)
        self._base = self._sequence = journal.sequence_of(data)
        # A rollback on a full disk writes the file and its log into the room that is kept.
        # An entry takes up to an eighth more in the file than in the log, for its checksum.
        self._longest = min(LONGEST, (files.room(self._path) - len(data)) * 7 // 8)
        self._end, self._new = 0, set()
        self._appendable = self._base > 0

    def _signatures(self) -> tuple[Signature, Signature]:
        return files.signature(self._path), files.signature(journal.log_of(self._path))
