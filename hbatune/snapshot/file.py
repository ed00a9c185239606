"""A snapshot as bytes: JSON, compressed. The reader trusts nothing in a file."""

import re
import zlib
from pathlib import Path

import msgspec

from hbatune import loader
from hbatune.errors import UsageError
from hbatune.loader import UnusableFileError
from hbatune.snapshot.model import SCHEMA, Snapshot
from hbatune.snapshot.references import fault

LARGEST = 8 << 20
"""Bytes of a file at most; that of a host with 4,096 LUNs has well under one MiB."""

LARGEST_UNPACKED = loader.FOREIGN.bytes
"""Bytes of its content at most: a few kB can unpack to gigabytes."""

_GZIP = zlib.MAX_WBITS | 16  # zlib's flag for gzip's header and checksum

_SCHEMA = re.compile(r"hbatune\.snapshot/(\d{1,6})\Z")


class SnapshotError(UsageError):
    """A file that cannot be used as a snapshot."""

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{str(path)!r}: {problem}", hint=hint)


class _Head(msgspec.Struct):
    schema: str


def encode(snapshot: Snapshot) -> bytes:
    """Return the snapshot as the bytes of a file; equal snapshots give equal bytes."""
    # Unlike gzip.compress with its default, this puts no time into the header.
    engine = zlib.compressobj(wbits=_GZIP)
    return engine.compress(msgspec.json.encode(snapshot)) + engine.flush()


def load(path: Path) -> Snapshot:
    """Return the snapshot in the file; SnapshotError where it has none that can be used."""
    try:
        data = loader.read_bytes(path, LARGEST)
    except UnusableFileError as error:
        raise SnapshotError(path, str(error)) from error
    except OSError as error:
        raise SnapshotError(path, f"cannot be read: {error.strerror}") from error
    return decode(data, path)


def decode(data: bytes, path: Path) -> Snapshot:
    """Return the snapshot in these bytes of the file at ``path``; SnapshotError without one."""
    text = _unpacked(data, path)
    try:
        loader.require_bounded(text, loader.FOREIGN)
    except UnusableFileError as error:
        raise SnapshotError(path, f"not a snapshot: {error}") from error
    try:
        # The schema first: a newer snapshot should be reported as newer, not as broken.
        schema = loader.decode(text, _Head).schema
    except UnusableFileError as error:
        raise SnapshotError(path, "not a snapshot") from error
    _require_known(schema, path)
    try:
        found = loader.decode(text, Snapshot)
    except UnusableFileError as error:
        raise SnapshotError(path, f"a snapshot that makes no sense: {error}") from error
    if (problem := fault(found)) is not None:
        raise SnapshotError(path, f"a snapshot that makes no sense: {problem}")
    return found


def _require_known(schema: str, path: Path) -> None:
    if schema == SCHEMA:
        return
    version = _SCHEMA.match(schema)
    if version is None:
        raise SnapshotError(path, "not a snapshot")
    raise SnapshotError(
        path,
        f"has schema {schema}, and this hbatune reads {SCHEMA}",
        hint="use the hbatune that took it, or a newer one",
    )


def _unpacked(data: bytes, path: Path) -> bytes:
    engine = zlib.decompressobj(wbits=_GZIP)
    try:
        text = engine.decompress(data, LARGEST_UNPACKED)
    except zlib.error as error:
        raise SnapshotError(path, "not a snapshot, or a damaged one") from error
    if engine.unconsumed_tail:
        raise SnapshotError(path, f"larger than {LARGEST_UNPACKED >> 20} MiB when unpacked")
    if not engine.eof:
        raise SnapshotError(path, "truncated" if data else "empty")
    if engine.unused_data:
        raise SnapshotError(path, "something follows the snapshot in it")
    return text
