"""The journal of a process that makes many small changes: read once, then appended to.

Use it only under the lock, which excludes changes by other processes. The journal is read again if
another process has changed it in the meantime. If it has lost values since, the remembered state is
written again (``recover``).
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hbatune.act import files, journal, journal_format
from hbatune.act.files import Signature
from hbatune.act.journal import Change, Entry, Journal, Loss
from hbatune.act.rollback_record import RollbackRecords
from hbatune.facts.ids import Renaming
from hbatune.facts.model import Machine

MAX_LOG_BYTES = 1 << 20
"""Bytes of a log; when it is longer, the journal is rewritten."""
_BLOCK = 4096
MAX_NEW_IDS = 32
"""Maximum targets that are only in the log. The space reserved for a rollback's record of all
targets (``rollback_record.SPARE_BYTES``) must be enough for these as well."""

_encode = msgspec.json.Encoder().encode


class KeptJournal:
    """This boot's journal, which follows the writes of all processes. Call ``refresh`` first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[Signature, Signature] | None = None
        self._journal = Journal("")
        self._entries: dict[str, dict[str, Entry]] = {}
        self.settings: frozenset[str] = frozenset()  # that hbatune has changed in this boot
        self._base, self._sequence = 0, 0
        self._records: RollbackRecords | None = None
        self._longest = 0
        self._end = 0
        self._appendable = False
        self._new: set[str] = set()

    def refresh(self, machine: Callable[[], Machine]) -> None:
        """Read the journal again, with current ids, if it was changed. Raises JournalError."""
        signatures = self._read_signatures()
        if signatures == self._seen:
            return
        scanned = machine()
        recorded, earlier = journal.load(self._path, scanned.boot_id)
        current = journal.with_current_ids(recorded, Renaming(scanned))
        self._adopt(current, recorded.sequence, signatures[0][1] if signatures[0] else 0)
        # A line has current ids: next to ids of an earlier version they would be two targets. An
        # existing log may end in a part of a line.
        self._appendable &= earlier is None and recorded == current and signatures[1] is None
        self._seen = signatures

    def recover(self, records: RollbackRecords) -> tuple[Loss, ...]:
        """Write the journal again from memory if it has lost values since; return these losses.

        Only under the lock, at the start of a pass, with the rollback ``records``. The memory must
        be of the last state that the trace knows, and no rollback may be newer. Raises JournalError
        if the journal cannot be read or written.
        """
        remembered, self._records = self._records, records
        if self._seen is None or self._read_signatures() == self._seen:
            return ()
        boot_id, old = self._journal.boot_id, self._journal.losses
        traced = journal_format.read_trace(self._path, boot_id)
        if traced is None or traced > self._sequence or records != remembered:
            return ()
        losses = journal.load(self._path, boot_id)[0].losses
        lost = tuple(loss for loss in losses if loss not in old)
        if lost:
            self._rewrite(self._merge_entries(self._journal))
        return lost

    def part(self, ids: Iterable[str]) -> Journal:
        """Return the journal with the entries of only these targets."""
        entries: list[Entry] = []
        for id in ids:
            entries += self._entries.get(id, {}).values()
        return replace(self._journal, entries=tuple(entries))

    def save(self, part: Journal, ids: Iterable[str], *, keep_room: bool = False) -> None:
        """Make these targets' entries durable; ``keep_room`` and errors as ``journal.save``."""
        old, new = self.part(ids).by_key, part.by_key
        changed = tuple(entry for key, entry in new.items() if old.get(key) != entry)
        removed = tuple(key for key in old if key not in new)
        current = replace(self._journal, entries=(), run=None)
        is_other_changed = replace(part, entries=(), run=None) != current
        # A run that sets recorded values again changes no entry: the present journal is enough to
        # restore.
        if not (changed or removed or is_other_changed) and self._journal.run in (part.run, None):
            return
        sequence = journal_format.make_sequence()
        change = Change(changed, removed, part.run, self._base, sequence)
        line = journal_format.seal(_encode(change)) + b"\n"
        new_ids = self._new | {entry.id for entry in changed if entry.id not in self._entries}
        fits = self._end + 3 * len(line) <= self._longest and len(new_ids) <= MAX_NEW_IDS
        # If anything fails until then, the files are read again.
        self._seen = None
        if self._appendable and fits and not is_other_changed:
            self._append(line, keep_room=keep_room)
            journal_format.write_trace(self._path, self._journal.boot_id, sequence)
            self._apply_change(changed, removed)
            self._journal, self._new = replace(self._journal, run=part.run), new_ids
            self._sequence = sequence
            self._seen = self._read_signatures()
        else:
            self._apply_change(changed, removed)
            self._rewrite(self._merge_entries(part), keep_room=keep_room)

    def compact(self, machine: Machine) -> None:
        """Rewrite the journal, after a ``refresh``, if there is a log. Raises JournalError."""
        self.refresh(lambda: machine)
        if journal.find_log(self._path).exists():
            self._rewrite(self._merge_entries(self._journal))

    def _rewrite(self, complete: Journal, *, keep_room: bool = True) -> None:
        size, sequence = journal.save(self._path, complete, keep_room=keep_room)
        self._adopt(complete, sequence, size)
        self._seen = self._read_signatures()

    def _append(self, line: bytes, *, keep_room: bool) -> None:
        log, padding = journal.find_log(self._path), b""
        if keep_room:
            # Blanks reserve the space for the line at the end of the run, in case the disk fills up
            # until then. They extend to the end of a block: most lines then leave the file's size
            # unchanged.
            needed = self._end + 3 * len(line)
            end = max(needed, min(-(-needed // _BLOCK) * _BLOCK, self._longest))
            padding = b" " * (end - self._end - len(line) - 1) + b"\n"
        try:
            files.write_at(log, self._end, line + padding, mode=files.READABLE_MODE)
        except OSError as error:
            raise journal.UnwritableJournalError(log, error) from error
        self._end += len(line)

    def _apply_change(self, changed: Iterable[Entry], removed: Iterable[tuple[str, str]]) -> None:
        for id, setting in removed:
            del self._entries[id][setting]
        for entry in changed:
            self._entries.setdefault(entry.id, {})[entry.setting] = entry
            if (entry.value, entry.effect) != (None, None):
                self.settings |= {entry.setting}

    def _merge_entries(self, part: Journal) -> Journal:
        return replace(part, entries=self.part(self._entries).entries)

    def _adopt(self, recorded: Journal, sequence: int, size: int) -> None:
        self._entries, self.settings = {}, frozenset()
        self._apply_change(recorded.entries, ())
        self._journal = replace(recorded, entries=(), sequence=0)
        self._base = self._sequence = sequence
        # A rollback on a full disk writes the file and its log into the reserved space. An entry
        # takes up to an eighth more in the file than in the log, for its checksum.
        reserved = files.count_reserved_bytes(self._path) - size
        self._longest = min(MAX_LOG_BYTES, reserved * 7 // 8)
        self._end, self._new = 0, set()
        self._appendable = self._base > 0

    def _read_signatures(self) -> tuple[Signature, Signature]:
        return files.read_signature(self._path), files.read_signature(journal.find_log(self._path))
