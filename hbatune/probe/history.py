"""The history of all results measured on this machine.

What the history keeps beside single probes: proofs, searches, all disks of an adapter at once.

Of searches and adapters not all that is known when they end: what is needed to tell and to draw
them later, in the units in which it was measured.

The history: all results measured on this machine, newest last, in one JSON file.

The file is written whole, beside the old one and then in its place, so that a full disk or a crash
leaves the old one. Its size is bounded: the oldest records go first. A result is shown with the
change since the one before, and with the reason if it is stale; that never removes it.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, json
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.act.chain import WriteResult
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import Adapter, Machine, Missing
from hbatune.loader import Count, Figure, Moment, UnusableFileError
from hbatune.policy.profile import ProbeSpec
from hbatune.probe.knee import Knee
from hbatune.probe.result import (
    ADAPTER_ID,
    FILE_ID,
    Doubt,
    Figures,
    ProbeOutcome,
    ProbeResult,
    Served,
    Workload,
    find_doubt,
)
from hbatune.probe.verdict import Verdict
from hbatune.probe.workloads import Unexercised, is_like
from hbatune.settings.setting import Value


class Proof(Struct, frozen=True):
    """The comparison of a representative with and without some settings.

    ``group`` is the one group of settings that was compared, None for all of them together;
    ``settings`` are their names. ``last`` is the newest result with the change. ``outcome`` is the
    probe and ``written`` the write that ended the comparison early, if one did; ``left_out`` says
    that there was no time for it. ``doubted`` counts the runs that broke Little's law: those with
    more in flight than issued are left out of the verdict, those with less are in it. Less is no
    doubt where nr_requests, on one of the sides, is what holds the load back. ``again``
    marks the second comparison of all of them together. ``unexercised`` are the settings of which
    the probe shows nothing, or not all.
    """

    target: str
    id: str
    group: str | None
    settings: tuple[str, ...]
    verdict: Verdict
    last: ProbeResult | None = None
    outcome: ProbeOutcome | None = None
    written: WriteResult | None = None
    left_out: bool = False
    doubted: int = 0
    again: bool = False
    unexercised: tuple[Unexercised, ...] = ()


class DepthTried(Struct, frozen=True):
    """One probe: I/Os in flight, I/Os per second, p99 in µs."""

    depth: Count
    iops: Figure
    p99_us: Figure


class SearchedDepth(Struct, frozen=True):
    """The probes of a search for a depth in the order in which they were made, and its answer.

    ``current`` is the depth that was in force; ``chance``, from 0 to 1, is how likely the word is
    true.
    """

    current: Count
    probes: tuple[DepthTried, ...]
    word: str
    depth: Count
    chance: Figure


class CandidateTried(Struct, frozen=True):
    """Values that were tried together, none at all for what was in force, and their scores.

    ``written`` are the bytes/s of a bulk writer beside its probes, None where there was none.
    """

    values: dict[str, Value]
    scores: tuple[Figure, ...]
    written: Figure | None = None


class SearchedSettings(Struct, frozen=True):
    """A tournament of candidates, the first of which was ``in_force``, and its answer.

    A score is a rate in I/Os per second, less where p99 missed the objective; with
    ``interference`` it is a reader's p99 beside a bulk writer, in µs. ``leader`` is the number of
    the candidate that was left.
    """

    candidates: tuple[CandidateTried, ...]
    in_force: dict[str, Value]
    depth: Count
    interference: bool
    word: str
    leader: Count


class Searched(Struct, frozen=True):
    """A search on one disk; ``objective_us`` is the p99 that the profile wanted at most."""

    objective_us: Figure | None = None
    depth: SearchedDepth | None = None
    settings: tuple[SearchedSettings, ...] = ()


class Bottleneck(StrEnum):
    """What holds the disks of an adapter back when all are loaded."""

    DISKS = "disks"  # they do together what they do one at a time
    LINK = "link"
    CPU = "cpu"
    ADAPTER = "adapter"  # neither the link nor the CPUs


class KeptTogether(Struct, frozen=True):
    """All disks of an adapter at once: of each disk alone only its IOPS, in the order of targets.

    ``share`` is what they do at once of the sum of what they do alone, ``ceiling`` what the link
    carries in GB/s, ``busy``, from 0 to 1, that of the CPUs involved. ``served`` is the adapter's
    driver and firmware at the time, None where it is not known.
    """

    targets: tuple[str, ...]
    workload: Workload
    figures: Figures
    alone_iops: tuple[Figure, ...]
    share: Figure
    ceiling: Figure | None
    busy: Figure
    bottleneck: Bottleneck
    served: Served | None = None

    @property
    def doubt(self) -> Doubt | None:
        """Why the figures must not be trusted, None where nothing speaks against them."""
        return find_doubt(self.workload, self.figures, disks=len(self.targets))


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
    A ``knee`` is that of a sweep of depth whose results have the same time and command, and whose
    last run was of this ``workload``; ``queue_depth`` is the LUN's own where the sweep has set it.
    Of a search, ``settings`` are the values that are better than those in force, ``rule`` is
    the file of the rules for them, and ``search`` has its probes and answers. Of a run on all disks
    of an adapter at once there is no ``result`` but ``together``, and the target is the adapter.
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
    workload: Workload | None = None
    rule: str | None = None
    search: Searched | None = None
    together: KeptTogether | None = None


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


def record_together(
    machine: Machine,
    profile: str | None,
    command: str,
    adapter: str,
    kept: KeptTogether,
    now: float,
) -> Record:
    """Return the record of a run on all disks of an adapter; ``now`` is as for ``record``."""
    return Record(
        time=now,
        command=command,
        kernel=machine.kernel,
        boot_id=machine.boot_id,
        profile=profile,
        target=adapter,
        id=f"{ADAPTER_ID}{adapter}",
        result=None,
        together=kept,
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
            before = loader.read(path, loader.HISTORY) if known else b""
            # What a newer version has put into it stays in it.
            files.replace(path, loader.encode_keeping(History(kept), before))
    except (OSError, UnusableFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HistoryError(
            f"the history {path} cannot be written: {reason}",
            hint="make room or make it writable; what it held is still there",
        ) from error
    return len(known) + len(new) - len(kept)


def latest_knees(records: Iterable[Record], spec: ProbeSpec) -> dict[str, int]:
    """Return by endpoint id the depth at which the latest sweep found it just full.

    Only sweeps of such a workload count: a disk is full of 1 MiB writes at depth 1, and of the
    reads of a database far deeper. One that was not full at any depth has no knee.
    """
    found: dict[str, int] = {}
    for record in sorted(records, key=lambda record: record.time):
        if record.workload is not None and is_like(record.workload, spec):
            found.pop(record.id, None)
            if record.knee is not None and record.knee.past is not None:
                found[record.id] = record.knee.depth
    return found


def _slimmed(found: History) -> History:
    """Return the history without windows, whoever wrote it: to resample many takes minutes."""
    return replace(found, records=tuple(map(_slim, found.records)))


def _slim(record: Record) -> Record:
    result, proof, together = record.result, record.proof, record.together
    if together is not None and together.figures.windows:
        figures = replace(together.figures, windows=())
        record = replace(record, together=replace(together, figures=figures))
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


class Stale(StrEnum):
    """The cause of staleness: a change of driver moved results by up to half (D1-3)."""

    DRIVER = "driver"
    FIRMWARE = "firmware"
    KERNEL = "kernel"
    GONE = "gone"  # the disk itself, or the adapter it was measured behind


class StaleReason(Struct, frozen=True):
    """One reason why a result is stale; None where the value was or is unknown."""

    what: Stale
    then: str | None = None
    now: str | None = None


class ChangeSince(Struct, frozen=True):
    """The ratios of a result to the one before it, of the same disk and workload."""

    iops: float
    mean: float
    p99: float


class HistoryEntry(Struct, frozen=True):
    """A record as it looks today; ``stale`` is empty where it is still valid."""

    record: Record
    since: ChangeSince | None
    stale: tuple[StaleReason, ...]


def history_entries(records: Iterable[Record], machine: Machine) -> list[HistoryEntry]:
    """Return the records, the oldest first, as they look on the machine as it is now."""
    last: dict[object, ProbeResult] = {}
    found = []
    # The file is in order of writing; after a change of the clock that is not order of time.
    for record in sorted(records, key=lambda record: record.time):
        since, result = None, record.result
        if result is not None:
            key = (record.id, result.workload)
            before = last.get(key)
            since = None if before is None else _since(before, result)
            last[key] = result
        found.append(HistoryEntry(record, since, tuple(_stale(record, machine))))
    return found


def _since(before: ProbeResult, after: ProbeResult) -> ChangeSince | None:
    first, second = before.figures, after.figures
    # An edited or damaged record must not stop the list of all others.
    if min(first.iops, first.mean_us, first.p99_us) <= 0:
        return None
    return ChangeSince(
        iops=second.iops / first.iops,
        mean=second.mean_us / first.mean_us,
        p99=second.p99_us / first.p99_us,
    )


def _stale(record: Record, machine: Machine) -> Iterator[StaleReason]:
    if record.kernel != machine.kernel:
        yield StaleReason(Stale.KERNEL, record.kernel, machine.kernel)
    if record.id.startswith(FILE_ID):
        return
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    if record.id.startswith(ADAPTER_ID):
        served = None if record.together is None else record.together.served
        if record.target not in adapters:
            yield StaleReason(Stale.GONE)
        elif served is not None:
            yield from _changed(served, adapters[record.target])
        return
    # With the disk gone its adapter may be anything: driver and firmware are no longer comparable.
    if not any(endpoint.id == record.id for endpoint in machine.endpoints):
        yield StaleReason(Stale.GONE)
        return
    if record.result is not None:
        for served in record.result.served:
            yield from _changed(served, adapters.get(served.adapter))


def _changed(then: Served, now: Adapter | None) -> Iterator[StaleReason]:
    if now is None:
        yield StaleReason(Stale.GONE)
        return
    drivers = tuple(_words(each.driver, each.driver_version) for each in (then, now))
    if drivers[0] != drivers[1]:
        yield StaleReason(Stale.DRIVER, *drivers)
    firmware = tuple(_words(each.firmware) for each in (then, now))
    if firmware[0] != firmware[1]:
        yield StaleReason(Stale.FIRMWARE, *firmware)


def _words(*facts: str | Missing) -> str | None:
    return " ".join(fact for fact in facts if isinstance(fact, str)) or None
