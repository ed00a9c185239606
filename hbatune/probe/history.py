"""The history: all results measured on this machine, newest last, in one JSON file.

The file is written whole, beside the old one and then in its place, so that a full disk or a crash
leaves the old one. Its size is bounded: the oldest records go first.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, json
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import Machine
from hbatune.loader import Count, Moment, UnusableFileError
from hbatune.probe.knee import Knee
from hbatune.probe.model import ProbeResult
from hbatune.probe.prove import Proof
from hbatune.settings.table import Value

SCHEMA = "hbatune.history/1"
MOST = 4 << 20
"""Bytes that the file may take: every command that shows results reads it whole."""


class ValueChange(Struct, frozen=True):
    """One value that was in force, or was tried: its target, the value before and after."""

    target: str
    setting: str
    before: Value | None
    after: Value | None


class Record(Struct, frozen=True):
    """One probe, or one proof, with its circumstances.

    ``time`` is in seconds since the epoch; ``command`` is the command that ran it. Of a proof,
    ``settings`` are the values on both sides, and ``reverted`` are the settings put back after it.
    A ``knee`` is that of a sweep of depth whose results have the same time and command;
    ``queue_depth`` is the LUN's own where the sweep has set it.
    """

    time: Moment
    command: str
    kernel: str
    boot_id: str
    profile: str | None
    target: str
    id: str
    result: ProbeResult | None
    proof: Proof | None = None
    settings: tuple[ValueChange, ...] = ()
    reverted: tuple[str, ...] = ()
    knee: Knee | None = None
    queue_depth: Count | None = None


class History(Struct, frozen=True):
    """All records that are kept."""

    records: tuple[Record, ...] = ()
    schema: str = SCHEMA


class HistoryError(HbatuneError):
    """The history cannot be read or written; the old file is unchanged."""


def record(
    machine: Machine, profile: str | None, command: str, result: ProbeResult, now: float
) -> Record:
    """Return the record of one probe on this machine; ``now`` is in seconds since the epoch."""
    return Record(
        time=now,
        command=command,
        kernel=machine.kernel,
        boot_id=machine.boot_id,
        profile=profile,
        target=result.target,
        id=result.id,
        result=result,
    )


def load(path: Path) -> History:
    """Return the history, an empty one where there is none yet.

    HistoryError for a file that cannot be read or parsed, UsageError for users other than root.
    """
    try:
        found = loader.load(path, History, loader.HISTORY)
    except FileNotFoundError:
        return History()
    except PermissionError as error:
        raise UsageError(
            f"the history {path} is root's to read", hint="run it with sudo"
        ) from error
    except (OSError, UnusableFileError) as error:
        raise HistoryError(
            f"the history {path} cannot be read: {error}",
            hint="move it aside, and a new one begins with the next probe",
        ) from error
    if found.schema != SCHEMA:
        raise HistoryError(
            f"the history {path} is of schema {found.schema}, not {SCHEMA}",
            hint="move it aside, and a new one begins with the next probe",
        )
    return _slimmed(found)


def load_named(path: Path) -> History:
    """Return the history in a file that a person named; UsageError where none can be used."""
    try:
        found = loader.load(path, History, loader.HISTORY)
    except UnusableFileError as error:
        raise UsageError(f"{str(path)!r} is no history that can be used: {error}") from error
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if found.schema != SCHEMA:
        raise UsageError(
            f"{str(path)!r} is of schema {found.schema[:80]!r}, not {SCHEMA}",
            hint="it is no history, or one of another version",
        )
    return _slimmed(found)


def append(path: Path, records: Iterable[Record], *, most: int = MOST) -> int:
    """Add records, durably, and return how many of the oldest were removed to make room.

    The windows of each result are left out: they take a thousand times the space of its figures.
    ``most`` is how many bytes the file may take. HistoryError as for ``load``, and where the file
    cannot be written; the old file is then as it was.
    """
    new = tuple(map(_slim, records))
    if not new:
        return 0
    try:
        # Read and written under one lock: a command and the daemon may both add at the same time.
        with files.alone(path):
            known = load(path).records
            kept = _newest((*known, *new), most)
            files.replace(path, json.encode(History(kept)))
    except OSError as error:
        raise HistoryError(
            f"the history {path} cannot be written: {error.strerror}",
            hint="make room or make it writable; what it held is still there",
        ) from error
    return len(known) + len(new) - len(kept)


def latest_knees(records: Iterable[Record]) -> dict[str, int]:
    """Return by endpoint id the depth at which the latest sweep found it just full."""
    found: dict[str, int] = {}
    for record in sorted(records, key=lambda record: record.time):
        if record.knee is not None:
            found[record.id] = record.knee.depth
    return found


def _slimmed(found: History) -> History:
    """Return the history without windows, whoever wrote it: to resample many takes minutes."""
    return replace(found, records=tuple(map(_slim, found.records)))


def _slim(record: Record) -> Record:
    result, proof = record.result, record.proof
    if not _has_windows(result) and not (proof and _has_windows(proof.last)):
        return record
    if proof is not None and proof.last is not None:
        proof = replace(proof, last=_without_windows(proof.last))
    slim = None if result is None else _without_windows(result)
    return replace(record, result=slim, proof=proof)


def _has_windows(result: ProbeResult | None) -> bool:
    return result is not None and bool(result.figures.windows)


def _without_windows(result: ProbeResult) -> ProbeResult:
    return replace(result, figures=replace(result.figures, windows=()))


def _newest(records: tuple[Record, ...], most: int) -> tuple[Record, ...]:
    """Return as many of the newest records as fit."""
    room = most - len(json.encode(History()))
    kept = 0
    for record in reversed(records):
        room -= len(json.encode(record)) + 1  # and its comma
        if room < 0:
            break
        kept += 1
    return records[len(records) - kept :]
