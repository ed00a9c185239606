"""Reads the files that are not configuration, within bounds: its own state and strangers' files.

Whatever a file holds, reading it takes bounded time and memory, and ends in a value of the type
asked for or in one exception that says why not. Three things are checked before the JSON is
decoded, since they are what a decoder of types does not bound: how deep it nests, how many values
it has, and how large its numbers are. Ranges of single fields stand in their types.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

Moment = Annotated[float, Meta(ge=0, le=253_402_214_400)]
"""Seconds since the epoch, up to the year 9999: localtime(3) knows no later one."""

WholeMoment = Annotated[int, Meta(ge=0, le=253_402_214_400)]
"""A moment in whole seconds since the epoch, as far as ``Moment`` goes."""

Figure = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""A measured figure, in whatever unit: beyond any that a device reaches."""

Seconds = Annotated[float, Meta(gt=0, le=1e9)]
"""A time that something took: it is divided by."""

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A number of things."""

DEEPEST = 32
"""Levels that a file may nest; the deepest of hbatune's own files has twelve."""

Loaded = TypeVar("Loaded")


class Bounds(Struct, frozen=True):
    """What a file may take at most: its bytes, its values, and those of them that are objects.

    An object in memory takes up to 250 bytes, any other value up to 60, whatever the file's size.
    """

    bytes: int
    values: int
    objects: int


SMALL = Bounds(bytes=1 << 20, values=50_000, objects=10_000)
"""For a file of one process, with an id for each of its targets."""

HISTORY = Bounds(bytes=8 << 20, values=1_000_000, objects=200_000)
"""For a history, whose file hbatune keeps below 4 MiB."""

OWN = Bounds(bytes=256 << 20, values=25_000_000, objects=5_000_000)
"""For hbatune's own state. Refusing it would be worse than reading it: a journal has a line for
each setting of each of thousands of LUNs, and is needed to put them back."""

FOREIGN = Bounds(bytes=16 << 20, values=2_500_000, objects=400_000)
"""For strangers' files: in memory no more than 256 MiB. A host with 4,096 LUNs takes half of it."""


class UnusableFileError(Exception):
    """A file that cannot be read, or that is not what it should be; its text is the reason."""


def load(path: Path, type: type[Loaded], bounds: Bounds) -> Loaded:
    """Return the content of a JSON file as a value of this type.

    FileNotFoundError where there is none, PermissionError where this user may not read it, and
    UnusableFileError for all else.
    """
    return decode(read(path, bounds), type)


def read(path: Path, bounds: Bounds) -> bytes:
    """Return the bytes of a JSON file that is within the bounds; raises as ``load`` does."""
    data = read_bytes(path, bounds.bytes)
    require_bounded(data, bounds)
    return data


def read_bytes(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file with no more than ``most``; raises as ``load`` does."""
    try:
        with opened(path) as descriptor:
            return content(descriptor, most)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise UnusableFileError(error.strerror or str(error)) from error
    except ValueError as error:  # a name with a null byte
        raise UnusableFileError(str(error)) from error


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a regular file for reading; UnusableFileError for anything else, OSError as open(2).

    A link is followed. A FIFO is not waited for, and a device is not even opened: for a tape or a
    watchdog that alone has an effect.
    """
    _require_regular(os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        # Again, of the file that was opened: another may have taken its name meanwhile.
        _require_regular(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def content(descriptor: int, most: int) -> bytes:
    """Return the bytes of an open file; UnusableFileError where it has more than ``most``."""
    data = beginning(descriptor, most + 1)
    # One byte more than allowed shows that it is too large, whatever fstat(2) said of its size.
    if len(data) > most:
        raise UnusableFileError(_too_large(most))
    return data


def beginning(descriptor: int, most: int) -> bytes:
    """Return the first ``most`` bytes of an open file, all of them if it has no more."""
    parts, left = list[bytes](), most
    while left and (part := os.read(descriptor, min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def decode(data: bytes, type: type[Loaded]) -> Loaded:
    """Return JSON that ``require_bounded`` has passed as a value of this type, or raise as it."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnusableFileError(str(error)) from error


def encode_keeping(value: Struct, before: bytes) -> bytes:
    """Return the value as JSON, with the fields of ``before`` that its type does not have.

    ``before`` is the content of the file that is replaced: a newer version may have written fields
    into it that this one does not know, and would find them gone. Elements of a list are matched by
    their content, else by their ``id`` and ``setting`` or by their ``path``.
    """
    data = msgspec.json.encode(value)
    try:
        known = decode(before, type(value))
    except UnusableFileError:
        return data
    plain = msgspec.json.encode(known)
    if plain == before:  # nearly always
        return data
    raw, typed, new = map(msgspec.json.decode, (before, plain, data))
    return msgspec.json.encode(_keeping(raw, typed, new))


def _keeping(raw: object, typed: object, new: object) -> object:
    """Return ``new`` with what ``raw`` has beyond ``typed``, the same in this version's types."""
    if isinstance(raw, dict) and isinstance(typed, dict) and isinstance(new, dict):
        kept = {
            name: _keeping(raw.get(name), typed.get(name), value) for name, value in new.items()
        }
        return kept | {name: value for name, value in raw.items() if name not in typed}
    if isinstance(raw, list) and isinstance(typed, list) and isinstance(new, list):
        both = list(zip(raw, typed, strict=False))
        same = {msgspec.json.encode(each[1]): each for each in both}
        named = {name: each for each in both if (name := _name(each[1]))}
        found = (
            same.get(msgspec.json.encode(each)) or named.get(_name(each) or ()) for each in new
        )
        return [
            each if pair is None else _keeping(*pair, each)
            for each, pair in zip(new, found, strict=True)
        ]
    return new


def _name(element: object) -> tuple[object, ...] | None:
    """Return what tells an element from all others, None where nothing does."""
    if isinstance(element, dict):
        for keys in (("id", "setting"), ("path",)):
            if all(key in element for key in keys):
                return tuple(element[key] for key in keys)
    return None


def require_bounded(data: bytes, bounds: Bounds) -> None:
    """Raise UnusableFileError for JSON that is too large, too deep, or has unusual numbers."""
    if len(data) > bounds.bytes:
        raise UnusableFileError(_too_large(bounds.bytes))
    # What stands in strings is counted as well, which makes the bounds stricter, never laxer.
    objects = data.count(b"{")
    values = objects + sum(map(data.count, (b"[", b",", b":")))
    if values > bounds.values or objects > bounds.objects:
        most = f"{bounds.values:,} values, {bounds.objects:,} objects"
        raise UnusableFileError(f"more in it than such a file may have ({most})")
    if _too_deep(data):
        raise UnusableFileError(f"nested more than {DEEPEST} levels deep")
    if re.search(_UNUSUAL, data):
        raise UnusableFileError("a number in it is out of range")


_CHUNK = 1 << 20

_UNUSUAL = (
    rb"[\[:,]\s*+-?(?:[0-9]{21}|[0-9]*+\.[0-9]{41}|[0-9]++(?:\.[0-9]*+)?[eE]"
    rb"(?:\+?0*+(?:[2-9][0-9]|[0-9]{3})|-0*+[0-9]{3}))[0-9.eE+-]*+\s*+[\],}]"
)
"""A number that no file of hbatune has: 10**20 and more, or so small that a quotient overflows.

With all others sums, products and quotients of a few stay finite.
"""

_BRACKETS = bytes.maketrans(b"{}", b"[]")
_BETWEEN = bytes(set(range(256)) - set(b'"[]{}'))
_STRING = rb'"[^"]*"?'


def _too_deep(data: bytes) -> bool:
    """Whether JSON nests deeper than ``DEEPEST``; broken JSON may, up to where it breaks.

    Without recursion, and without a step for each character.
    """
    if data.count(b"{") + data.count(b"[") <= DEEPEST:
        return False
    # Escaped quotes first; then only quotes and brackets, and of these what is not in a string.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_BRACKETS, _BETWEEN)
    bare = re.sub(_STRING, b"", bare.replace(b'""', b""))
    for _ in range(DEEPEST):
        bare = bare.replace(b"[]", b"")  # the innermost level
    return b"[]" in bare or bare.count(b"[") > DEEPEST


def _require_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnusableFileError("not a regular file")


def _too_large(most: int) -> str:
    return f"larger than {most >> 20} MiB" if most >= 1 << 20 else f"larger than {most} bytes"
