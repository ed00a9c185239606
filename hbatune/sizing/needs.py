"""Calculate the hardware that a load needs: drives, paths, links and pairs of adapters.

The figures are from ``rules/sizing.toml`` and from the yardsticks. Each is the minimum that its
document gives, and each answer names its source. A need is None if no document has a figure for
such a load. The functions are pure, except ``read_moments``.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hbatune import loader
from hbatune.errors import UsageError
from hbatune.facts.model import GENERATIONS, Link, Protocol
from hbatune.loader import Figure, ShortText
from hbatune.policy import profile
from hbatune.policy.library import Count, MediumFigures, Positive, RaidFigures, Yardsticks
from hbatune.probe.comparison import compute_link_ceiling

Percent = Annotated[int, Meta(ge=0, le=99)]
_WATCH_SCHEMA = "hbatune.watch/1"
_MAX_DEPTH = 4096  # probe/workloads.py: Depth


class CitedFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """Figures of a document; ``source`` is its id."""

    source: profile.Text


class PathFigures(CitedFigures, frozen=True):
    """The number of paths that a load of ``iops`` or more requires."""

    protocol: Protocol
    iops: Count
    paths: Count


class MixPenalty(CitedFigures, frozen=True):
    """The cost of a mix with ``reads`` percent of reads, in percent of the peak of pure reads."""

    reads: Percent
    cost: Percent


class DriveFigures(CitedFigures, frozen=True):
    """The throughput of one drive in GB/s."""

    protocol: Protocol
    read_gb_per_s: Positive
    write_gb_per_s: Positive


class BlockFigures(CitedFigures, frozen=True):
    """Block sizes in bytes: up to ``small`` IOPS are the limit, at ``large`` or more throughput."""

    small: Count
    large: Count


class Saturation(CitedFigures, frozen=True):
    """The number of SSDs that a pair of one card can fully use in slots of one generation, RAID 5.

    ``small`` and ``large`` (blocks) have a number for each generation of SSD in ``ssd``. A number
    equal to ``attach``, the maximum that can be attached, is a lower bound.
    """

    card: profile.Text
    gen: Count
    attach: Count
    ssd: tuple[profile.Text, ...]
    small: tuple[Count, ...]
    large: tuple[Count, ...]

    def list_counts(self, *, large_blocks: bool) -> dict[str, int]:
        """Return the number of SSDs of each generation."""
        return dict(zip(self.ssd, self.large if large_blocks else self.small, strict=True))

    def is_lower_bound(self, count: int) -> bool:
        """Return whether the pair can use more SSDs than this number of the document."""
        return count == self.attach


class DrawerFigures(CitedFigures, frozen=True):
    """The drawers of a pair with SSDs: ``few`` up to this throughput, ``many`` beyond it."""

    few: Count
    many: Count
    gb_per_s: Positive


class HddFigures(CitedFigures, frozen=True):
    """The maximum number of HDDs, and of their drawers, on one pair of adapters."""

    drives: Count
    drawers: Count


class SizingFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """All figures of ``rules/sizing.toml``."""

    paths: PathFigures
    mix: MixPenalty
    drive: DriveFigures
    block: BlockFigures
    drawers: DrawerFigures
    hdd: HddFigures
    saturation: tuple[Saturation, ...]


DEFAULT_BLOCK_SIZE = 4096
"""The default block size in bytes. The documents' figures use it."""

SEQUENTIAL_BLOCK_SIZE = 1 << 20
"""The block size in bytes if only a throughput is given. D4's sequential corners use it."""


class WantedLoad(Struct, frozen=True):
    """A load: I/Os and GB per second, bytes of each I/O, percent of reads, the p99 in ms.

    ``p99_ms`` is None if the p99 does not matter. ``hdd_iops`` is the rate of one HDD at this load,
    or None if it is unknown. No document has it.
    """

    iops: float
    gb_per_s: float
    block: int
    reads: int
    p99_ms: float | None
    hdd_iops: float | None = None


class WatchedReading(Struct, frozen=True):
    """A reading in a line of `watch --json`, reduced to the fields of a load."""

    iops: Figure
    read_bytes_per_s: Figure
    write_bytes_per_s: Figure
    adapter: ShortText | None = None
    p99_ms: Figure | None = None
    target: ShortText = ""
    id: ShortText = ""
    in_flight: Figure = 0.0


class WatchedMoment(Struct, frozen=True):
    """A line of `watch --json`."""

    schema: ShortText
    readings: tuple[WatchedReading, ...]


def read_moments(path: Path) -> Iterator[WatchedMoment]:
    """Yield the lines of a `watch --json` file; UsageError for another file."""
    try:
        data = loader.read_bytes(path, loader.FOREIGN_BOUNDS.bytes)
    except loader.UnusableFileError as error:
        raise UsageError(f"{str(path)!r}: {error}") from error
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            loader.require_bounded(line, loader.FOREIGN_BOUNDS)
            moment = loader.decode(line, WatchedMoment)
        except loader.UnusableFileError as error:
            problem = f"not what `hbatune watch --json` prints: {error}"
            raise UsageError(f"{str(path)!r}, line {number}: {problem}") from error
        if moment.schema != _WATCH_SCHEMA:
            problem = f"has schema {moment.schema}, not {_WATCH_SCHEMA}"
            raise UsageError(f"{str(path)!r}, line {number}: {problem}")
        yield moment


def make_load(
    iops: float | None, gb_per_s: float | None, block: int | None, reads: int, p99_ms: float | None
) -> WantedLoad:
    """Return a load from a rate or a throughput. If all three are given, the larger one counts."""
    size = block or (SEQUENTIAL_BLOCK_SIZE if iops is None else DEFAULT_BLOCK_SIZE)
    rate = (gb_per_s or 0.0) * 1e9 / size if iops is None else iops
    return WantedLoad(rate, max(rate * size / 1e9, gb_per_s or 0.0), size, reads, p99_ms)


def find_busiest_load(moments: Iterable[WatchedMoment]) -> WantedLoad:
    """Return the load of the moment with the most I/Os. UsageError if no moment has any."""
    best = max(map(_sum_load, moments), key=lambda load: load.iops, default=None)
    if best is None or not best.iops:
        raise UsageError("the output of watch has no I/O", hint="watch while it works")
    return best


def find_running_depth(moments: Iterable[WatchedMoment], disk: str, id: str = "") -> int:
    """Return the mean number of I/Os in flight on a disk while it had any (D2-8).

    The disk is given by target or id. If its ``id`` is also given, only the id identifies it. The
    result is from 1 to the maximum depth of a workload. UsageError if there is no I/O.
    """
    depths = []
    for moment in moments:
        for reading in moment.readings:
            if (id or disk) in (reading.target, reading.id) and reading.in_flight > 0:
                depths.append(reading.in_flight)
    if not depths:
        hint = "watch while it works, and name a disk that it uses"
        raise UsageError(f"watch has seen no I/O of {disk!r}", hint=hint)
    return min(_MAX_DEPTH, max(1, round(sum(depths) / len(depths))))


def _sum_load(moment: WatchedMoment) -> WantedLoad:
    # A map has no adapter: its I/O is counted at its paths.
    with_adapter = [reading for reading in moment.readings if reading.adapter is not None]
    counted = with_adapter or moment.readings
    iops = sum(max(reading.iops, 0.0) for reading in counted)
    reads = sum(max(reading.read_bytes_per_s, 0.0) for reading in counted)
    through = reads + sum(max(reading.write_bytes_per_s, 0.0) for reading in counted)
    return WantedLoad(
        iops=iops,
        gb_per_s=through / 1e9,
        block=max(512, round(through / iops)) if iops else DEFAULT_BLOCK_SIZE,
        reads=round(100 * reads / through) if through else 100,
        p99_ms=None,
    )


LINK_WIDTHS = (8, 16)
"""Lanes of the links in the answer. The documents' adapters have these."""

NCQ_DEPTH = 32  # include/linux/libata.h: ATA_MAX_QUEUE
CACHELESS_CARD = "57B4 (D4)"
"""The documents' card without a cache; RAID 6 is not recommended on it (D4-12)."""

PCI_EXPRESS = "PCI Express"  # the source of a link's theoretical maximum
HDD = "hdd"  # the medium of a need for HDDs


class MediumNeed(Struct, frozen=True, kw_only=True):
    """The drives of one medium: ``each`` is the rate of one drive in IOPS or GB/s (``unit``).

    ``drives`` is None if no document has a figure for such a load. ``met`` is whether their p99 is
    within the wanted p99, with headroom, or None if no p99 is wanted. ``in_flight`` are the I/Os on
    each drive by Little's law at that p99, at most NCQ's 32 on SATA. Beyond ``knee``,
    more I/Os only wait. ``p99_ms`` is None if no document has it for this load. ``pairs`` of
    adapters and ``drawers`` are given for HDDs only.
    """

    medium: str
    drives: int | None
    each: float | None
    unit: str
    p99_ms: float | None = None
    met: bool | None = None
    in_flight: float | None = None
    knee: tuple[int, int] | None = None
    paths: int = 1
    sources: tuple[str, ...]
    pairs: int | None = None
    drawers: int | None = None


class LinkNeed(Struct, frozen=True):
    """The links of one generation and width. One link carries ``each`` GB/s.

    ``source`` is a document, or PCI Express for the theoretical maximum of the link.
    """

    gen: int
    width: int
    links: int
    each: float
    source: str


class RaidNeed(Struct, frozen=True):
    """The pairs of one card for arrays of one level, in slots of one generation.

    ``used`` is the fraction of one pair that the load takes, without headroom. ``ssds`` are the
    drives that the load needs, by generation of SSD, if a document has a figure. It needs more than
    that for the generations in ``more_than``. ``advised`` is False for RAID 6 without a cache. Each
    pair has ``drawers``.
    """

    card: str
    gen: int
    level: int
    pairs: int
    used: float
    ssds: dict[str, int]
    advised: bool
    sources: tuple[str, ...]
    more_than: tuple[str, ...]
    drawers: int


class Needs(Struct, frozen=True):
    """All needs of a load; ``headroom`` is the fraction that stays free, 0 to 1.

    ``mix_known`` is False if the load has more writes than any figure of the documents. The pairs
    in ``saturation`` use their numbers for large blocks if the load has ``large_blocks``.
    """

    load: WantedLoad
    headroom: float
    mix_known: bool
    media: tuple[MediumNeed, ...]
    links: tuple[LinkNeed, ...]
    raid: tuple[RaidNeed, ...]
    saturation: tuple[Saturation, ...]
    large_blocks: bool


def find_needs(
    load: WantedLoad, headroom: float, yardsticks: Yardsticks, figures: SizingFigures
) -> Needs:
    """Return the needs of the load, with this fraction of each resource kept free."""
    media = [_size_medium(row, load, headroom, figures) for row in yardsticks.medium]
    if load.hdd_iops is not None:
        media.append(_size_hdds(load.hdd_iops, load, headroom, figures.hdd))
    return Needs(
        load=load,
        headroom=headroom,
        mix_known=load.reads >= figures.mix.reads,
        media=tuple(media),
        links=tuple(_size_links(load, headroom, yardsticks)),
        raid=tuple(_size_raid(row, load, headroom, figures) for row in yardsticks.raid),
        saturation=figures.saturation,
        large_blocks=load.block >= figures.block.large,
    )


def round_up(number: float) -> int:
    """Round up to the next integer, at least 1. A rounding error requires no further drive."""
    return max(1, math.ceil(number - 1e-9))


def _size_medium(
    figured: MediumFigures, load: WantedLoad, headroom: float, figures: SizingFigures
) -> MediumNeed:
    [protocol] = figured.when.protocol
    large = load.block > figures.block.small
    rate, sources, drive = None, [], figures.drive
    if not large:
        # Of the peak of pure reads, the mix of the document costs its percentage, others less.
        mix_part = min(1.0, (100 - load.reads) / (100 - figures.mix.reads))
        rate = figured.iops[0] * (1 - figures.mix.cost / 100 * mix_part)
        sources.append(figured.source)
        if load.reads < 100:
            sources.append(figures.mix.source)
    elif protocol is drive.protocol:
        # The drive alternates between reads and writes.
        reads = load.reads / 100
        rate = 1 / (reads / drive.read_gb_per_s + (1 - reads) / drive.write_gb_per_s)
        sources.append(drive.source)
    planned = load.gb_per_s if large else load.iops
    drives = None if rate is None else round_up(planned / (1 - headroom) / rate)
    paths = 1
    if protocol is figures.paths.protocol and load.iops >= figures.paths.iops:
        paths = figures.paths.paths
        sources.append(figures.paths.source)
    in_flight = None if drives is None or large else load.iops / drives * figured.p99_ms / 1e3
    if in_flight is not None and protocol is Protocol.SATA:
        in_flight = min(in_flight, NCQ_DEPTH)
    met = None if load.p99_ms is None else figured.p99_ms <= load.p99_ms * (1 - headroom)
    return MediumNeed(
        medium=str(protocol) if protocol is Protocol.NVME else f"{protocol} ssd",
        drives=drives,
        each=rate,
        unit="GB/s" if large else "IOPS",
        p99_ms=None if large else figured.p99_ms,
        met=None if large else met,
        in_flight=in_flight,
        knee=figured.knee,
        paths=paths,
        sources=tuple(dict.fromkeys(sources)),
    )


def _size_hdds(rate: float, load: WantedLoad, headroom: float, figures: HddFigures) -> MediumNeed:
    """Return the HDDs for the load. Their rates add up (D4-14)."""
    drives = round_up(load.iops / (1 - headroom) / rate)
    return MediumNeed(
        medium=HDD,
        drives=drives,
        each=rate,
        unit="IOPS",
        sources=(figures.source,),
        pairs=round_up(drives / figures.drives),
        drawers=round_up(drives * figures.drawers / figures.drives),
    )


def _size_links(load: WantedLoad, headroom: float, yardsticks: Yardsticks) -> Iterator[LinkNeed]:
    measured: dict[tuple[int, int], tuple[float | None, str]] = {}
    for link in yardsticks.link:
        for key in itertools.product(link.when.gen, link.when.width):
            measured[key] = (link.gb_per_s / link.adapters, link.source)
    for speed, gen in GENERATIONS.items():
        for width in LINK_WIDTHS:
            ceiling = compute_link_ceiling(Link(speed, width, speed, width))
            rate, source = measured.get((gen, width), (ceiling, PCI_EXPRESS))
            if rate is not None:
                links = round_up(load.gb_per_s / (1 - headroom) / rate)
                yield LinkNeed(gen, width, links, rate, source)


def _size_raid(
    figured: RaidFigures, load: WantedLoad, headroom: float, figures: SizingFigures
) -> RaidNeed:
    [gen] = figured.when.gen
    reads = load.reads / 100
    large = load.block >= figures.block.large
    small = load.iops * (reads / figured.random_read + (1 - reads) / figured.random_write)
    writing = figured.write_gb_per_s
    if not large:
        # A pair of 57B4 with RAID 5 writes more GB/s in random blocks of 4K than sequentially.
        writing = max(writing, figured.random_write * DEFAULT_BLOCK_SIZE / 1e9)
    through = load.gb_per_s * (reads / figured.read_gb_per_s + (1 - reads) / writing)
    used = through if large else max(small, through)
    planned = used / (1 - headroom)
    pairs = round_up(planned)
    is_fast = load.gb_per_s / (1 - headroom) / pairs > figures.drawers.gb_per_s
    sources, ssds, more_than = [figured.source], {}, []
    for saturation in figures.saturation:
        # The document's numbers are for RAID 5.
        if (saturation.card, saturation.gen, 5) != (figured.card, gen, figured.level):
            continue
        for ssd, count in saturation.list_counts(large_blocks=large).items():
            if saturation.is_lower_bound(count):
                # It is rounded down: "more than 24" is right for 24.3.
                ssds[ssd] = int(planned * count + 1e-9)
                more_than.append(ssd)
            else:
                ssds[ssd] = round_up(planned * count)
        sources.append(saturation.source)
    return RaidNeed(
        card=figured.card,
        gen=gen,
        level=figured.level,
        pairs=pairs,
        used=used,
        ssds=ssds,
        advised=not (figured.card == CACHELESS_CARD and figured.level == 6),
        sources=(*sources, figures.drawers.source),
        more_than=tuple(more_than),
        drawers=figures.drawers.many if is_fast else figures.drawers.few,
    )
