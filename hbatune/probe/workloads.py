"""Reads workloads from TOML, shipped ones and a site's own: named runs in order, with sources.

A run whose depth, jobs, block size, share of reads or rate is a list is a sweep: one run for each
value, and with two lists for each pair.
"""

import re
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from hbatune.policy.files import PolicyError, TomlFile, nearest, quoted, read_toml
from hbatune.policy.load import Library, load_sources
from hbatune.policy.model import NAME, Origin, ProbeSpec, Text
from hbatune.policy.rules import require_source
from hbatune.policy.schema import decode
from hbatune.probe.model import BulkWriter, Pattern, Workload, Zone

FOLDER = "workloads"

Depth = Annotated[int, Meta(ge=1, le=4096)]
LARGEST_BLOCK = 16 << 20
Block = Annotated[int, Meta(ge=512, le=LARGEST_BLOCK, multiple_of=512)]
Jobs = Annotated[int, Meta(ge=1, le=256)]
Share = Annotated[int, Meta(ge=0, le=100)]
Rate = Annotated[int, Meta(ge=1, le=100_000_000)]
WAITING = 256
"""I/Os of an open loop that may wait, where nothing else is said."""
_DEFAULT = Workload()


class RunTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[run]]``: bytes per I/O, I/Os in flight per job, seconds; lists are swept.

    ``reads`` is the percentage of reads in a mix, ``zones`` are the shares of all I/Os by zone,
    from the first byte on, and ``queue_depth`` is the endpoint's own depth meanwhile. With a
    ``rate``, in I/Os per second of all jobs, ``depth`` is how many may wait at most. A
    ``writer`` writes beside the run.
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
    sources: Annotated[tuple[Text, ...], Meta(min_length=1)]
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


def load_workloads(library: Library) -> tuple[NamedWorkload, ...]:
    """Return the shipped workloads and the site's own by name; raise ``PolicyError``.

    A site's file takes the place of the shipped one of its name.
    """
    known = {each.name: each for each in _shipped(library.shipped)}
    for file in library.site_files(FOLDER):
        own = _load(file, library.shipped, Origin.SITE)
        known[own.name] = own
    return tuple(known[name] for name in sorted(known))


@cache
def _shipped(folder: Path) -> tuple[NamedWorkload, ...]:
    paths = sorted((folder / FOLDER).glob("*.toml"))
    return tuple(_load(read_toml(path), folder, Origin.SHIPPED) for path in paths)


def find_workload(name: str, library: Library) -> NamedWorkload:
    """Return the workload of this name; ``PolicyError`` if there is none."""
    known = {each.name: each for each in load_workloads(library)}
    if name not in known:
        raise PolicyError(
            f"there is no workload {quoted(name)}, only {', '.join(known)}",
            found=quoted(name),
            allowed=", ".join(known),
            hint=nearest(name, known),
        )
    return known[name]


def short_form(spec: ProbeSpec, seconds: float) -> Workload:
    """Return the short probe that a profile asks for, so many seconds long."""
    return Workload(
        pattern=Pattern(spec.pattern),
        block_size=spec.block_bytes,
        depth=spec.depth,
        runtime=seconds,
    )


def is_like(workload: Workload, spec: ProbeSpec) -> bool:
    """Whether a workload differs from a profile's probe in nothing but depth and time."""
    own = short_form(spec, workload.runtime)
    free = replace(
        workload, depth=own.depth, jobs=own.jobs, ramp=own.ramp, runtime=own.runtime, seed=None
    )
    return free == own


def _load(file: TomlFile, shipped: Path, origin: Origin) -> NamedWorkload:
    if not re.match(NAME, file.path.stem):  # it is shown on terminals and pages
        raise PolicyError(
            "has a name that no workload can have: letters, digits, dots, dashes and underscores",
            file=file.path,
        )
    content = decode(file, _File)
    known = load_sources(shipped)
    for number, source in enumerate(content.sources):
        require_source(file, ("sources", number), source, origin, known)
    for number, table in enumerate(content.run):
        _require_whole(file, number, table)
    runs = tuple(each for table in content.run for each in _runs(table))
    return NamedWorkload(file.path.stem, content.title, content.sources, runs)


def _runs(table: RunTable) -> tuple[Workload, ...]:
    blocks = table.block_size if isinstance(table.block_size, tuple) else (table.block_size,)
    usual = _DEFAULT.depth if table.rate is None else WAITING
    depths = table.depth if isinstance(table.depth, tuple) else (table.depth or usual,)
    counts = table.jobs if isinstance(table.jobs, tuple) else (table.jobs,)
    shares = table.reads if isinstance(table.reads, tuple) else (table.reads,)
    rates = table.rate if isinstance(table.rate, tuple) else (table.rate,)
    return tuple(
        Workload(
            table.pattern,
            block,
            depth,
            jobs,
            table.ramp,
            table.runtime,
            reads,
            table.zones,
            queue_depth,
            rate=rate,
            writer=table.writer,
        )
        for rate in rates
        for queue_depth in table.queue_depth or (None,)
        for reads in shares
        for block in blocks
        for jobs in counts
        for depth in depths
    )


def _require_whole(file: TomlFile, number: int, table: RunTable) -> None:
    """Check that zones make sense: random I/Os, all shares given."""
    zones = table.zones
    if not zones:
        return
    wrong = None
    if table.pattern in (Pattern.READ, Pattern.WRITE):
        wrong = "zones are for random I/Os"
    if sum(zone.share for zone in zones) != 100:
        wrong = "the shares of zones have to add up to 100"
    if any(zone.bytes is None for zone in zones[:-1]) or zones[-1].bytes is not None:
        wrong = "each zone but the last has bytes; the last is all the rest"
    if wrong:
        key = ("run", number, "zones")
        raise PolicyError(wrong, file=file.path, line=file.line(key), key="zones")
