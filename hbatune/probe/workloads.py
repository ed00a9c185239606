"""Read workloads, and shape a profile's load for a comparison.

Workloads are TOML files, shipped or local: named runs in order, with sources. A run is a sweep if
its depth, jobs, block size, percentage of reads or rate is a list. It has one run for each value,
and with two lists for each pair.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from hbatune.loader import ShortText
from hbatune.plan.rows import Row
from hbatune.policy.library import Library, load_sources
from hbatune.policy.profile import NAME_PATTERN, Origin, ProbeSpec, Text, Texts
from hbatune.policy.rules import check_source
from hbatune.policy.schema import decode_file, list_file_errors
from hbatune.policy.toml_files import PolicyError, TomlFile, quote_value, read_toml, suggest_nearest
from hbatune.probe.result import BulkWriter, Pattern, Workload, Zone

WORKLOADS_FOLDER = "workloads"

Depth = Annotated[int, Meta(ge=1, le=4096)]
MAX_BLOCK_SIZE = 16 << 20
Block = Annotated[int, Meta(ge=512, le=MAX_BLOCK_SIZE, multiple_of=512)]
Jobs = Annotated[int, Meta(ge=1, le=256)]
Share = Annotated[int, Meta(ge=0, le=100)]
Rate = Annotated[int, Meta(ge=1, le=100_000_000)]
DEFAULT_MAX_WAITING = 256  # default number of I/Os of an open loop that may wait
_DEFAULT = Workload()
_SWEPT = ("rate", "queue_depth", "reads", "block_size", "jobs", "depth")
"""The fields of a run that may be lists. The last one varies fastest."""


class RunTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[run]]`` with the fields of ``Workload``; lists are swept.

    The ``zones`` start at the first byte. The default ``depth`` depends on the ``rate``.
    """

    pattern: Pattern
    block_size: Block | Annotated[tuple[Block, ...], Meta(min_length=1)]
    depth: Depth | Annotated[tuple[Depth, ...], Meta(min_length=1)] | None = None
    jobs: Jobs | Annotated[tuple[Jobs, ...], Meta(min_length=1)] = _DEFAULT.jobs
    ramp: Annotated[float, Meta(ge=0, le=60)] = _DEFAULT.ramp
    runtime: Annotated[float, Meta(gt=0, le=600)] = _DEFAULT.runtime
    reads: Share | Annotated[tuple[Share, ...], Meta(min_length=1)] = _DEFAULT.reads
    zones: tuple[Zone, ...] = ()
    queue_depth: Annotated[tuple[Depth, ...], Meta(min_length=1)] | None = None
    rate: Rate | Annotated[tuple[Rate, ...], Meta(min_length=1)] | None = None
    writer: BulkWriter | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    title: Text
    sources: Texts
    run: Annotated[tuple[RunTable, ...], Meta(min_length=1)]


class NamedWorkload(Struct, frozen=True):
    """A workload with a name: its runs in order, and its sources."""

    name: str
    title: str
    sources: tuple[str, ...]
    runs: tuple[Workload, ...]

    @property
    def writes(self) -> bool:
        """Whether any of its runs destroys data on the endpoint."""
        return any(run.writes for run in self.runs)

    @property
    def sets_depth(self) -> bool:
        """Whether any of its runs sets the queue depth of the LUN."""
        return any(run.queue_depth for run in self.runs)


def load_workloads(library: Library) -> dict[str, NamedWorkload]:
    """Return workloads by name; local files replace shipped ones. Raise ``PolicyError``."""
    workloads = list(_load_shipped(library.shipped))
    for file in library.site_files(WORKLOADS_FOLDER):
        workloads.append(_load_file(file, library.shipped, Origin.SITE))
    workloads.sort(key=lambda workload: workload.name)
    return {workload.name: workload for workload in workloads}


def list_workload_errors(library: Library) -> list[PolicyError]:
    """Return all errors of the local workloads."""
    errors = list[PolicyError]()
    load = partial(_load_file, shipped=library.shipped, origin=Origin.SITE)
    for file in library.site_files(WORKLOADS_FOLDER, errors):
        errors += list_file_errors(file, _File, load)
    return errors


@cache
def _load_shipped(folder: Path) -> tuple[NamedWorkload, ...]:
    paths = sorted((folder / WORKLOADS_FOLDER).glob("*.toml"))
    return tuple(_load_file(read_toml(path), folder, Origin.SHIPPED) for path in paths)


def find_workload(name: str, library: Library) -> NamedWorkload:
    """Return the workload of this name; raise ``PolicyError`` if it does not exist."""
    by_name = load_workloads(library)
    if name not in by_name:
        problem = f"there is no workload {quote_value(name)}, only {', '.join(by_name)}"
        raise PolicyError(problem, hint=suggest_nearest(name, by_name))
    return by_name[name]


def shorten_workload(spec: ProbeSpec, seconds: float) -> Workload:
    """Return the short probe that a profile specifies, ``seconds`` long."""
    return Workload(Pattern(spec.pattern), spec.block_bytes, spec.depth, runtime=seconds)


def is_like(workload: Workload, spec: ProbeSpec) -> bool:
    """Return whether a workload differs from a profile's probe only in depth and time."""
    probe = shorten_workload(spec, workload.runtime)
    return replace(workload, depth=probe.depth, jobs=1, ramp=probe.ramp, seed=None) == probe


def _load_file(file: TomlFile, shipped: Path, origin: Origin) -> NamedWorkload:
    if not re.match(NAME_PATTERN, file.path.stem):  # it is shown on terminals and pages
        raise PolicyError(
            "has a name that no workload can have: letters, digits, dots, dashes and underscores",
            file=file.path,
        )
    content = decode_file(file, _File)
    source_ids = load_sources(shipped)
    for number, source in enumerate(content.sources):
        check_source(file, ("sources", number), source, origin, source_ids)
    runs: list[Workload] = []
    for number, table in enumerate(content.run):
        _check_zones(file, number, table)
        runs += _expand_runs(table)
    return NamedWorkload(file.path.stem, content.title, content.sources, tuple(runs))


def _expand_runs(table: RunTable) -> Iterator[Workload]:
    fields, lists = asdict(table), []
    if table.depth is None:
        fields["depth"] = _DEFAULT.depth if table.rate is None else DEFAULT_MAX_WAITING
    for name in _SWEPT:
        value = fields[name]
        lists.append(value if isinstance(value, tuple) else (value,))
    for values in product(*lists):
        yield Workload(**fields | dict(zip(_SWEPT, values, strict=True)))


def _check_zones(file: TomlFile, number: int, table: RunTable) -> None:
    zones = table.zones
    if not zones:
        return
    line = file.line(("run", number, "zones"))
    error = partial(PolicyError, file=file.path, line=line, key="zones")
    if any(zone.bytes is None for zone in zones[:-1]) or zones[-1].bytes is not None:
        raise error("each zone but the last has bytes; the last is all the rest")
    if sum(zone.share for zone in zones) != 100:
        raise error("the shares of zones have to add up to 100")
    if table.pattern.is_sequential:
        raise error("zones are for random I/Os")


DEFAULT_READS = 70
"""Percentage of reads if a probe may write: the mix of the documents' third OLTP (D4-7)."""
MAX_JOBS = 4  # maximum jobs if the plan moves interrupts: one submitter uses only one of them

_LIMITS = ("queue_depth", "nr_requests")
_SPREAD = frozenset({"irq_affinity", "rq_affinity"})
_BUFFERED = frozenset({"read_ahead_kb", "wbt_lat_usec"})
_SIZE = "max_sectors_kb"
_SLEEP = "pm_qos_latency_tolerance_us"


class Hidden(StrEnum):
    """The reason why a probe shows the effect of a setting only in part or not at all."""

    NOT_REACHED = "not_reached"  # the load stays below both values
    PARTLY = "partly"  # the load reaches the lower value, and not the higher one
    READS_ALONE = "reads_alone"  # a scheduler chooses between reads and writes
    BUFFERED = "buffered"  # for the page cache, which a probe bypasses
    UNMERGED = "unmerged"  # random I/Os have no neighbours to merge with
    TOO_SMALL = "too_small"  # no I/O is larger than the lower value
    AWAKE = "awake"  # a drive sleeps only after a while without I/O


class Unexercised(Struct, frozen=True):
    """A setting that a workload exercises in part or not at all.

    ``reach`` is the number of I/Os in flight, or the KiB of a request, that the probe reached.
    ``needed`` is the number that exercises both values. Both are None if the setting is no such
    limit.
    """

    setting: ShortText
    why: Hidden
    reach: int | None = None
    needed: int | None = None


def shape_load(
    rows: Sequence[Row], spec: ProbeSpec, *, cpus: int = 1, writable: bool = False
) -> Workload:
    """Return the profile's load ``spec``, at which these rows of one endpoint are compared.

    A change that this load does not reach cannot help it. The rows may also be for paths and
    adapters. ``cpus`` is the number of CPUs that the load may run on. With ``writable`` it is a mix
    that writes, for a file or an empty disk.
    """
    workload = shorten_workload(spec, Workload().runtime)
    if any(row.setting in _SPREAD for row in rows):
        # All jobs together keep as many in flight as one would.
        jobs = max(1, min(MAX_JOBS, cpus, spec.depth))
        workload = replace(workload, depth=-(-spec.depth // jobs), jobs=jobs)
    if writable:
        return replace(workload, pattern=Pattern.RANDOM_MIX, reads=DEFAULT_READS)
    return workload


def shape_burst(rows: Sequence[Row], load: Workload, deepest: int) -> Workload | None:
    """Return bursts as deep as these rows permit, at most ``deepest``; None if the load is."""
    limit = max((_find_range(rows, name)[1] for name in _LIMITS), default=0)
    depth = min(deepest, limit) // load.jobs
    return replace(load, depth=depth) if depth > load.depth else None


def find_unexercised(rows: Sequence[Row], workload: Workload) -> tuple[Unexercised, ...]:
    """Return the settings of these rows that a workload does not exercise, each once."""
    names = dict.fromkeys(row.setting for row in rows)
    return tuple(filter(None, (_find_hidden(name, rows, workload) for name in names)))


def _find_hidden(name: str, rows: Sequence[Row], workload: Workload) -> Unexercised | None:
    if name in _LIMITS:
        # Requests are counted for each hardware queue, and a job submits to one of them.
        reach = workload.depth if name == "nr_requests" else workload.issued
        return _check_reach(name, rows, reach, Hidden.NOT_REACHED)
    if name == _SIZE:
        return _check_reach(name, rows, workload.block_size // 1024, Hidden.TOO_SMALL)
    if name in _BUFFERED:
        return Unexercised(name, Hidden.BUFFERED)
    if name == _SLEEP:
        return Unexercised(name, Hidden.AWAKE)
    if name == "scheduler" and not workload.writes:
        return Unexercised(name, Hidden.READS_ALONE)
    if name == "nomerges" and not workload.pattern.is_sequential:
        return Unexercised(name, Hidden.UNMERGED)
    return None


def _check_reach(name: str, rows: Sequence[Row], reach: int, below: Hidden) -> Unexercised | None:
    lower, upper = _find_range(rows, name)
    if reach >= upper:
        return None
    return Unexercised(name, Hidden.PARTLY if reach > lower else below, reach, upper)


def _find_range(rows: Sequence[Row], name: str) -> tuple[int, int]:
    """Return the loads that reach a limit's lower and higher value. Paths share the load."""
    lower: dict[str, int] = {}
    upper: dict[str, int] = {}
    for row in rows:
        if row.setting == name:
            values = [value for value in (row.current, row.value) if isinstance(value, int)]
            lower[row.target], upper[row.target] = min(values, default=0), max(values, default=0)
    paths = 1 if name == _SIZE else len(upper)
    return min(lower.values(), default=0) * paths, max(upper.values(), default=0) * paths
