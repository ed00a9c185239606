"""The history: all results measured on this machine, latest last, in one JSON file.

It contains single probes, proofs, searches, and runs on all disks of an adapter. A search or a run
on an adapter is stored only in part: enough to describe and draw it later, in the measured units.
An update writes a new file and renames it over the old one, so the old one survives a full disk or
a crash. Stale results are kept.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, json
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import chain, files
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import Adapter, Machine, Missing
from hbatune.loader import Count, Figure, LongText, Moment, ShortText, UnusableFileError
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

    ``group`` is the group of settings that was compared, or None for all of them together;
    ``settings`` are their names. ``last`` is the latest result with the change. ``outcome`` is the
    probe and ``written`` the write that ended the comparison early, if one did. ``left_out`` is set
    if there was no time for it. ``doubted`` counts the runs that broke Little's law: runs with more
    in flight than issued are left out of the verdict, runs with less are included. Less is not
    doubted if nr_requests, on one of the sides, limits the load. ``again`` marks the second
    comparison of all of them together. ``unexercised`` are the settings that the probe does not
    show, or not completely.
    """

    target: ShortText
    id: ShortText
    group: ShortText | None
    settings: tuple[ShortText, ...]
    verdict: Verdict
    last: ProbeResult | None = None
    outcome: ProbeOutcome | None = None
    written: chain.WriteResult | None = None
    left_out: bool = False
    doubted: int = 0
    again: bool = False
    unexercised: tuple[Unexercised, ...] = ()


class Measurement(Struct, frozen=True):
    """One probe: I/Os in flight, rate in I/Os per second, p99 in µs.

    The errors are the standard errors of the logarithms of both, from the windows of the run. 0.02
    is 2 %.
    """

    depth: Count
    iops: Figure
    p99_us: Figure
    iops_error: Figure = 0.0
    p99_error: Figure = 0.0


class SearchedDepth(Struct, frozen=True):
    """The probes of a search for a depth, in the order of their runs, and its result.

    ``current`` is the depth before the search; ``chance``, from 0 to 1, is the probability that
    ``word`` is true.
    """

    current: Count
    probes: tuple[Measurement, ...]
    word: ShortText
    depth: Count
    chance: Figure


class CandidateTried(Struct, frozen=True):
    """Values that were tried together, or no values for the current settings, and their scores.

    ``written`` are the bytes/s of a bulk writer during its probes, or None without a writer.
    """

    values: dict[ShortText, Value]
    scores: tuple[Figure, ...]
    written: Figure | None = None


class SearchedSettings(Struct, frozen=True):
    """A search among candidates, the first of which is ``in_force``, and its result.

    A score is a rate in I/Os per second, reduced if p99 missed the objective. With ``interference``
    it is a reader's p99 with a bulk writer, in µs. ``leader`` is the number of the last remaining
    candidate.
    """

    candidates: tuple[CandidateTried, ...]
    in_force: dict[ShortText, Value]
    depth: Count
    interference: bool
    word: ShortText
    leader: Count


class Searched(Struct, frozen=True):
    """A search on one disk; ``objective_us`` is the maximum p99 of the profile."""

    objective_us: Figure | None = None
    depth: SearchedDepth | None = None
    settings: tuple[SearchedSettings, ...] = ()


class Bottleneck(StrEnum):
    """The bottleneck of the disks of an adapter when all are loaded."""

    DISKS = "disks"  # together they are as fast as one at a time
    LINK = "link"
    CPU = "cpu"
    ADAPTER = "adapter"  # neither the link nor the CPUs


class KeptTogether(Struct, frozen=True):
    """All disks of an adapter in parallel; for each single disk only its IOPS, in order of targets.

    ``share`` is their parallel rate as a fraction of the sum of the single rates. ``ceiling`` is
    the throughput of the link in GB/s, ``busy`` the utilisation of the CPUs involved, from 0 to 1.
    ``served`` is the adapter's driver and firmware at the time, or None if unknown.
    """

    targets: tuple[ShortText, ...]
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
        """Why the figures must not be trusted, or None if nothing is wrong with them."""
        return find_doubt(self.workload, self.figures, disks=len(self.targets))


class TracedCause(Struct, frozen=True):
    """The cause of a disk's p99 in µs, as `why` traced it.

    The setting ``lever``, or ``none``, had the value ``current``. It can win at most the fraction
    ``gain`` of the p99. ``id`` is the interrupt's, if the lever is its setting.
    """

    cause: ShortText
    lever: ShortText
    gain: Figure
    p99_us: Figure
    current: Value | None = None
    id: ShortText | None = None


SCHEMA = "hbatune.history/1"
MAX_HISTORY_SIZE = 4 << 20
"""Maximum size of the file in bytes: every command that shows results reads all of it."""


class ValueChange(Struct, frozen=True):
    """One value that was applied or tried: its target, the value before and after."""

    target: ShortText
    setting: ShortText
    before: Value | None
    after: Value | None


class Record(Struct, frozen=True):
    """One probe, or one proof, with its circumstances.

    ``time`` is in seconds since the epoch; ``command`` is the command that ran it. For a proof,
    ``settings`` are the values on both sides, and ``reverted`` are the settings reverted after it.
    A ``knee`` belongs to a depth sweep whose results have the same time and command, and whose last
    run had this ``workload``. ``queue_depth`` is the LUN's own if the sweep has set it. For a
    search, ``settings`` are the values that are better than the current ones, ``rule`` is the file
    of their rules, and ``search`` has its probes and results. A run on all disks of an adapter has
    ``together`` instead of a ``result``, and the target is the adapter. `why` stores only the
    ``traced`` cause.
    """

    time: Moment
    command: LongText
    kernel: ShortText
    boot_id: ShortText
    profile: ShortText | None
    target: ShortText
    id: ShortText
    result: ProbeResult | None
    proof: Proof | None = None
    settings: tuple[ValueChange, ...] = ()
    reverted: tuple[ShortText, ...] = ()
    knee: Knee | None = None
    queue_depth: Count | None = None
    workload: Workload | None = None
    rule: ShortText | None = None
    search: Searched | None = None
    together: KeptTogether | None = None
    traced: TracedCause | None = None


class History(Struct, frozen=True):
    """All stored records."""

    records: tuple[Record, ...] = ()
    schema: ShortText = SCHEMA


class HistoryError(HbatuneError):
    """The history cannot be read or written; the old file is unchanged."""


def load(path: Path) -> History:
    """Return the history, or an empty one if no file exists.

    Raises HistoryError for a file that cannot be read or parsed, and UsageError for users other
    than root.
    """
    hint = "move it aside, and a new one begins with the next probe"
    file = loader.StateFile(
        "the history", History, SCHEMA, loader.HISTORY_BOUNDS, HistoryError, hint, hint
    )
    return _slim_history(file.load(path) or History())


def load_named(path: Path) -> History:
    """Return the history in a file that a person named; raise UsageError if it is unusable."""
    try:
        history = loader.load(path, History, loader.HISTORY_BOUNDS)
    except UnusableFileError as error:
        raise UsageError(f"{str(path)!r} is not a valid history: {error}") from error
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if history.schema != SCHEMA:
        problem = f"{str(path)!r} is of schema {history.schema[:80]!r}, not {SCHEMA}"
        raise UsageError(problem, hint="it is not a history, or its version differs")
    return _slim_history(history)


def append(path: Path, records: Iterable[Record], *, max_bytes: int = MAX_HISTORY_SIZE) -> int:
    """Add records, durably, and return the number of oldest records removed to free space.

    The windows of each result are omitted: they take a thousand times the space of its figures.
    ``max_bytes`` is the maximum size of the file. Raises HistoryError as ``load`` does, and if the
    file cannot be written; the old file is then unchanged.
    """
    new = tuple(map(_slim_record, records))
    if not new:
        return 0
    try:
        # Read and written under one lock: a command and the daemon may both add at the same time.
        with files.lock_path(path):
            old = load(path).records
            retained = _select_latest((*old, *new), max_bytes)
            before = loader.read(path, loader.HISTORY_BOUNDS) if old else b""
            # Fields that a newer version has added are kept.
            files.replace(path, loader.encode_merged(History(retained), before))
    except (OSError, UnusableFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "free disk space or make it writable; the earlier results are kept"
        raise HistoryError(f"the history {path} cannot be written: {reason}", hint=hint) from error
    return len(old) + len(new) - len(retained)


def find_latest_knees(
    records: Iterable[Record], machine: Machine, spec: ProbeSpec
) -> dict[str, int]:
    """Return by endpoint id the depth at which the latest sweep just saturated the endpoint.

    Only sweeps of such a workload count: 1 MiB writes saturate a disk at depth 1, and reads of a
    database at a far greater one. An endpoint that was not saturated at any depth has no knee. A
    sweep that is stale on this machine or has a doubtful knee does not count.
    """
    depths: dict[str, int] = {}
    results: dict[object, ProbeResult] = {}
    for record in sorted(records, key=lambda record: (record.time, record.result is None)):
        run = (record.id, record.time, record.command)
        if record.result is not None:
            results[run] = record.result
        knee = record.knee
        if record.workload is None or not is_like(record.workload, spec):
            continue
        # The sweep's runs have the driver and the firmware.
        swept = replace(record, result=results.get(run))
        if knee is None or knee.doubt is not None or any(_find_stale_reasons(swept, machine)):
            continue
        depths.pop(record.id, None)
        if knee.past is not None:
            depths[record.id] = knee.depth
    return depths


CauseKey = tuple[str, str, Value | None]
"""An endpoint id, a setting, and its value during the trace."""


def find_causes(records: Iterable[Record], machine: Machine) -> dict[CauseKey, TracedCause]:
    """Return the latest causes of disks under this kernel, each at its setting and value."""
    causes = {}
    for record in sorted(records, key=lambda record: record.time):
        if record.traced is not None and not any(_find_stale_reasons(record, machine)):
            causes[record.id] = record.traced
    return {(cause.id or id, cause.lever, cause.current): cause for id, cause in causes.items()}


def _slim_history(history: History) -> History:
    """Return the history without any windows: resampling many takes minutes."""
    return replace(history, records=tuple(map(_slim_record, history.records)))


def _slim_record(record: Record) -> Record:
    result, proof, together = record.result, record.proof, record.together
    if result is not None:
        result = _drop_windows(result)
    if proof is not None and proof.last is not None:
        proof = replace(proof, last=_drop_windows(proof.last))
    if together is not None:
        together = replace(together, figures=replace(together.figures, windows=()))
    return replace(record, result=result, proof=proof, together=together)


def _drop_windows(result: ProbeResult) -> ProbeResult:
    return replace(result, figures=replace(result.figures, windows=()))


def _select_latest(records: tuple[Record, ...], max_bytes: int) -> tuple[Record, ...]:
    free = max_bytes - len(json.encode(History()))
    count = 0
    for record in reversed(records):
        free -= len(json.encode(record)) + 1  # and its comma
        if free < 0:
            break
        count += 1
    return records[len(records) - count :]


class Stale(StrEnum):
    """The cause of staleness: a change of driver changed results by up to half (D1-3)."""

    DRIVER = "driver"
    FIRMWARE = "firmware"
    KERNEL = "kernel"
    GONE = "gone"  # the disk, or the adapter that it was attached to


class StaleReason(Struct, frozen=True):
    """One reason why a result is stale; None if the value was or is unknown."""

    what: Stale
    then: str | None = None
    now: str | None = None


class ChangeSince(Struct, frozen=True):
    """The ratios of a result to the previous one, of the same disk and workload."""

    iops: float
    mean: float
    p99: float


class HistoryEntry(Struct, frozen=True):
    """A record as it looks today; ``stale`` is empty if it is still valid."""

    record: Record
    since: ChangeSince | None
    stale: tuple[StaleReason, ...]


def list_entries(records: Iterable[Record], machine: Machine) -> list[HistoryEntry]:
    """Return the records, the oldest first, compared with the current machine."""
    last: dict[object, ProbeResult] = {}
    entries = []
    # The file is in order of writing; after a change of the clock that is not the order of time.
    for record in sorted(records, key=lambda record: record.time):
        since, result = None, record.result
        if result is not None:
            key = (record.id, result.workload)
            before = last.get(key)
            since = None if before is None else _compare_results(before, result)
            last[key] = result
        entries.append(HistoryEntry(record, since, tuple(_find_stale_reasons(record, machine))))
    return entries


def _compare_results(before: ProbeResult, after: ProbeResult) -> ChangeSince | None:
    first, second = before.figures, after.figures
    # An edited or damaged record must not hide the others.
    if min(first.iops, first.mean_us, first.p99_us) <= 0:
        return None
    mean, p99 = second.mean_us / first.mean_us, second.p99_us / first.p99_us
    return ChangeSince(iops=second.iops / first.iops, mean=mean, p99=p99)


def _find_stale_reasons(record: Record, machine: Machine) -> Iterator[StaleReason]:
    if record.kernel != machine.kernel:
        yield StaleReason(Stale.KERNEL, record.kernel, machine.kernel)
    if record.id.startswith(FILE_ID):
        return
    adapters = machine.adapters_by_target
    if record.id.startswith(ADAPTER_ID):
        served = None if record.together is None else record.together.served
        yield from _compare_adapters(served, adapters.get(record.target))
        return
    # Without the disk its adapter is unknown: driver and firmware are no longer comparable.
    if not any(endpoint.id == record.id for endpoint in machine.endpoints):
        yield StaleReason(Stale.GONE)
        return
    if record.result is not None:
        for served in record.result.served:
            yield from _compare_adapters(served, adapters.get(served.adapter))


def _compare_adapters(recorded: Served | None, current: Adapter | None) -> Iterator[StaleReason]:
    if current is None:
        yield StaleReason(Stale.GONE)
    if current is None or recorded is None:
        return
    before = _join_facts(recorded.driver, recorded.driver_version)
    after = _join_facts(current.driver, current.driver_version)
    if before != after:
        yield StaleReason(Stale.DRIVER, before, after)
    before, after = _join_facts(recorded.firmware), _join_facts(current.firmware)
    if before != after:
        yield StaleReason(Stale.FIRMWARE, before, after)


def _join_facts(*facts: str | Missing) -> str | None:
    return " ".join(fact for fact in facts if isinstance(fact, str)) or None
