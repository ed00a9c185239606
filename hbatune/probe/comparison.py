"""Compare a result with reference values, its link and the profile's objective. Pure.

The documents' latencies are for 4K random reads at depth 32. Results of other workloads are not
compared with them. The results can be exported for programs that schedule I/O by such figures.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct, json
from msgspec.structs import replace

from hbatune.errors import HbatuneError
from hbatune.facts.model import Adapter, Link, Machine, Medium, Missing, Protocol, TargetKind
from hbatune.loader import Count, Figure
from hbatune.policy import match
from hbatune.policy.library import MediumFigures, RaidFigures, Yardsticks
from hbatune.policy.profile import Match, Objective, Profile
from hbatune.policy.toml_files import escape_name
from hbatune.probe.result import Pattern, ProbeResult, Subject, Workload
from hbatune.probe.selection import list_subjects
from hbatune.shipped import load_texts

HEADROOM_LIMITS = (0.20, 0.40)
"""Fractions of the objective that stay free: enough from the first, ample beyond the second."""

_BLOCK, _LARGE = 4096, 1 << 20
_USUAL = 32  # maximum I/Os in flight to compare a p99 with an objective: the depth of the documents
_DEEPEST = 256
"""Maximum I/Os in flight to compare latencies with the documents: the reference of D0-11."""
_ENCODING = {2.5: 0.8, 5.0: 0.8}
"""Fraction of the bits that carry data: 8b/10b up to Gen2, 128b/130b beyond (PCI Express base)."""

_CORNERS = {
    Pattern.RANDOM_READ: ("random_read", "iops", 1.0),
    Pattern.RANDOM_WRITE: ("random_write", "iops", 1.0),
    Pattern.READ: ("read_gb_per_s", "bandwidth", 1e9),
    Pattern.WRITE: ("write_gb_per_s", "bandwidth", 1e9),
}
"""The field of a document's array, the field of ``Figures`` and the unit, by pattern."""


class Headroom(StrEnum):
    """The headroom between a p99 and its objective (D0-9: 20 to 40 %)."""

    MISSED = "missed"
    SCANT = "scant"  # met, with less than 20 % to spare
    ENOUGH = "enough"  # 20 to 40 %
    AMPLE = "ample"  # more


class Goal(Struct, frozen=True):
    """The profile's objective and how it was met; ``spare`` is the unused fraction of it."""

    p99_ms: float
    measured_ms: float
    spare: float
    headroom: Headroom
    source: str

    @property
    def met(self) -> bool:
        """Whether the p99 is within the objective."""
        return self.headroom is not Headroom.MISSED


class LinkShare(Struct, frozen=True):
    """The throughput, its link's ceiling and a document's value, all in GB/s.

    ``document`` is for one adapter, or None if no document has values for such a link.
    """

    adapter: str
    measured: float
    ceiling: float
    document: float | None
    source: str | None

    @property
    def used(self) -> float:
        """The fraction of the ceiling that is used."""
        return self.measured / self.ceiling


class Standing(Struct, frozen=True):
    """All comparisons of one result; None or empty if there is no value to compare with.

    ``same_depth`` is whether the result was measured at the document's depth. ``raid`` are a
    document's values for volumes of such an adapter in such a slot, and of this RAID level if it is
    known.
    """

    document: MediumFigures | None
    same_depth: bool
    goal: Goal | None
    links: tuple[LinkShare, ...]
    raid: tuple[RaidFigures, ...] = ()


class DocumentRow(Struct, frozen=True):
    """One figure of a document next to the measured one.

    ``figure`` is a field of ``Figures``. ``low`` and ``high`` are its range in the document, in the
    field's unit. They are equal if the document has only one value. ``depth`` is the document's if
    it has one, ``raid`` its array.
    """

    source: str
    result: ProbeResult
    figure: str
    low: float
    high: float
    depth: int | None = None
    raid: RaidFigures | None = None

    @property
    def measured(self) -> float:
        """The measured value."""
        return float(getattr(self.result.figures, self.figure))

    @property
    def ratio(self) -> float:
        """The measured value as a multiple of the document's nearest value, 1 in its range."""
        return self.measured / min(max(self.measured, self.low), self.high)


class MixCost(Struct, frozen=True):
    """The IOPS lost by a mix with this percentage of reads, and a document's range.

    All are fractions of the IOPS of reads only. ``cost`` is below zero if the mix was faster.
    """

    reads: Count
    cost: Figure
    document: tuple[Figure, Figure]
    source: str


def compute_mix_cost(results: Iterable[ProbeResult], yardsticks: Yardsticks) -> MixCost | None:
    """Return the cost of a 4K mix on one disk, or None without a measurement that can be trusted.

    The documents' values are for random I/O (D0-15). The two runs may differ only in their reads.
    """
    rates: dict[Workload, float] = {}
    for result in results:
        workload = result.workload
        is_mix = workload.pattern is Pattern.RANDOM_MIX and workload.block_size == _BLOCK
        if is_mix and result.doubt is None and result.figures.iops > 0:
            rates.setdefault(workload, result.figures.iops)
    for reference in yardsticks.mix:
        for workload, rate in rates.items():
            peak = rates.get(replace(workload, reads=100))
            if workload.reads == reference.reads and peak is not None:
                cost = 1 - rate / peak
                return MixCost(reference.reads, cost, reference.cost, reference.source)
    return None


def compare_result(
    result: ProbeResult, subject: Subject, profile: Profile | None, yardsticks: Yardsticks
) -> Standing:
    """Return the comparisons of a result; without a profile there is no objective."""
    disk_traits = get_subject_traits(subject)
    workload = result.workload
    comparable = (
        workload.writer is None
        and workload.pattern is Pattern.RANDOM_READ
        and workload.block_size == _BLOCK
        and workload.issued <= _DEEPEST
    )
    is_documented = comparable and workload.trace is None
    figures = find_medium_figures(disk_traits, yardsticks) if is_documented else None
    goal = None
    # An objective is for the load of the profile. Deeper ones fill a queue, and wait in it.
    if comparable and profile and workload.issued <= max(_USUAL, profile.probe.depth):
        objective = match.find_objective(profile, disk_traits)
        if objective is not None:
            goal = evaluate_objective(objective, result.figures.p99_us / 1000)
    gb_per_s = result.figures.bandwidth / 1e9
    links = [_compare_link(adapter, gb_per_s, yardsticks) for adapter in subject.adapters]
    return Standing(
        document=figures,
        same_depth=figures is not None and workload.issued == figures.depth,
        goal=goal,
        links=tuple(filter(None, links)),
        raid=find_raid_figures(workload, disk_traits, subject, yardsticks),
    )


def compare_with_documents(
    results: Iterable[ProbeResult], machine: Machine, yardsticks: Yardsticks
) -> dict[str, list[DocumentRow]]:
    """Return, by document, its figures next to the latest ones of each disk and load.

    Percentiles are compared for the load of a disk that is closest to the documents' load.
    """
    listed = list_subjects(machine, machine.endpoints_by_target)
    subjects = {subject.endpoint.id: subject for subject in listed}
    latest = {}
    for result in results:
        is_plain = result.workload.writer is None and result.workload.rate is None
        if result.id in subjects and result.doubt is None and is_plain:
            load = replace(result.workload, seed=None, ramp=0.0, runtime=1.0)
            latest[result.id, load] = result
    closest: dict[str, ProbeResult] = {}
    for result in latest.values():
        closest[result.id] = min(closest.get(result.id, result), result, key=measure_distance)
    rows: dict[str, list[DocumentRow]] = {}
    for result in latest.values():
        standing = compare_result(result, subjects[result.id], None, yardsticks)
        result_rows = list(_list_runs(result, subjects[result.id], yardsticks))
        for raid in standing.raid:
            name, figure, unit = _CORNERS[result.workload.pattern]
            value = unit * getattr(raid, name)
            result_rows.append(DocumentRow(raid.source, result, figure, value, value, raid=raid))
        if result is closest[result.id]:
            result_rows += _list_medium_rows(result, standing)
        for row in result_rows:
            rows.setdefault(row.source.partition("-")[0], []).append(row)
    return rows


def measure_distance(result: ProbeResult) -> tuple[bool, int]:
    """Return the distance of a result from the documents' workload: random reads, 32 deep."""
    differs = result.workload.pattern is not Pattern.RANDOM_READ
    return differs, abs(result.workload.issued - _USUAL)


def _list_medium_rows(result: ProbeResult, standing: Standing) -> Iterator[DocumentRow]:
    document = standing.document
    # The percentiles are for depth 32, and a single I/O does not wait for others.
    if document is None or result.workload.issued <= 1:
        return
    yield DocumentRow(document.source, result, "iops", *document.iops, depth=document.depth)
    for name in ("p95", "p99", "p999"):
        us = 1000 * getattr(document, f"{name}_ms")
        yield DocumentRow(document.source, result, f"{name}_us", us, us, document.depth)
    if document.mean_ms is not None and document.mean_source is not None:
        low, high = document.mean_ms
        yield DocumentRow(document.mean_source, result, "mean_us", 1000 * low, 1000 * high)


def _list_runs(
    result: ProbeResult, subject: Subject, yardsticks: Yardsticks
) -> Iterator[DocumentRow]:
    """Yield the figures of the documents' runs with this load."""
    workload = result.workload
    for run in yardsticks.run:
        load = (run.pattern, run.block_size, run.depth or workload.issued)
        is_same = load == (workload.pattern, workload.block_size, workload.issued)
        if is_same and match.is_match(run.when, get_subject_traits(subject)):
            for figure, value in run.figures.items():
                yield DocumentRow(run.source, result, figure, value, value, run.depth)


def compare_on_machine(
    result: ProbeResult, machine: Machine, profile: Profile | None, yardsticks: Yardsticks
) -> Standing | None:
    """Return the comparisons on this machine, or None if the disk is missing."""
    for subject in list_subjects(machine, {result.target}):
        # The kernel may have reused the name for another disk since: only the id identifies it.
        if subject.endpoint.id == result.id:
            return compare_result(result, subject, profile, yardsticks)
    return None


def get_subject_traits(subject: Subject) -> match.Traits:
    """Return the traits of a subject; a map takes protocol and medium from its paths."""
    # A rule about one adapter must not match a map with several.
    adapter = subject.adapters[0] if len(subject.adapters) == 1 else None
    endpoint_traits = match.build_traits(subject.endpoint, adapter)
    if not subject.paths:
        return endpoint_traits
    below = match.build_traits(subject.paths[0], adapter)
    return replace(endpoint_traits, protocol=below.protocol, medium=below.medium)


def find_medium_figures(disk_traits: match.Traits, yardsticks: Yardsticks) -> MediumFigures | None:
    """Return the documents' values for such a medium, or None."""
    matching = (entry for entry in yardsticks.medium if match.is_match(entry.when, disk_traits))
    return next(matching, None)


def find_raid_figures(
    workload: Workload, disk_traits: match.Traits, subject: Subject, yardsticks: Yardsticks
) -> tuple[RaidFigures, ...]:
    """Return the documents' values for a volume's adapter and slot, if they cover the workload.

    They cover random reads and writes of 4 KiB, and sequential ones of 1 MiB. If the volume's RAID
    level is unknown, all levels are returned.
    """
    if disk_traits.protocol is not Protocol.VOLUME or not is_corner(workload):
        return ()
    cards = {adapter.document for adapter in subject.adapters}
    figures = []
    for entry in yardsticks.raid:
        is_level = subject.endpoint.raid_level in (None, str(entry.level))
        is_slot = match.is_match(Match(link=entry.when), disk_traits)
        if entry.card in cards and is_level and is_slot:
            figures.append(entry)
    return tuple(figures)


def is_corner(workload: Workload) -> bool:
    """Return whether these are random I/Os of 4 KiB or sequential ones of 1 MiB, without a mix."""
    size = _LARGE if workload.pattern.is_sequential else _BLOCK
    is_mix = workload.pattern is Pattern.RANDOM_MIX or workload.trace is not None
    return not is_mix and workload.block_size == size


def evaluate_objective(wanted: Objective, measured_ms: float) -> Goal:
    """Compare a p99 in ms with an objective."""
    spare = 1 - measured_ms / wanted.p99_ms
    enough, ample = HEADROOM_LIMITS
    headroom = Headroom.AMPLE if spare > ample else Headroom.ENOUGH
    if spare < enough:
        headroom = Headroom.MISSED if spare < 0 else Headroom.SCANT
    return Goal(wanted.p99_ms, measured_ms, spare, headroom, wanted.source)


def compute_link_ceiling(link: Link) -> float | None:
    """Return the maximum throughput of a link in each direction in GB/s, or None if unknown."""
    if isinstance(link.speed, Missing) or isinstance(link.width, Missing):
        return None
    return link.speed * _ENCODING.get(link.speed, 128 / 130) * link.width / 8


def _compare_link(adapter: Adapter, gb_per_s: float, yardsticks: Yardsticks) -> LinkShare | None:
    ceiling = None if adapter.link is None else compute_link_ceiling(adapter.link)
    if ceiling is None:
        return None
    link_traits = match.build_adapter_traits(adapter, TargetKind.HOST)
    for entry in yardsticks.link:
        if match.is_match(Match(link=entry.when), link_traits):
            document = entry.gb_per_s / entry.adapters
            return LinkShare(adapter.target, gb_per_s, ceiling, document, entry.source)
    return LinkShare(adapter.target, gb_per_s, ceiling, None, None)


def export_results(
    program: str, results: Sequence[ProbeResult], medium: Medium, mount: str
) -> list[str]:
    """Return the results of a disk or mount point as lines of a program's configuration.

    Raise ``HbatuneError`` for a missing rate, or one outside of Ceph's limits for the medium.
    """
    export = load_texts("exports.toml")[program]
    rates = {}
    for pattern, name in export["rates"].items():
        values = list(_list_rates(results, Pattern(pattern)))
        if not values:
            raise HbatuneError(f"{mount}: {pattern} has no result that can be trusted")
        rates[name] = round(max(values))
    if program == "scylla":
        # A JSON text is also a YAML text, and the name of a directory is hostile.
        heading = f"  - mountpoint: {json.encode(escape_name(mount)).decode()}"
        return ["disks:", heading, *(f"    {name}: {rate}" for name, rate in rates.items())]
    if medium not in export["limits"]:
        raise HbatuneError(f"{mount}: its medium is unknown, and Ceph's limits depend on it")
    type, low, high = export["limits"][medium]
    [(name, iops)] = rates.items()
    if not low <= iops <= high:
        problem = f"{iops} IOPS are outside of Ceph's limits for {type}, {low} to {high}"
        raise HbatuneError(f"{mount}: {problem}", hint="find the cause, such as a write cache")
    return [f"{name}_{type} = {iops}"]


def _list_rates(results: Iterable[ProbeResult], pattern: Pattern) -> Iterator[float]:
    """Yield the rates of a corner at all depths, without results that cannot be trusted."""
    for result in results:
        load = result.workload
        is_plain = load.writer is None and load.rate is None and not load.zones
        if load.pattern is pattern and is_corner(load) and is_plain and result.doubt is None:
            yield getattr(result.figures, _CORNERS[pattern][1])
