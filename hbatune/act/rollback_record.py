"""The rollback record. It lists targets that hbatune must not change until an apply lifts it.

Each rollback is one file with a unique name, in a directory of the state and in one below /run. The
second one is valid until the next boot and needs no disk. Rollbacks write without the lock, and
every writer except a rollback checks for records before each write. An apply lifts only the names
that existed when it began, so it can never lift a later rollback.
"""

import os
import time
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.act.paths import Paths
from hbatune.errors import HbatuneError
from hbatune.facts.ids import Renaming
from hbatune.facts.model import Machine
from hbatune.text.limit_text import Limit, LimitReason

SPARE_BYTES = 4096
"""Bytes reserved for a list of targets, in addition to the size of the ids in the journal."""
_READABLE_FOLDER = 0o755
"""Other users list the records: what a rollback protects is not secret, and nothing locks it."""
_RESERVED = ".targets"
"""The file whose reserve a list of targets uses on a full disk."""


class RollbackRecord(Struct, frozen=True, omit_defaults=True):
    """One rollback, by the name of its file. An empty file, which needs no block, is of everything.

    ``ids`` are the targets that were rolled back by name, or None for a rollback of everything.
    ``lifted`` are the ids that an apply has named since. A ``damaged`` file covers everything.
    """

    name: str = ""
    ids: tuple[str, ...] | None = None
    lifted: tuple[str, ...] = ()
    damaged: bool = False

    def covers(self, id: str) -> bool:
        """Return whether hbatune must not change this target."""
        return id not in self.lifted if self.ids is None else id in self.ids


class RollbackRecords(Struct, frozen=True):
    """All rollbacks that no apply has lifted."""

    records: tuple[RollbackRecord, ...] = ()

    @property
    def names(self) -> set[str]:
        """The names of all records."""
        return {record.name for record in self.records}

    @property
    def everything(self) -> bool:
        """Whether everything was rolled back; an apply may have lifted some targets since."""
        return any(record.ids is None for record in self.records)

    @property
    def covers_all(self) -> bool:
        """Whether hbatune must not change any target."""
        return any(record.ids is None and not record.lifted for record in self.records)

    @property
    def damaged(self) -> tuple[str, ...]:
        """The names of the files that cannot be read."""
        return tuple(record.name for record in self.records if record.damaged)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the targets that were rolled back by name."""
        return tuple(dict.fromkeys(chain.from_iterable(r.ids or () for r in self.records)))

    @property
    def lifted(self) -> tuple[str, ...]:
        """The ids that an apply has named since a rollback of everything."""
        return tuple(dict.fromkeys(chain.from_iterable(r.lifted for r in self.records)))

    def covers(self, id: str) -> bool:
        """Return whether hbatune must not change this target."""
        return any(record.covers(id) for record in self.records)

    def with_current_ids(self, machine: Machine) -> "RollbackRecords":
        """Return the records with the ids that their targets have now."""
        renaming = Renaming(machine)

        def rename(ids: Iterable[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(chain.from_iterable(map(renaming.that_lasts, ids))))

        records = []
        for record in self.records:
            listed = None if record.ids is None else rename(record.ids)
            records.append(replace(record, ids=listed, lifted=rename(record.lifted)))
        return RollbackRecords(tuple(records))

    def guard(self, paths: Paths, *, named: bool) -> "RollbackGuard":
        """Return the guard of a run, which ignores rollbacks of everything, or all if ``named``."""
        ignored = [record.name for record in self.records if named or record.ids is None]
        return RollbackGuard((paths.rollbacks, paths.rollbacks_now), frozenset(ignored))


class RollbackGuard(Struct, frozen=True):
    """The check of a writer before each write: was its target rolled back?"""

    folders: tuple[Path, ...] = ()
    ignored: frozenset[str] = frozenset()

    def objection(self, id: str) -> LimitReason | None:
        """Return why this target must not be written to, or None if no rollback covers it."""
        for folder in self.folders:
            try:
                names = _list_names(folder)
            except OSError as error:
                return LimitReason(Limit.RECORD_UNREAD, (str(folder), str(error.strerror)))
            for name in names:
                if name not in self.ignored and _read_file(folder / name).covers(id):
                    return LimitReason(Limit.ROLLBACK_RECORDED)
        return None


UNGUARDED = RollbackGuard()
"""The guard of a rollback, which no record forbids."""


class RecordError(HbatuneError):
    """The record cannot be made durable."""


class UnreadableRecordError(HbatuneError):
    """Records cannot be read, so hbatune changes nothing."""

    def __init__(self, names: Iterable[str]) -> None:
        subject = f"the rollback record {', '.join(names)}"
        hint = "`hbatune apply --profile P` removes a damaged record"
        super().__init__(f"{subject} cannot be read, so hbatune changes nothing", hint=hint)


def load(paths: Paths) -> RollbackRecords:
    """Return the records. A user without permission to read them gets none."""
    records: dict[str, RollbackRecord] = {}
    for folder in (paths.rollbacks, paths.rollbacks_now):
        try:
            names = _list_names(folder)
        except OSError:
            records[str(folder)] = RollbackRecord(str(folder), damaged=True)
            continue
        for name in names:
            records.setdefault(name, _read_file(folder / name))
    present = RollbackRecords(tuple(records.values()))
    # An apply that was killed may have left a mark, for which udev's rules test, without a record.
    if not present.everything and any(map(os.path.exists, _get_marks(paths))):
        return RollbackRecords((*present.records, RollbackRecord(Paths.hands_off.name)))
    return present


def has_later(began: RollbackRecords, paths: Paths) -> bool:
    """Return whether a rollback was recorded after ``began`` was loaded."""
    return not began.names >= load(paths).names


def record_rollback(paths: Paths, ids: tuple[str, ...] | None = None) -> None:
    """Record a rollback of these targets, or of everything, below /run and then in the state.

    Raises RecordError if it may be valid only for this boot.
    """
    name = f"{'all' if ids is None else 'targets'}-{time.time_ns()}-{os.getpid()}"
    now, lasting = (paths.rollbacks_now, paths.hands_off_now), (paths.rollbacks, paths.hands_off)
    for folder, mark in (now, lasting):
        problem: OSError | None = None
        try:
            if ids is not None:
                _write_content(folder / name, RollbackRecord(ids=ids))
            else:
                _make_folder(folder)
                _make_file(folder / name)
                # After the record: a process that removes a mark checks for records afterwards.
                _make_file(mark)
        except OSError as error:
            problem = error  # finally of the state: the record below /run is for a full disk
    if problem is not None:
        raise RecordError(
            f"the rollback cannot be recorded in {paths.state}: {problem.strerror}",
            hint="free disk space or make it writable, and roll back again: after a reboot "
            "hbatune would tune again",
        ) from problem


def lift(records: RollbackRecords, named: Collection[str] | None, paths: Paths) -> None:
    """Lift these rollbacks for an apply to everything, or to the ``named`` ids.

    Keeps rollbacks that were recorded after ``records`` were loaded, and a rollback of one target
    that was not named. Only under the lock. RecordError if that cannot be made durable.
    """
    try:
        for record in records.records:
            # A rollback that is only in a mark gets a record.
            name = "all-earlier" if record.name == Paths.hands_off.name else record.name
            remaining = _reduce_record(record, named)
            if remaining == record and name == record.name:
                continue
            if remaining is None:
                files.remove(paths.rollbacks / name)
            else:
                _write_content(paths.rollbacks / name, remaining)
            # After the durable file, which is sufficient now.
            files.remove(paths.rollbacks_now / name)
        for mark in _get_marks(paths):
            files.remove(mark)
        # A rollback writes its record before its marks, so this sees one of them in either order.
        if load(paths).everything:
            for mark in _get_marks(paths):
                _make_file(mark)
    except OSError as error:
        hint = f"free space in {paths.state}, or make it writable"
        problem = f"the rollback record cannot be changed: {error.strerror}"
        raise RecordError(problem, hint=hint) from error


def reserve_space(state: Path, ids: Iterable[str]) -> None:
    """Reserve the space for a rollback of these ids by name. Raises OSError if the disk is full."""
    folder = state / Paths.rollbacks.name
    _make_folder(folder)
    size = sum(len(msgspec.json.encode(id)) + 1 for id in ids)
    files.reserve_space(folder / _RESERVED, size + SPARE_BYTES)


def _reduce_record(
    record: RollbackRecord, named_ids: Collection[str] | None
) -> RollbackRecord | None:
    """Return the record after an apply, or None if it is lifted completely."""
    if record.ids is None:
        lifted = dict.fromkeys((*record.lifted, *sorted(named_ids or ())))
        return None if named_ids is None else RollbackRecord(record.name, lifted=tuple(lifted))
    ids = tuple(id for id in record.ids if id not in (named_ids or ()))
    return RollbackRecord(record.name, ids) if ids else None


def _read_file(path: Path) -> RollbackRecord:
    try:
        data = loader.read_bytes(path, loader.STATE_BOUNDS.bytes)
        content = loader.decode(data, RollbackRecord) if data else RollbackRecord()
    except FileNotFoundError:
        return RollbackRecord(path.name, ())  # just lifted
    except (OSError, loader.UnusableFileError):
        return RollbackRecord(path.name, damaged=True)
    return replace(content, name=path.name)


def _list_names(folder: Path) -> list[str]:
    """Return the names of the records in a directory. OSError if it cannot be read."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    # An ordinary user writes nothing, so an empty record is safe there.
    except (FileNotFoundError, PermissionError):
        return []


def _write_content(path: Path, content: RollbackRecord) -> None:
    _make_folder(path.parent)
    data = msgspec.json.encode(replace(content, name=""))
    files.replace(path, data, mode=files.READABLE_MODE, reserved_for=path.with_name(_RESERVED))


def _make_file(path: Path) -> None:
    """Create an empty file, durably."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    with loader.close_on_exit(os.open(path, flags, files.READABLE_MODE)) as descriptor:
        os.fchmod(descriptor, files.READABLE_MODE)
    files.sync_folder(path.parent)


def _make_folder(folder: Path) -> None:
    files.make_folder(folder.parent)
    files.make_folder(folder, _READABLE_FOLDER)


def _get_marks(paths: Paths) -> tuple[Path, Path]:
    """Return the marks of a rollback of everything, for which the compiled udev rules test."""
    return paths.hands_off, paths.hands_off_now
