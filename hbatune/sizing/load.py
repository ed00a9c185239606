"""The load that is wanted: as a person gives it, or the busiest moment that watch saw. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.loader import Figure

BLOCK = 4096
"""The block size in bytes where none is given: that of the documents' figures."""

SEQUENTIAL = 1 << 20
"""The block size in bytes where only a throughput is given: that of D4's sequential corners."""


class WantedLoad(Struct, frozen=True):
    """A load: I/Os and GB per second, bytes of each I/O, percent of reads, the p99 in ms.

    ``p99_ms`` is None where any will do.
    """

    iops: float
    gb_per_s: float
    block: int
    reads: int
    p99_ms: float | None


class WatchedReading(Struct, frozen=True):
    """A reading in a line of `watch --json`, as far as a load is made of it."""

    iops: Figure
    read_bytes_per_s: Figure
    write_bytes_per_s: Figure
    adapter: str | None = None
    p99_ms: Figure | None = None


class WatchedMoment(Struct, frozen=True):
    """A line of `watch --json`."""

    schema: str
    readings: tuple[WatchedReading, ...]


def wanted_load(
    iops: float | None, gb_per_s: float | None, block: int | None, reads: int, p99_ms: float | None
) -> WantedLoad:
    """Return a load from what is given of it; UsageError where it is neither rate nor throughput.

    Where all three are given, the larger throughput counts.
    """
    if iops is None and gb_per_s is None:
        raise UsageError("neither IOPS nor GB/s of the load are given", hint="give --iops")
    size = block or (SEQUENTIAL if iops is None else BLOCK)
    rate = (gb_per_s or 0.0) * 1e9 / size if iops is None else iops
    return WantedLoad(rate, max(rate * size / 1e9, gb_per_s or 0.0), size, reads, p99_ms)


def busiest(moments: Iterable[WatchedMoment]) -> WantedLoad:
    """Return the load of the moment with the most I/Os of all disks, the p99 the least of any.

    A map's I/O is that of its paths: readings without an adapter of their own do not count, unless
    there are no others. UsageError where there is no I/O at all.
    """
    best = max(map(_load, moments), key=lambda each: each.iops, default=None)
    if best is None or not best.iops:
        raise UsageError("there is no I/O in what watch has seen", hint="watch while it works")
    return best


def _load(moment: WatchedMoment) -> WantedLoad:
    own = [each for each in moment.readings if each.adapter is not None]
    counted = own or moment.readings
    iops = sum(max(each.iops, 0.0) for each in counted)
    reads = sum(max(each.read_bytes_per_s, 0.0) for each in counted)
    through = reads + sum(max(each.write_bytes_per_s, 0.0) for each in counted)
    return WantedLoad(
        iops=iops,
        gb_per_s=through / 1e9,
        block=max(512, round(through / iops)) if iops else BLOCK,
        reads=round(100 * reads / through) if through else 100,
        p99_ms=None,
    )
