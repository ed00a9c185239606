"""What the documents measured on each medium and link: shipped, to be printed beside results."""

from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hbatune.policy.errors import PolicyError, nearest
from hbatune.policy.files import read_toml
from hbatune.policy.model import LinkMatch, Match, Text
from hbatune.policy.schema import decode
from hbatune.policy.sources import load_sources

FILE = "yardsticks.toml"

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Range = tuple[Count, Count]


class MediumFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """What 4K random reads did on one medium: latencies at ``depth`` in ms, IOPS and knee.

    ``iops`` and ``knee`` go from the least to the most.
    """

    when: Match
    depth: Count
    p95_ms: Positive
    p99_ms: Positive
    p999_ms: Positive
    iops: Range
    source: Text
    knee: Range | None = None


class LinkFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """What ``adapters`` behind links of one kind each gave together at most, in GB/s."""

    when: LinkMatch
    adapters: Count
    gb_per_s: Positive
    source: Text


class Yardsticks(Struct, frozen=True, forbid_unknown_fields=True):
    """All that the documents measured and results can be held against."""

    medium: tuple[MediumFigures, ...] = ()
    link: tuple[LinkFigures, ...] = ()


@cache
def load_yardsticks(shipped: Path) -> Yardsticks:
    """Return what the documents measured. Raises ``PolicyError``."""
    file = read_toml(shipped / FILE)
    found = decode(file, Yardsticks)
    known = load_sources(shipped)
    for table in ("medium", "link"):
        for number, each in enumerate(getattr(found, table)):
            if each.source not in known:
                raise PolicyError(
                    f"cites {each.source}, which is no source",
                    file=file.path,
                    line=file.line((table, number, "source")),
                    hint=nearest(each.source, known),
                )
    return found
