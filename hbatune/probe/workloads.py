"""Reads the shipped workloads from TOML: named runs in order, each with its sources.

A run whose depth or block size is a list is a sweep: one run for each value.
"""

from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hbatune.policy.files import PolicyError, TomlFile, nearest, quoted, read_toml
from hbatune.policy.load import load_sources
from hbatune.policy.model import ProbeSpec, Text
from hbatune.policy.schema import decode
from hbatune.probe.model import Pattern, Workload, Zone

FOLDER = "workloads"

Depth = Annotated[int, Meta(ge=1, le=4096)]
Block = Annotated[int, Meta(ge=512, le=16 << 20, multiple_of=512)]
Share = Annotated[int, Meta(ge=0, le=100)]
_DEFAULT = Workload()


class Zones(Struct, frozen=True, forbid_unknown_fields=True):
    """``[run.zones]``: the shares of reads and of writes by zone, from the first byte on."""

    read: Annotated[tuple[Zone, ...], Meta(min_length=1)]
    write: Annotated[tuple[Zone, ...], Meta(min_length=1)]


class RunTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[run]]``: bytes per I/O, I/Os in flight per job, seconds; lists are swept.

    ``reads`` is the percentage of reads in a mix, ``zones`` are the parts of the device for them,
    ``queue_depth`` is the value that the endpoint's own depth has meanwhile.
    """

    pattern: Pattern
    block_size: Block | Annotated[tuple[Block, ...], Meta(min_length=1)]
    depth: Depth | Annotated[tuple[Depth, ...], Meta(min_length=1)] = _DEFAULT.depth
    jobs: Annotated[int, Meta(ge=1, le=256)] = _DEFAULT.jobs
    ramp: Annotated[float, Meta(ge=0, le=60)] = _DEFAULT.ramp
    runtime: Annotated[float, Meta(gt=0, le=600)] = _DEFAULT.runtime
    reads: Share | Annotated[tuple[Share, ...], Meta(min_length=1)] = _DEFAULT.reads
    zones: Zones | None = None
    queue_depth: Annotated[tuple[Depth, ...], Meta(min_length=1)] | None = None


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


@cache
def load_workloads(shipped: Path) -> tuple[NamedWorkload, ...]:
    """Return the workloads below the folder of the rules, by name. Raises ``PolicyError``."""
    return tuple(_load(path, shipped) for path in sorted((shipped / FOLDER).glob("*.toml")))


def find_workload(name: str, shipped: Path) -> NamedWorkload:
    """Return the workload of this name; ``PolicyError`` if there is none."""
    known = {each.name: each for each in load_workloads(shipped)}
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


def _load(path: Path, shipped: Path) -> NamedWorkload:
    file = read_toml(path)
    content = decode(file, _File)
    _require_sources(file, content.sources, shipped)
    for number, table in enumerate(content.run):
        _require_whole(file, number, table)
    runs = tuple(each for table in content.run for each in _runs(table))
    return NamedWorkload(path.stem, content.title, content.sources, runs)


def _require_sources(file: TomlFile, cited: tuple[str, ...], shipped: Path) -> None:
    known = load_sources(shipped)
    for source in cited:
        if source not in known:
            raise PolicyError(
                f"cites {source}, which is no source",
                file=file.path,
                line=file.line(("sources",)),
                key="sources",
                hint=nearest(source, known),
            )


def _runs(table: RunTable) -> tuple[Workload, ...]:
    blocks = table.block_size if isinstance(table.block_size, tuple) else (table.block_size,)
    depths = table.depth if isinstance(table.depth, tuple) else (table.depth,)
    shares = table.reads if isinstance(table.reads, tuple) else (table.reads,)
    zones = table.zones
    return tuple(
        Workload(
            table.pattern,
            block,
            depth,
            table.jobs,
            table.ramp,
            table.runtime,
            reads,
            zones.read if zones else (),
            zones.write if zones else (),
            queue_depth,
        )
        for queue_depth in table.queue_depth or (None,)
        for reads in shares
        for block in blocks
        for depth in depths
    )


def _require_whole(file: TomlFile, number: int, table: RunTable) -> None:
    """Check that zones make sense: a mix of one reader and one writer, all shares given."""
    if table.zones is None:
        return
    wrong = None
    if table.pattern is not Pattern.RANDOM_MIX or table.jobs != 1:
        wrong = "zones are for one job of pattern randrw"
    for zones in (table.zones.read, table.zones.write):
        if sum(zone.share for zone in zones) != 100:
            wrong = "the shares of zones have to add up to 100"
        if any(zone.bytes is None for zone in zones[:-1]) or zones[-1].bytes is not None:
            wrong = "each zone but the last has bytes; the last is all the rest"
    if wrong:
        key = ("run", number, "zones")
        raise PolicyError(wrong, file=file.path, line=file.line(key), key="zones")
