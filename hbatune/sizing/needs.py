"""The load that is wanted, the documents' figures, and the hardware that the load needs.

The documents' figures that sizing rests on beside the yardsticks, from ``rules/sizing.toml``.

The load that is wanted: as a person gives it, or the busiest moment that watch saw. Pure.

What a load asks for by the documents' figures: drives, paths, links, pairs of adapters. Pure.

Each figure is the least that the document gives, and each answer has its source. Where no document
has a figure for such a load, there is no number.
"""

import math
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hbatune.errors import UsageError
from hbatune.facts.model import GENERATIONS, Link, Protocol
from hbatune.loader import Figure
from hbatune.policy.library import SIZING, MediumFigures, RaidFigures, Yardsticks, load_sources
from hbatune.policy.profile import Text
from hbatune.policy.schema import decode
from hbatune.policy.toml_files import PolicyError, nearest, read_toml
from hbatune.probe.comparison import link_ceiling

Count = Annotated[int, Meta(ge=1)]
Percent = Annotated[int, Meta(ge=0, le=99)]
Positive = Annotated[float, Meta(gt=0)]


class HeadroomFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The share that is to stay free, in percent."""

    least: Percent
    most: Percent
    source: Text


class PathFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The paths that sustained IOPS from ``iops`` on ask for."""

    protocol: Protocol
    iops: Count
    paths: Count
    source: Text


class MixPenalty(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of the peak of pure reads that a mix with ``reads`` percent costs, in percent."""

    reads: Percent
    cost: Percent
    source: Text


class DriveFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The throughput of one drive in GB/s."""

    protocol: Protocol
    read_gb_per_s: Positive
    write_gb_per_s: Positive
    source: Text


class BlockFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The block sizes in bytes up to which IOPS are the limit, and from which on throughput is."""

    small: Count
    large: Count
    source: Text


class Saturation(Struct, frozen=True, forbid_unknown_fields=True):
    """The SSDs that a pair of one card can fully use in slots of one generation, RAID 5.

    ``small`` and ``large`` (blocks) have a number for each generation of SSD in ``ssd``.
    """

    card: Text
    gen: Count
    ssd: tuple[Text, ...]
    small: tuple[Count, ...]
    large: tuple[Count, ...]
    source: Text


class SizingFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """All of them."""

    headroom: HeadroomFigures
    paths: PathFigures
    mix: MixPenalty
    drive: DriveFigures
    block: BlockFigures
    saturation: tuple[Saturation, ...]

    @property
    def sources(self) -> Iterator[str]:
        """The sources that are cited."""
        for each in (self.headroom, self.paths, self.mix, self.drive, self.block):
            yield each.source
        yield from (each.source for each in self.saturation)


@cache
def load_sizing(shipped: Path) -> SizingFigures:
    """Return the figures. Raises ``PolicyError``."""
    file = read_toml(shipped / SIZING)
    found = decode(file, SizingFigures)
    known = load_sources(shipped)
    for source in found.sources:
        if source not in known:
            raise PolicyError(
                f"cites {source}, which is no source",
                file=file.path,
                hint=nearest(source, known),
            )
    return found


BLOCK = 4096
"""The block size in bytes where none is given: that of the documents' figures."""

SEQUENTIAL = 1 << 20
"""The block size in bytes where only a throughput is given: that of D4's sequential corners."""


class WantedLoad(Struct, frozen=True):
    """A load: I/Os and GB per second, bytes of each I/O, percent of reads, the p99 in ms.

    ``p99_ms`` is None where any will do.
    """

    iops: float
    gb_per_s: float
    block: int
    reads: int
    p99_ms: float | None


class WatchedReading(Struct, frozen=True):
    """A reading in a line of `watch --json`, as far as a load is made of it."""

    iops: Figure
    read_bytes_per_s: Figure
    write_bytes_per_s: Figure
    adapter: str | None = None
    p99_ms: Figure | None = None


class WatchedMoment(Struct, frozen=True):
    """A line of `watch --json`."""

    schema: str
    readings: tuple[WatchedReading, ...]


def wanted_load(
    iops: float | None, gb_per_s: float | None, block: int | None, reads: int, p99_ms: float | None
) -> WantedLoad:
    """Return a load from what is given of it; UsageError where it is neither rate nor throughput.

    Where all three are given, the larger throughput counts.
    """
    if iops is None and gb_per_s is None:
        raise UsageError("neither IOPS nor GB/s of the load are given", hint="give --iops")
    size = block or (SEQUENTIAL if iops is None else BLOCK)
    rate = (gb_per_s or 0.0) * 1e9 / size if iops is None else iops
    return WantedLoad(rate, max(rate * size / 1e9, gb_per_s or 0.0), size, reads, p99_ms)


def busiest(moments: Iterable[WatchedMoment]) -> WantedLoad:
    """Return the load of the moment with the most I/Os of all disks, the p99 the least of any.

    A map's I/O is that of its paths: readings without an adapter of their own do not count, unless
    there are no others. UsageError where there is no I/O at all.
    """
    best = max(map(_load, moments), key=lambda each: each.iops, default=None)
    if best is None or not best.iops:
        raise UsageError("there is no I/O in what watch has seen", hint="watch while it works")
    return best


def _load(moment: WatchedMoment) -> WantedLoad:
    own = [reading for reading in moment.readings if reading.adapter is not None]
    counted = own or moment.readings
    iops = sum(max(each.iops, 0.0) for each in counted)
    reads = sum(max(each.read_bytes_per_s, 0.0) for each in counted)
    through = reads + sum(max(each.write_bytes_per_s, 0.0) for each in counted)
    return WantedLoad(
        iops=iops,
        gb_per_s=through / 1e9,
        block=max(512, round(through / iops)) if iops else BLOCK,
        reads=round(100 * reads / through) if through else 100,
        p99_ms=None,
    )


WIDTHS = (8, 16)
"""Lanes of the links that are told; those of the documents' adapters."""

CACHELESS = "57B4 (D4)"
"""The card without a cache of the documents, on which RAID 6 is not recommended (D4-12)."""

_RAID5 = 5
_CLOSE = 1e-9
"""Rounding errors that make no further drive necessary."""


class MediumNeed(Struct, frozen=True):
    """The drives of one medium: ``each`` is what one of them gives, of IOPS or GB/s (``unit``).

    ``drives`` is None where no document has a figure for such a load. ``met`` says whether their
    p99 is within the one that is wanted, with headroom; None where none is wanted. ``in_flight``
    are the I/Os on each drive by Little's law at that p99, ``knee`` where more only wait.
    """

    medium: str
    drives: int | None
    each: float | None
    unit: str
    p99_ms: float
    met: bool | None
    in_flight: float | None
    knee: tuple[int, int] | None
    paths: int
    sources: tuple[str, ...]


class LinkNeed(Struct, frozen=True):
    """The links of one generation and width, each of which carries ``each`` GB/s.

    ``source`` is a document's, or PCI Express for what the link can carry at most.
    """

    gen: int
    width: int
    links: int
    each: float
    source: str


class RaidNeed(Struct, frozen=True):
    """The pairs of one card for arrays of one level, in slots of one generation.

    ``used`` is the share of one pair that the load takes, without headroom. ``ssds`` are the drives
    that it takes to give as much, by generation of SSD, where a document says. ``advised`` is False
    for RAID 6 without a cache.
    """

    card: str
    gen: int
    level: int
    pairs: int
    used: float
    ssds: dict[str, int]
    advised: bool
    sources: tuple[str, ...]


class Needs(Struct, frozen=True):
    """All that a load asks for; ``headroom`` is the share that stays free, 0 to 1.

    ``mix_known`` is False where there are more writes than in any figure of the documents.
    """

    load: WantedLoad
    headroom: float
    mix_known: bool
    media: tuple[MediumNeed, ...]
    links: tuple[LinkNeed, ...]
    raid: tuple[RaidNeed, ...]


def find_needs(
    load: WantedLoad, headroom: float, yardsticks: Yardsticks, figures: SizingFigures
) -> Needs:
    """Return what the load asks for, with this share of everything kept free."""
    media = (_medium(each, load, headroom, figures) for each in yardsticks.medium)
    return Needs(
        load=load,
        headroom=headroom,
        mix_known=load.reads >= figures.mix.reads,
        media=tuple(media),
        links=tuple(_links(load, headroom, yardsticks)),
        raid=tuple(_raid(each, load, headroom, figures) for each in yardsticks.raid),
    )


def round_up(number: float) -> int:
    """Return the next whole number, at least 1."""
    return max(1, math.ceil(number - _CLOSE))


def _medium(
    figured: MediumFigures, load: WantedLoad, headroom: float, figures: SizingFigures
) -> MediumNeed:
    [protocol] = figured.when.protocol
    large = load.block > figures.block.small
    sources = [figured.source]
    each: float | None
    if not large:
        each, unit, planned = figured.iops[0] * _mix(load, figures), "IOPS", load.iops
    else:
        unit, planned = "GB/s", load.gb_per_s
        each = _drive_rate(load, figures) if protocol is figures.drive.protocol else None
        sources = [figures.drive.source] if each is not None else []
    drives = None if each is None else round_up(planned / (1 - headroom) / each)
    paths = 1
    if protocol is figures.paths.protocol and load.iops >= figures.paths.iops:
        paths = figures.paths.paths
        sources.append(figures.paths.source)
    met = None if load.p99_ms is None else figured.p99_ms <= load.p99_ms * (1 - headroom)
    return MediumNeed(
        medium=str(protocol) if protocol is Protocol.NVME else f"{protocol} ssd",
        drives=drives,
        each=each,
        unit=unit,
        p99_ms=figured.p99_ms,
        met=None if large else met,
        in_flight=None if drives is None or large else load.iops / drives * figured.p99_ms / 1e3,
        knee=figured.knee,
        paths=paths,
        sources=tuple(dict.fromkeys(sources)),
    )


def _mix(load: WantedLoad, figures: SizingFigures) -> float:
    """Return the share of the peak of reads that is left: all of it, down to that of the mix."""
    writes, known = 100 - load.reads, 100 - figures.mix.reads
    return 1 - figures.mix.cost / 100 * min(1.0, writes / known)


def _drive_rate(load: WantedLoad, figures: SizingFigures) -> float:
    """Return the GB/s of a drive that reads and writes in turn."""
    share = load.reads / 100
    drive = figures.drive
    return 1 / (share / drive.read_gb_per_s + (1 - share) / drive.write_gb_per_s)


def _links(load: WantedLoad, headroom: float, yardsticks: Yardsticks) -> Iterator[LinkNeed]:
    measured = {
        (gen, width): (each.gb_per_s / each.adapters, each.source)
        for each in yardsticks.link
        for gen in each.when.gen
        for width in each.when.width
    }
    for speed, gen in GENERATIONS.items():
        for width in WIDTHS:
            rate, source = measured.get((gen, width), (None, ""))
            if rate is None:
                rate, source = link_ceiling(Link(speed, width, speed, width)), "PCI Express"
            if rate is not None:
                yield LinkNeed(
                    gen, width, round_up(load.gb_per_s / (1 - headroom) / rate), rate, source
                )


def _raid(
    figured: RaidFigures, load: WantedLoad, headroom: float, figures: SizingFigures
) -> RaidNeed:
    [gen] = figured.when.gen
    reads = load.reads / 100
    large = load.block >= figures.block.large
    small = load.iops * (reads / figured.random_read + (1 - reads) / figured.random_write)
    through = load.gb_per_s * (reads / figured.read_gb_per_s + (1 - reads) / figured.write_gb_per_s)
    used = through if large else max(small, through)
    known = _saturation(figured, gen, figures.saturation)
    sources = [figured.source]
    ssds: dict[str, int] = {}
    if known is not None:
        counts = known.large if large else known.small
        share = used / (1 - headroom)
        ssds = {ssd: round_up(share * each) for ssd, each in zip(known.ssd, counts, strict=True)}
        sources.append(known.source)
    return RaidNeed(
        card=figured.card,
        gen=gen,
        level=figured.level,
        pairs=round_up(used / (1 - headroom)),
        used=used,
        ssds=ssds,
        advised=not (figured.card == CACHELESS and figured.level == 6),
        sources=tuple(sources),
    )


def _saturation(figured: RaidFigures, gen: int, known: Iterable[Saturation]) -> Saturation | None:
    if figured.level != _RAID5:
        return None  # the document's numbers are those of RAID 5
    return next((each for each in known if (each.card, each.gen) == (figured.card, gen)), None)
