"""The shipped tables that rules refer to.

Sources (the documents' recommendations and the kernel's facts, by id), the LUN limits of each make
of shared array, and the measurements of the documents, to compare results with.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hbatune.policy.files import PolicyError, nearest, read_toml
from hbatune.policy.model import LinkMatch, Match, Source, Text
from hbatune.policy.schema import SourcesFile, decode

SOURCES, ARRAYS, YARDSTICKS = FILES = ("sources.toml", "arrays.toml", "yardsticks.toml")


@cache  # shipped files change only together with the code
def load_sources(shipped: Path) -> Mapping[str, Source]:
    """Return every shipped source by its id, such as ``D0-1`` or ``K-nr-requests``.

    Raises ``PolicyError`` if one cites a document that the file does not name.
    """
    file = read_toml(shipped / SOURCES)
    table = decode(file, SourcesFile)
    sources = {}
    for name, entry in table.source.items():
        document = table.document.get(entry.document)
        if document is None:
            raise PolicyError(
                f"cites document {entry.document}, which has no table",
                file=file.path,
                place=f"source {name}",
                hint=nearest(entry.document, table.document),
            )
        sources[name] = Source(name, entry.document, document.title, entry.section, entry.says)
    return sources


Commands = Annotated[int, Meta(ge=1, le=65536)]


class ArrayModel(Struct, frozen=True, forbid_unknown_fields=True):
    """One make of array: ``lun_depth`` commands for each LUN, and more for each data drive.

    ``vendor`` and ``model`` are globs for the LUNs' standard INQUIRY data (SPC-4 6.6.2), of which
    one each must fit.
    """

    name: Text
    vendor: Annotated[tuple[Text, ...], Meta(min_length=1)]
    model: Annotated[tuple[Text, ...], Meta(min_length=1)]
    lun_depth: Commands
    source: Text
    per_data_drive: Annotated[int, Meta(ge=0, le=1024)] = 0


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    array: tuple[ArrayModel, ...]


@cache
def load_arrays(shipped: Path) -> tuple[ArrayModel, ...]:
    """Return the known makes of arrays. Raises ``PolicyError``."""
    file = read_toml(shipped / ARRAYS)
    arrays = decode(file, _File).array
    known = load_sources(shipped)
    for number, array in enumerate(arrays):
        if array.source not in known:
            raise PolicyError(
                f"cites {array.source}, which is no source",
                file=file.path,
                line=file.line(("array", number, "source")),
                hint=nearest(array.source, known),
            )
    return arrays


def model_of(vendor: str, model: str, arrays: Iterable[ArrayModel]) -> ArrayModel | None:
    """Return the make of array of a LUN with this vendor and model, None if it is not known."""
    fitting = (a for a in arrays if fits(vendor, a.vendor) and fits(model, a.model))
    return next(fitting, None)


def fits(text: str, globs: Iterable[str]) -> bool:
    """Whether one of the globs fits the text; case counts."""
    return any(fnmatchcase(text, glob) for glob in globs)


Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Range = tuple[Count, Count]


class MediumFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The measured 4K random reads of one medium: latencies at ``depth`` in ms, IOPS and knee.

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
    """The highest measured throughput of ``adapters`` behind links of one kind, in GB/s."""

    when: LinkMatch
    adapters: Count
    gb_per_s: Positive
    source: Text


class Yardsticks(Struct, frozen=True, forbid_unknown_fields=True):
    """The measurements of the documents that results can be compared with."""

    medium: tuple[MediumFigures, ...] = ()
    link: tuple[LinkFigures, ...] = ()


@cache
def load_yardsticks(shipped: Path) -> Yardsticks:
    """Return the measurements of the documents. Raises ``PolicyError``."""
    file = read_toml(shipped / YARDSTICKS)
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
