"""What a machine is doing at one moment: counters, to be compared with those of another moment."""

from msgspec import Struct


class DiskSample(Struct, frozen=True):
    """A block device's counters since it came, and what is in flight on it now.

    Sizes are in bytes, times in milliseconds: those of reads and writes are summed over all I/Os,
    ``busy_ms`` is the time with any I/O in flight. The times wrap at 2**32. ``device`` is its
    number, ``8:0``. ``depth`` is the queue_depth of a SCSI device, None for others.
    """

    device: str
    reads: int
    read_bytes: int
    read_ms: int
    writes: int
    written_bytes: int
    write_ms: int
    in_flight: int
    busy_ms: int
    depth: int | None = None


class LinkSample(Struct, frozen=True):
    """How an adapter's PCI Express link runs: GT/s and lanes."""

    speed: float
    width: int


class CpuSample(Struct, frozen=True):
    """A CPU's time since boot, in ticks: all of it, and what was neither idle nor waiting."""

    total: int
    busy: int


class Sample(Struct, frozen=True):
    """A machine at one moment.

    ``at`` is in seconds of the monotonic clock, by which samples are compared; ``time`` is that
    moment in seconds since the epoch, to be shown. ``disks`` are by endpoint id, ``links`` by
    adapter, ``cpus`` by number. ``counters`` are those of errors, by endpoint id or adapter and
    then by name; what could not be read is not there.
    """

    at: float
    time: float
    disks: dict[str, DiskSample] = {}
    links: dict[str, LinkSample] = {}
    cpus: dict[int, CpuSample] = {}
    counters: dict[str, dict[str, int]] = {}
