"""Read files other than the configuration within bounds: hbatune's state and foreign files.

Reading any file takes bounded time and memory. It ends in a value of the requested type, or in one
exception that gives the reason. A decoder of types does not bound nesting depth, number of values,
and magnitude of numbers: they are checked before the JSON is decoded.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from hbatune.errors import HbatuneError, UsageError

Moment = Annotated[float, Meta(ge=0, le=253_402_214_400)]
"""Seconds since the epoch, up to the year 9999: localtime(3) knows no later one."""

WholeMoment = Annotated[int, Meta(ge=0, le=253_402_214_400)]
"""A moment in whole seconds since the epoch, with the range of ``Moment``."""

Figure = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""A measured value in any unit: the limits are beyond any device."""

Seconds = Annotated[float, Meta(gt=0, le=1e9)]
"""A duration that is used as a divisor."""

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A number of items."""

MAX_DEPTH = 32
"""Maximum nesting levels of a file; the deepest file that hbatune writes has twelve."""

ShortText = Annotated[str, Meta(max_length=4096)]
"""A name, a path or a phrase. No path in the kernel is longer (linux/limits.h: PATH_MAX)."""

LongText = Annotated[str, Meta(max_length=65_536)]
"""The text of a file in sysfs, which has one page at most, or a message with many names."""

ErrorNumber = Annotated[int, Meta(ge=0, le=4095)]
"""An errno (include/linux/err.h: MAX_ERRNO). ``os.strerror`` fails for one beyond a C int."""

Loaded = TypeVar("Loaded")
Default = TypeVar("Default")


class Bounds(Struct, frozen=True):
    """The maximum size of a file: its bytes, its values, and how many of them are objects.

    An object in memory takes up to 250 bytes, any other value up to 60, regardless of the file's
    size.
    """

    bytes: int
    values: int
    objects: int


SMALL_BOUNDS = Bounds(bytes=1 << 20, values=50_000, objects=10_000)
"""For a file of one process, with an id for each of its targets."""

HISTORY_BOUNDS = Bounds(bytes=8 << 20, values=1_000_000, objects=200_000)
"""For a history, whose file hbatune keeps below 4 MiB."""

STATE_BOUNDS = Bounds(bytes=256 << 20, values=25_000_000, objects=5_000_000)
"""For hbatune's state. Refusing it would be worse than reading it: a journal has a line for each
setting of each of thousands of LUNs, and is needed to restore them."""

FOREIGN_BOUNDS = Bounds(bytes=16 << 20, values=2_500_000, objects=400_000)
"""For foreign files: at most 256 MiB in memory. A host with 4,096 LUNs takes half of it."""


class UnusableFileError(Exception):
    """A file that cannot be read, or that has invalid content; its text is the reason."""


def load(path: Path, type: type[Loaded], bounds: Bounds) -> Loaded:
    """Return a JSON file's content. FileNotFoundError, PermissionError or UnusableFileError."""
    return decode(read(path, bounds), type)


def load_or(path: Path, default: Default, bounds: Bounds, type: type[Loaded]) -> Loaded | Default:
    """Return the content of a JSON file, or the default for a missing or an unusable one."""
    try:
        return load(path, type, bounds)
    except (OSError, UnusableFileError):
        return default


def is_missing(path: Path) -> bool:
    """Return whether there is no file. An invisible one, in a closed directory, is not missing."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


class _HasSchema(Protocol):
    @property
    def schema(self) -> str: ...


State = TypeVar("State", bound=_HasSchema)


class StateFile(Struct, Generic[State], frozen=True):
    """A type of JSON file of hbatune's state; ``name`` begins the messages about it.

    ``load`` raises ``error`` with ``hint`` for an unreadable file, and with ``version_hint`` for
    one of another ``schema``. With ``sudo`` it raises UsageError without permission to read it.
    """

    name: str
    content: type[State]
    schema: str
    bounds: Bounds
    error: type[HbatuneError]
    hint: str
    version_hint: str | None = None
    sudo: bool = True

    def load(self, path: Path) -> State | None:
        """Return the content of the file at ``path``, or None if there is no file."""
        subject = f"{self.name} {path}".lstrip()
        try:
            content = load(path, self.content, self.bounds)
        except FileNotFoundError:
            return None
        except (OSError, UnusableFileError) as error:
            if self.sudo and isinstance(error, PermissionError):
                raise UsageError(f"{subject} is root's to read", hint="run it with sudo") from error
            raise self.error(f"{subject} cannot be read: {error}", hint=self.hint) from error
        if content.schema != self.schema:
            message = f"{subject} is of schema {content.schema}, not {self.schema}"
            raise self.error(message, hint=self.version_hint)
        return content


def read(path: Path, bounds: Bounds) -> bytes:
    """Return the bytes of a JSON file that is within the bounds; raises as ``load`` does."""
    data = read_bytes(path, bounds.bytes)
    require_bounded(data, bounds)
    return data


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file with at most ``limit`` bytes; raises as ``load`` does."""
    try:
        with open_file(path) as descriptor:
            # One byte more than allowed shows that it is too large, regardless of its size in stat.
            data = read_beginning(descriptor, limit + 1)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise UnusableFileError(error.strerror or str(error)) from error
    except ValueError as error:  # a name with a null byte
        raise UnusableFileError(str(error)) from error
    if len(data) > limit:
        raise UnusableFileError(_describe_too_large(limit))
    return data


@contextmanager
def close_on_exit(descriptor: int) -> Iterator[int]:
    """Close the descriptor at the end of the block, which gets it."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_file(path: Path) -> Iterator[int]:
    """Open a regular file for reading; UnusableFileError for anything else, OSError as open(2).

    A link is followed. A FIFO is not awaited, and a device is not opened, since opening a tape or a
    watchdog has an effect.
    """
    _require_regular(os.stat(path))
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with close_on_exit(os.open(path, flags)) as descriptor:
        # Again, of the opened file: another may have been given its name since.
        _require_regular(os.fstat(descriptor))
        yield descriptor


def read_beginning(descriptor: int, limit: int) -> bytes:
    """Return the first ``limit`` bytes of an open file, or all of them if it has no more."""
    parts, remaining = list[bytes](), limit
    while remaining and (part := os.read(descriptor, min(remaining, _CHUNK))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def decode(data: bytes, type: type[Loaded]) -> Loaded:
    """Return JSON as a value of this type; UnusableFileError for anything else."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # "[" 5,000 times
        raise UnusableFileError(str(error)) from error


def encode_merged(value: Struct, before: bytes) -> bytes:
    """Return the value as JSON, with the fields of ``before`` that its type does not have.

    A newer version may have written them to the file that is replaced. List elements are
    matched by content, by ``id`` and ``setting``, or by ``path``.
    """
    data = msgspec.json.encode(value)
    try:
        decoded = decode(before, type(value))
    except UnusableFileError:
        return data
    plain = msgspec.json.encode(decoded)
    if plain == before:  # the usual case
        return data
    raw, typed, new = map(msgspec.json.decode, (before, plain, data))
    return msgspec.json.encode(_merge_unknown_fields(raw, typed, new))


def _merge_unknown_fields(raw: object, typed: object, new: object) -> object:
    """Return ``new`` with the fields of ``raw`` that are not in ``typed``, its typed form."""
    if isinstance(raw, dict) and isinstance(typed, dict) and isinstance(new, dict):
        merged = {
            name: _merge_unknown_fields(raw.get(name), typed.get(name), value)
            for name, value in new.items()
        }
        return merged | {name: value for name, value in raw.items() if name not in typed}
    if isinstance(raw, list) and isinstance(typed, list) and isinstance(new, list):
        pairs = list(zip(raw, typed, strict=False))
        by_content = {msgspec.json.encode(pair[1]): pair for pair in pairs}
        by_key = {key: pair for pair in pairs if (key := _identify(pair[1]))}
        elements = []
        for element in new:
            encoded = msgspec.json.encode(element)
            pair = by_content.get(encoded) or by_key.get(_identify(element) or ())
            elements.append(element if pair is None else _merge_unknown_fields(*pair, element))
        return elements
    return new


def _identify(element: object) -> tuple[object, ...] | None:
    """Return the key that identifies an element, or None."""
    if isinstance(element, dict):
        for keys in (("id", "setting"), ("path",)):
            if all(key in element for key in keys):
                return tuple(element[key] for key in keys)
    return None


def require_bounded(data: bytes, bounds: Bounds) -> None:
    """Raise UnusableFileError for JSON that is too large, too deep, or has unusual numbers."""
    if len(data) > bounds.bytes:
        raise UnusableFileError(_describe_too_large(bounds.bytes))
    # Characters in strings are counted as well, which makes the bounds stricter, never laxer.
    objects = data.count(b"{")
    values = objects + sum(map(data.count, (b"[", b",", b":")))
    if values > bounds.values or objects > bounds.objects:
        limits = f"{bounds.values:,} values, {bounds.objects:,} objects"
        raise UnusableFileError(f"more in it than such a file may have ({limits})")
    if _is_too_deep(data):
        raise UnusableFileError(f"nested more than {MAX_DEPTH} levels deep")
    if re.search(_UNUSUAL, data):
        raise UnusableFileError("a number in it is out of range")


_CHUNK = 1 << 20

_UNUSUAL = (
    rb"[\[:,]\s*+-?(?:[0-9]{21}|[0-9]*+\.[0-9]{41}|[0-9]++(?:\.[0-9]*+)?[eE]"
    rb"(?:\+?0*+(?:[2-9][0-9]|[0-9]{3})|-0*+[0-9]{3}))[0-9.eE+-]*+\s*+[\],}]"
)
"""A number that no file of hbatune has: 10**20 and more, or so small that a quotient overflows."""

_BRACKETS = bytes.maketrans(b"{}", b"[]")
_BETWEEN = bytes(set(range(256)) - set(b'"[]{}'))
_STRING = rb'"[^"]*"?'


def _is_too_deep(data: bytes) -> bool:
    """Return whether JSON nests too deep, without recursion or a step for each character."""
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return False
    # Remove escaped quotes, then all but quotes and brackets, and then strings.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_BRACKETS, _BETWEEN)
    bare = re.sub(_STRING, b"", bare.replace(b'""', b""))
    for _ in range(MAX_DEPTH):
        bare = bare.replace(b"[]", b"")  # the innermost level
    return b"[]" in bare or bare.count(b"[") > MAX_DEPTH


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnusableFileError("not a regular file")


def _describe_too_large(limit: int) -> str:
    return f"larger than {limit >> 20} MiB" if limit >= 1 << 20 else f"larger than {limit} bytes"
