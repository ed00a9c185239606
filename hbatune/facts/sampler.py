"""Samples the activity of a machine: counters, to be compared with those of another moment.

Samples are taken often, so with little work: only files that answer at once are read, without
workers. /proc/diskstats has all disks, and it and ``device/*`` answer even if a queue is frozen.
``queue/*`` is not read: behind a write that waits for I/O such a read would hang as well.
The counters of Fibre Channel links and SAS phys are not read: each such read is a command to the
adapter, and ``hbatune check`` does that.

The meters of a single disk and of some CPUs are for probes, which read them before and after; of
these, ``temperature`` is a command to the drive.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.adapters import bus_errors, way_to_root
from hbatune.facts.attributes import ERRORS, Attributes, integer, leading_number, read
from hbatune.facts.health import BUS, NOT_GOOD, Errors
from hbatune.facts.model import Machine, Missing, Reason

_STAT = "/proc/stat"
_SENSORS = ("device/hwmon*/temp1_input", "device/hwmon/hwmon*/temp1_input")
"""Of NVMe below the controller (drivers/nvme/host/hwmon.c), of SCSI by the module drivetemp."""
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})


class DiskSample(Struct, frozen=True, gc=False):
    """A block device's counters since it appeared, and the I/Os in flight on it now.

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
    """The current PCI Express link of an adapter: GT/s and lanes."""

    speed: float
    width: int


class CpuSample(Struct, frozen=True):
    """A CPU's time since boot, in ticks: all of it, and the part neither idle nor waiting."""

    total: int
    busy: int


class Sample(Struct, frozen=True):
    """A machine at one moment.

    ``at`` is in seconds of the monotonic clock, by which samples are compared; ``time`` is that
    moment in seconds since the epoch, to be shown. ``disks`` are by endpoint id, ``links`` by
    adapter, ``cpus`` by number. ``counters`` are those of errors, by endpoint id or adapter and
    then by name; counters that could not be read are left out.
    """

    at: float
    time: float
    disks: dict[str, DiskSample] = {}
    links: dict[str, LinkSample] = {}
    cpus: dict[int, CpuSample] = {}
    counters: dict[str, dict[str, int]] = {}


SECTOR = 512  # bytes, also for devices with larger sectors (Documentation/block/stat.rst)

_DISKSTATS = "/proc/diskstats"
_BLOCK = "/sys/class/block"
_DEPTH = "device/queue_depth"
_COUNTERS = {NOT_GOOD: ERRORS, "timeouts": "device/iotmo_cnt"}
_LINK = ("current_link_speed", "current_link_width")
_AER = tuple(f"aer_dev_{name}" for name in BUS)

Clock = Callable[[], float]


class SampledPlaces(Struct, frozen=True):
    """Where the counters of a machine are.

    ``disks`` are the ids of endpoints by kernel name, ``scsi`` the names of those that are SCSI
    devices. ``ways`` are by adapter the directories of it and of the port above it: the two ends of
    one link.
    """

    disks: dict[str, str] = {}
    scsi: tuple[str, ...] = ()
    ways: dict[str, tuple[str, ...]] = {}


def sampled_places(machine: Machine) -> SampledPlaces:
    """Return where the counters of a machine's endpoints and adapters are."""
    return SampledPlaces(
        {e.target: e.id for e in machine.endpoints},
        tuple(e.target for e in machine.endpoints if e.address),
        {e.target: way_to_root(e.pci.address)[:2] for e in machine.adapters if e.pci},
    )


class Sampler:
    """Samples one machine; after disks came or went, it needs their places. Mutable.

    Depths, links and the counters of errors need a file each: they are read again once ``every``
    seconds have passed, and samples in between repeat them. What has not changed since the last
    sample is the same object in the next: most disks of many have nothing to do.
    """

    def __init__(self, places: SampledPlaces, *, every: float = 60.0) -> None:
        self.every = every
        self.places = places
        self._read_at: float | None = None
        self._last: dict[str, DiskSample] = {}
        self._depths: dict[str, int] = {}
        self._links: dict[str, LinkSample] = {}
        self._counters: dict[str, dict[str, int]] = {}

    def sample_these(self, places: SampledPlaces) -> None:
        """Sample a machine with these places from now on, and read everything at the next time."""
        self.places, self._read_at = places, None

    def update(self, part: SampledPlaces) -> None:
        """Sample the disks of a part from now on, in the place of those with the same names."""
        known = self.places
        others = (name for name in known.scsi if name not in part.disks)
        self.places = replace(known, disks=known.disks | part.disks, scsi=(*others, *part.scsi))

    def sample(self, now: float, time: float) -> Sample:
        """Return the machine at this moment of the monotonic clock and of the day."""
        if self._read_at is None or now - self._read_at >= self.every:
            self._read_at = now
            self._read_slowly()
        self._last = dict(self._samples())
        return Sample(
            at=now,
            time=time,
            disks=self._last,
            links=self._links,
            cpus=dict(_cpus()),
            counters=self._counters,
        )

    def _samples(self) -> Iterator[tuple[str, DiskSample]]:
        # Line by line: the whole file as lines would be as large as all that the sampler keeps.
        with suppress(OSError), open(_DISKSTATS, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with suppress(ValueError, IndexError):  # one odd line must not cost the other disks
                    id = self.places.disks.get(line.split(maxsplit=3)[2])
                    if id is not None:
                        found, last = disk(line, self._depths.get(id)), self._last.get(id)
                        yield id, found if last is None or last != found else last

    def _read_slowly(self) -> None:
        self._depths, self._counters = {}, {}
        # Most LUNs have counted the same, nothing: thousands of them share it.
        alike: dict[tuple[int, ...], dict[str, int]] = {}
        for name in self.places.scsi:
            id = self.places.disks[name]
            found = read(f"{_BLOCK}/{name}", (_DEPTH, *_COUNTERS.values()))
            depth = integer(found, _DEPTH)
            if isinstance(depth, int):
                self._depths[id] = depth
            errors = _errors(found)
            self._count(id, alike.setdefault((len(errors), *errors.values()), errors))
        self._links = {
            adapter: link
            for adapter, way in self.places.ways.items()
            if way and (link := _link(read(way[0], _LINK))) is not None
        }
        for adapter, way in self.places.ways.items():
            self._count(adapter, _bus_errors(bus_errors(read(end, _AER)) for end in way))

    def _count(self, target: str, found: dict[str, int]) -> None:
        if found:
            self._counters[target] = found


def disk(line: str, depth: int | None) -> DiskSample:
    """Return a line of /proc/diskstats as a sample (Documentation/admin-guide/iostats.rst).

    Raises ``ValueError`` or ``IndexError`` for any other line.
    """
    major, minor, _, *fields = line.split()
    counts = [int(field) for field in fields]
    return DiskSample(
        device=f"{major}:{minor}",
        reads=counts[0],
        read_bytes=counts[2] * SECTOR,
        read_ms=counts[3],
        writes=counts[4],
        written_bytes=counts[6] * SECTOR,
        write_ms=counts[7],
        in_flight=counts[8],
        busy_ms=counts[9],
        depth=depth,
    )


def _cpus() -> Iterator[tuple[int, CpuSample]]:
    for name, ticks in _ticks():
        if number := name.removeprefix("cpu"):
            yield int(number), CpuSample(sum(ticks), sum(ticks) - sum(ticks[3:5]))


def _ticks() -> Iterator[tuple[str, list[int]]]:
    """Yield ``cpu`` for all CPUs together, and ``cpu0`` and so on, with their ticks (proc(5)).

    Those are user, nice, system, idle, iowait, irq, softirq and steal; a guest's are in the first
    two. Nothing where they cannot be read.
    """
    for line in _text(_STAT).splitlines():
        # The lines of CPUs come first, and that of interrupts is longer than all of them.
        if not line.startswith("cpu"):
            return
        name, *fields = line.split(maxsplit=9)
        yield name, [int(field) for field in fields[:8]]


def _link(found: Attributes) -> LinkSample | None:
    """Return the link of a function; one without a link has width 0 (drivers/pci/pci-sysfs.c)."""
    speed, width = leading_number(found, _LINK[0]), integer(found, _LINK[1])
    if isinstance(speed, float) and isinstance(width, int) and width:
        return LinkSample(speed, width)
    return None


def _errors(found: Attributes) -> dict[str, int]:
    """Return the counters of a SCSI device, printed in hexadecimal (scsi_sysfs.c: show_iostat)."""
    counted = {name: integer(found, path, 16) for name, path in _COUNTERS.items()}
    return {name: count for name, count in counted.items() if isinstance(count, int)}


def _bus_errors(ends: Iterable[Errors]) -> dict[str, int]:
    """Return the sum of the counters at both ends of the link: either may see an error."""
    total: dict[str, int] = {}
    for end in ends:
        for name in BUS:
            count = getattr(end, name)
            if isinstance(count, int):
                total[name] = total.get(name, 0) + count
    return total


def _text(path: str) -> str:
    """Return the text of a file of /proc, empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts = iter(lambda: os.read(descriptor, 1 << 16), b"")
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


class Activity(Struct, frozen=True):
    """A block device's counters at one moment.

    ``reads`` and ``writes`` completed since boot, ``io_ticks_ms`` the time with I/O in flight,
    ``in_flight`` the I/Os in flight now. With ``queue/iostats`` at 0 all of them stand still
    (block/blk-mq.c: blk_do_io_stat).
    """

    reads: int
    writes: int
    io_ticks_ms: int
    in_flight: int


def activity(sysfs: Path | str) -> Activity | Missing:
    """Read the activity of the block device whose sysfs directory is ``sysfs``.

    Documentation/block/stat.rst: fields 1, 5 and 10 of ``stat``; ``inflight`` has reads and writes.
    """
    directory = Path(sysfs)
    try:
        stat = (directory / "stat").read_text(encoding="ascii").split()
        in_flight = (directory / "inflight").read_text(encoding="ascii").split()
        reads, writes = (int(count) for count in in_flight)
        return Activity(int(stat[0]), int(stat[4]), int(stat[9]), reads + writes)
    except OSError as error:
        reason = Reason.VANISHED if error.errno in _GONE else Reason.UNREADABLE
        return Missing(reason, errno=error.errno)
    except (ValueError, IndexError) as error:
        return Missing(Reason.UNPARSABLE, text=str(error))


class CpuTime(Struct, frozen=True):
    """Seconds of some CPUs since boot: in all, with nothing to run, in hard and soft interrupts."""

    total: float
    idle: float
    interrupts: float

    def since(self, earlier: "CpuTime") -> "CpuTime":
        """Return the time passed since ``earlier``."""
        return CpuTime(
            self.total - earlier.total,
            self.idle - earlier.idle,
            self.interrupts - earlier.interrupts,
        )


def cpu_time(cpus: Collection[int] = ()) -> CpuTime | None:
    """Return the time of these CPUs, or of all if none is given; None if it cannot be read."""
    wanted = {f"cpu{cpu}" for cpu in cpus} or {"cpu"}
    try:
        times = [ticks for name, ticks in _ticks() if name in wanted]
    except ValueError:
        return None
    if len(times) != len(wanted):  # one is offline: the sum would lack its time
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    _, _, _, idle, iowait, hard, soft, _ = (
        sum(column) / ticks for column in zip(*times, strict=True)
    )
    return CpuTime(sum(map(sum, times)) / ticks, idle + iowait, hard + soft)


def temperature(sysfs: Path | str) -> float | None:
    """Return °C of the drive whose block device's directory is ``sysfs``, None without a sensor.

    Documentation/hwmon/sysfs-interface.rst: temp1_input is in thousandths of a degree. The read
    sends a command to the drive: not for one that hangs.
    """
    for pattern in _SENSORS:
        for path in sorted(Path(sysfs).glob(pattern)):
            with suppress(OSError, ValueError):
                return int(path.read_text(encoding="ascii")) / 1000
    return None
