"""A snapshot as bytes: JSON, compressed. The reader trusts nothing in a file."""

import os
import re
import stat
import zlib
from pathlib import Path

import msgspec

from hbatune.errors import UsageError
from hbatune.snapshot.model import SCHEMA, Snapshot

LARGEST = 64 << 20
"""Bytes of a file at most; that of a host with 4,096 LUNs has well under one MiB."""

LARGEST_UNPACKED = 512 << 20
"""Bytes of its content at most: a few MiB can unpack to gigabytes."""

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
    return decode(_read(path), path)


def decode(data: bytes, path: Path) -> Snapshot:
    """Return the snapshot in these bytes of the file at ``path``; SnapshotError without one."""
    text = _unpacked(data, path)
    try:
        # The schema first: a newer snapshot should be reported as newer, not as broken.
        schema = msgspec.json.decode(text, type=_Head).schema
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SnapshotError(path, "not a snapshot") from error
    _require_known(schema, path)
    try:
        return msgspec.json.decode(text, type=Snapshot)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SnapshotError(path, f"a snapshot that makes no sense: {error}") from error


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


def _read(path: Path) -> bytes:
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SnapshotError(path, f"cannot be read: {reason}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SnapshotError(path, "not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # One byte more than allowed shows that it is too large, whatever its size was at
            # fstat(2).
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise SnapshotError(path, f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(data) > LARGEST:
        raise SnapshotError(path, f"larger than {LARGEST >> 20} MiB, which no snapshot is")
    return data
