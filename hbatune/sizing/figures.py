"""The documents' figures that sizing rests on beside the yardsticks, from ``rules/sizing.toml``."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hbatune.facts.model import Protocol
from hbatune.policy.files import PolicyError, nearest, read_toml
from hbatune.policy.load import SIZING, load_sources
from hbatune.policy.model import Text
from hbatune.policy.schema import decode

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


class MixFigures(Struct, frozen=True, forbid_unknown_fields=True):
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
    mix: MixFigures
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
