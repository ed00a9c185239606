"""The file of a capture: the I/Os of a disk, with their times and places, without any data.

Its first line is a header in JSON. The columns of the I/Os follow, as little-endian integers. Such
files come from other people's hosts, so ``load_trace`` checks everything that a replay relies on.
"""

import sys
from array import array
from bisect import bisect_left
from operator import add
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct, json
from msgspec.structs import replace

from hbatune import loader
from hbatune.errors import UsageError
from hbatune.loader import Count, Moment, Seconds, ShortText

if TYPE_CHECKING:
    from hbatune.act.block_trace import TracedRequest

SCHEMA = "hbatune.trace/1"
MAX_BYTES = 64 << 20
_MAX_HEADER_BYTES = 4096
_TYPES = ("Q", "Q", "I", "I", "B")
_IO_BYTES = 25  # the sum of their sizes
MAX_IOS = (MAX_BYTES - _MAX_HEADER_BYTES) // _IO_BYTES
SECTOR_BYTES = 512  # in all of the kernel's events
_MAX_IO_SECTORS = (64 << 20) // SECTOR_BYTES  # more than any driver's max_hw_sectors_kb
_ZONE_SECTORS = (1 << 30) // SECTOR_BYTES
"""Sectors of a zone. It is moved as a whole, so I/Os stay close together."""
MAX_LOST_FRACTION = 0.01
"""The largest fraction of lost events with which a trace decides a verdict."""


class TraceHeader(Struct, frozen=True, kw_only=True):
    """The disk and the circumstances of a capture.

    ``target`` is empty in an anonymous file. ``lost`` of the ``events`` were not recorded, since
    the kernel's buffer was full. ``time`` is the begin in seconds since the epoch.
    """

    target: ShortText
    disk_bytes: Count
    seconds: Seconds
    events: Count
    lost: Count
    time: Moment
    ios: Count = 0
    schema: ShortText = SCHEMA

    @property
    def lost_fraction(self) -> float:
        """The fraction of the events that were lost."""
        return self.lost / max(1, self.events + self.lost)


class Trace(Struct, frozen=True):
    """The I/Os of a disk by arrival, a column for each property.

    ``arrivals_us`` count from the begin of the capture, to the entry into the block layer.
    ``sectors`` are the first ones, ``sizes`` the numbers of sectors. ``latencies_us`` last until
    the completion. ``writes`` are 1 for a write, and 0 for a read.
    """

    header: TraceHeader
    arrivals_us: "array[int]"
    sectors: "array[int]"
    sizes: "array[int]"
    latencies_us: "array[int]"
    writes: "array[int]"

    @property
    def columns(self) -> tuple["array[int]", ...]:
        """Its columns in the order of the file."""
        return self.arrivals_us, self.sectors, self.sizes, self.latencies_us, self.writes

    @property
    def write_fraction(self) -> float:
        """The fraction of the I/Os that are writes."""
        return sum(self.writes) / max(1, self.header.ios)


class TraceBuilder:
    """Collects the I/Os of a capture. Mutable."""

    def __init__(self) -> None:
        self._columns = [array(type) for type in _TYPES]

    @property
    def is_full(self) -> bool:
        """Whether no further I/O fits into a file."""
        return len(self._columns[0]) >= MAX_IOS

    def add(self, request: "TracedRequest", begin_us: int) -> None:
        """Add a read or write that began at ``begin_us`` or later; others are ignored."""
        direction = request.operation.lstrip("F")[:1]  # F is a flush before the write
        if direction in ("R", "W"):
            arrival, latency = request.queued - begin_us, request.completed - request.queued
            values = (arrival, request.sector, request.sectors, latency, direction == "W")
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)

    def build(self, header: TraceHeader) -> Trace:
        """Return the trace; ``ios`` of the header is set."""
        arrivals = self._columns[0]
        order = sorted(range(len(arrivals)), key=arrivals.__getitem__)
        columns = []
        for column in self._columns:
            columns.append(array(column.typecode, map(column.__getitem__, order)))
        return Trace(replace(header, ios=len(order)), *columns)


def encode_trace(trace: Trace) -> bytes:
    """Return the content of the file."""
    parts = [json.encode(trace.header) + b"\n"]
    for column in trace.columns:
        parts.append(_swap_if_big_endian(column[:]).tobytes())
    return b"".join(parts)


def load_trace(path: Path) -> Trace:
    """Return the trace in a file. Raises UsageError for a file that `capture` has not written."""
    try:
        return _decode_trace(loader.read_bytes(path, MAX_BYTES))
    except loader.UnusableFileError as error:
        hint = "`hbatune capture DISK FILE` makes one"
        raise UsageError(f"{str(path)!r} is not a trace: {error}", hint=hint) from error
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from error


def _decode_trace(data: bytes) -> Trace:
    end = data.find(b"\n", 0, _MAX_HEADER_BYTES)
    if end < 0:
        raise loader.UnusableFileError("it has no header")
    loader.require_bounded(data[:end], loader.SMALL_BOUNDS)
    header = loader.decode(data[:end], TraceHeader)
    if header.schema != SCHEMA:
        raise loader.UnusableFileError(f"it has schema {header.schema}, not {SCHEMA}")
    if len(data) - end - 1 != header.ios * _IO_BYTES:
        raise loader.UnusableFileError("it has another size than its header says")
    columns, begin = [], end + 1
    for type in _TYPES:
        column = array(type)
        length = header.ios * column.itemsize
        column.frombytes(data[begin : begin + length])
        columns.append(_swap_if_big_endian(column))
        begin += length
    trace = Trace(header, *columns)
    if header.ios:
        _require_valid(trace)
    return trace


def _require_valid(trace: Trace) -> None:
    header, arrivals = trace.header, trace.arrivals_us.tolist()
    if arrivals != sorted(arrivals) or arrivals[-1] > header.seconds * 1_000_000:
        raise loader.UnusableFileError("the arrivals in it are out of order")
    if min(trace.sizes) < 1 or max(trace.sizes) > _MAX_IO_SECTORS:
        raise loader.UnusableFileError("an I/O in it has an impossible size")
    if max(map(add, trace.sectors, trace.sizes)) > header.disk_bytes // SECTOR_BYTES:
        raise loader.UnusableFileError("an I/O in it is beyond the end of its disk")
    if max(trace.writes) > 1:
        raise loader.UnusableFileError("an I/O in it neither reads nor writes")


def _swap_if_big_endian(column: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        column.byteswap()
    return column


def select_busiest(trace: Trace, seconds: float) -> Trace:
    """Return the part of this length with the most I/Os; its arrivals count from its begin."""
    length_us, arrivals = round(seconds * 1_000_000), trace.arrivals_us
    best = slice(0, 0)
    for first, arrival in enumerate(arrivals):
        last = bisect_left(arrivals, arrival + length_us, first)
        if last - first > best.stop - best.start:
            best = slice(first, last)
    columns = [column[best] for column in trace.columns]
    columns[0] = array("Q", [arrival - columns[0][0] for arrival in columns[0]])
    length = min(seconds, trace.header.seconds)
    return Trace(replace(trace.header, seconds=length, ios=len(columns[0])), *columns)


def anonymise_trace(trace: Trace, random: Random) -> Trace:
    """Return the trace without the disk's name, with its zones of 1 GiB in a random order.

    A smaller zone at the end of the disk stays.
    """
    zones = list(range(trace.header.disk_bytes // SECTOR_BYTES // _ZONE_SECTORS))
    new_zones = random.sample(zones, len(zones))
    sectors = array("Q")
    for sector, size in zip(trace.sectors, trace.sizes, strict=True):
        zone, offset = divmod(sector, _ZONE_SECTORS)
        if zone < len(zones):
            # The new zone may be the last one, so the I/O must not extend beyond it.
            offset = min(offset, _ZONE_SECTORS - size)
            sector = new_zones[zone] * _ZONE_SECTORS + offset
        sectors.append(sector)
    return replace(trace, header=replace(trace.header, target=""), sectors=sectors)
