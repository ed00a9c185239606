"""What each make of shared array takes for each LUN: shipped, by SCSI vendor and model."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hbatune.policy.errors import PolicyError, nearest
from hbatune.policy.files import read_toml
from hbatune.policy.model import Text
from hbatune.policy.schema import decode
from hbatune.policy.sources import load_sources

FILE = "arrays.toml"

Commands = Annotated[int, Meta(ge=1, le=65536)]


class ArrayModel(Struct, frozen=True, forbid_unknown_fields=True):
    """One make of array: ``lun_depth`` commands for each LUN, and more for each data drive.

    ``vendor`` and ``model`` are globs for what the LUNs say of themselves (SPC-4 6.6.2: standard
    INQUIRY data), of which one each must fit.
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
    """Return the makes of arrays that are known. Raises ``PolicyError``."""
    file = read_toml(shipped / FILE)
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
    """Return the make of array that a LUN with this vendor and model is on, if it is known."""
    fitting = (a for a in arrays if fits(vendor, a.vendor) and fits(model, a.model))
    return next(fitting, None)


def fits(text: str, globs: Iterable[str]) -> bool:
    """Whether one of the globs fits, by case."""
    return any(fnmatchcase(text, glob) for glob in globs)
