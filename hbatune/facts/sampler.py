"""Sample the activity of a machine: counters to compare with the counters of another moment.

Samples are frequent and must be cheap: only files that answer immediately are read, without
workers. /proc/diskstats and ``device/*`` answer even if a queue is frozen, ``queue/*`` does not.
The counters of Fibre Channel links and SAS phys are left to ``hbatune check``: each such read is a
command to the adapter. The meters of a single disk and of some CPUs are for probes.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import sub
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple, replace

from hbatune.facts import adapters, attributes, health, model
from hbatune.facts.attributes import Attributes, parse_integer

_STAT = "/proc/stat"
# NVMe: below the controller (drivers/nvme/host/hwmon.c); SCSI: from the module drivetemp.
_SENSORS = ("device/hwmon*/temp1_input", "device/hwmon/hwmon*/temp1_input")


class DiskSample(Struct, frozen=True, gc=False):
    """A block device's counters since it appeared, and its I/Os in flight now.

    Read and write times are summed over all I/Os, ``busy_ms`` is the time with any I/O in flight.
    The times wrap at 2**32. ``device`` is its number, ``8:0``, or its name. ``depth`` is the
    queue_depth of a SCSI device.
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
    """A CPU's time since boot, in ticks: the total, and the time neither idle nor waiting."""

    total: int
    busy: int


class Sample(Struct, frozen=True):
    """A machine at one moment. Unreadable counters are omitted."""

    at: float  # seconds of the monotonic clock
    time: float  # the same moment in seconds since the epoch
    disks: dict[str, DiskSample] = {}  # by endpoint id
    links: dict[str, LinkSample] = {}  # by adapter
    cpus: dict[int, CpuSample] = {}  # by number
    counters: dict[str, dict[str, int]] = {}  # errors by endpoint id or adapter, and by name


_DISKSTATS = "/proc/diskstats"
_USED_FIELDS = 13  # of a line; the counts of discards and flushes follow
_BLOCK = "/sys/class/block"
_DEPTH = "queue_depth"
_SCSI_FILES = {_DEPTH: _DEPTH, health.COMMAND_ERRORS: "ioerr_cnt", "timeouts": "iotmo_cnt"}
_NVME_FILES = {health.COMMAND_ERRORS: "command_error_count"}
_NVME_FILES |= dict(zip(health.NVME_COUNTERS, health.NVME_COUNTERS, strict=True))
"""The files of a disk's device by the names of their numbers."""
_LINK = ("current_link_speed", "current_link_width")
_CLASSES, _RESETS = "/sys/class", "nvme/*/diag/reset_count"  # since Linux 7.2
TRACEFS = "/sys/kernel/tracing"
TEST_FILE = "/sys/bus/cpu/uevent"  # on each machine, for a write of no bytes


class SampledPlaces(Struct, frozen=True):
    """The locations of a machine's counters."""

    disks: dict[str, str] = {}  # endpoint ids by kernel name
    counter_disks: tuple[str, ...] = ()  # names of SCSI and NVMe disks with error counters
    ways: dict[str, tuple[str, ...]] = {}  # by adapter, the directories of both ends of its link


def find_sampled_places(machine: model.Machine) -> SampledPlaces:
    """Return the locations of the counters of a machine's endpoints and adapters."""
    return SampledPlaces(
        {e.target: e.id for e in machine.endpoints},
        tuple(e.target for e in machine.endpoints if e.address or _has_nvme_counters(e)),
        {e.target: adapters.list_pci_path(e.pci.address)[:2] for e in machine.adapters if e.pci},
    )


def _has_nvme_counters(endpoint: model.Endpoint) -> bool:
    is_nvme = endpoint.protocol is model.Protocol.NVME
    return is_nvme and os.path.isdir(f"{_BLOCK}/{endpoint.target}/diag")


class Sampler:
    """Samples one machine; disks that are added later need an ``update``. Mutable.

    Depths, links and error counters need a file each. They are read again every ``every`` seconds.
    If a value has not changed since the last sample, the next sample has the same object: with many
    disks, most are idle. ``last`` are the disks of an earlier sampler's last sample.
    """

    def __init__(
        self,
        places: SampledPlaces,
        *,
        every: float = 60.0,
        last: Mapping[str, DiskSample] = {},
    ) -> None:
        self.every = every
        self.places = places
        self._read_at: float | None = None
        self._last = last
        self._depths: dict[str, int] = {}
        self._links: dict[str, LinkSample] = {}
        self._counters: dict[str, dict[str, int]] = {}

    def update(self, part: SampledPlaces) -> None:
        """Replace the disks with the same names by the disks of a partial scan."""
        disks = self.places.disks | part.disks
        retained = (name for name in self.places.counter_disks if name not in part.disks)
        counter_disks = (*retained, *part.counter_disks)
        self.places = replace(self.places, disks=disks, counter_disks=counter_disks)

    def sample(self, monotonic: float, time: float) -> Sample:
        """Return the machine at this moment: ``time`` is in seconds since the epoch."""
        if self._read_at is None or monotonic - self._read_at >= self.every:
            self._read_at = monotonic
            self._read_slowly()
        self._last = dict(self._iterate_samples())
        cpus = {}
        for name, ticks in _iterate_ticks():
            if number := name.removeprefix("cpu"):
                cpus[int(number)] = CpuSample(sum(ticks), sum(ticks) - sum(ticks[3:5]))
        return Sample(monotonic, time, self._last, self._links, cpus, self._counters)

    def _iterate_samples(self) -> Iterator[tuple[str, DiskSample]]:
        # Line by line: all lines at once would need as much memory as the sampler itself.
        with suppress(OSError), open(_DISKSTATS, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields = line.split(maxsplit=_USED_FIELDS)
                id = self.places.disks.get(fields[2]) if len(fields) > 2 else None
                if id is None:
                    continue
                try:
                    device = f"{fields[0]}:{fields[1]}"
                    current = parse_disk_sample(device, fields[3:], self._depths.get(id))
                except ValueError:  # one invalid line must not affect the other disks
                    continue
                last = self._last.get(id)
                yield id, last if last == current else current

    def _read_slowly(self) -> None:
        self._depths, self._counters, self._links = {}, {}, {}
        # Most LUNs have the same counts, all zero: thousands of them share one object.
        shared: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        for name in self.places.counter_disks:
            folder, names = "device", _SCSI_FILES
            if name.startswith("nvme"):
                folder, names = "diag", _NVME_FILES
            id, errors = self.places.disks[name], _read_files(f"{_BLOCK}/{name}/{folder}", names)
            if (depth := errors.pop(_DEPTH, None)) is not None:
                self._depths[id] = depth
            if errors:
                self._counters[id] = shared.setdefault(tuple(errors.items()), errors)
        for adapter, ends in self.places.ways.items():
            errors = {}
            for end in ends:
                link_files = _LINK if end == ends[0] else ()
                files = (*link_files, *health.BUS_ERROR_ATTRIBUTES)
                values = attributes.read_attributes(end, files)
                if link := _build_link(values):
                    self._links[adapter] = link
                # Either end of a link may see an error.
                bus_errors = health.parse_bus_errors(values)
                for counter in health.BUS_COUNTERS:
                    _add_count(errors, counter, getattr(bus_errors, counter))
            if errors:
                self._counters[adapter] = errors


def _add_count(counts: dict[str, int], name: str, count: int | model.Missing) -> None:
    if isinstance(count, int):
        counts[name] = counts.get(name, 0) + count


def parse_disk_sample(device: str, counters: Sequence[str], depth: int | None) -> DiskSample:
    """Return a disk's counters (Documentation/admin-guide/iostats.rst), or raise ``ValueError``."""
    reads, _, read_sectors, read_ms, writes = map(int, counters[:5])
    _, written_sectors, write_ms, in_flight, busy_ms = map(int, counters[5:10])
    read_bytes = read_sectors * attributes.SECTOR_BYTES
    written = (writes, written_sectors * attributes.SECTOR_BYTES, write_ms)
    return DiskSample(device, reads, read_bytes, read_ms, *written, in_flight, busy_ms, depth)


def _read_files(directory: str, files: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers in these files of a device, without unreadable ones."""
    values = attributes.read_attributes(directory, tuple(files.values()))
    numbers: dict[str, int] = {}
    for name, file in files.items():
        # SCSI prints 0x1f (drivers/scsi/scsi_sysfs.c: show_iostat), NVMe decimals.
        number = parse_integer(values, file, 0)
        if isinstance(number, int):
            numbers[name] = number
    return numbers


def _iterate_ticks() -> Iterator[tuple[str, list[int]]]:
    """Yield ``cpu`` for all CPUs together, and ``cpu0`` and so on, with their ticks (proc(5)).

    The ticks are user, nice, system, idle, iowait, irq, softirq and steal; a guest's are in the
    first two.
    """
    for line in attributes.read_text(_STAT).splitlines():
        # The lines of CPUs come first, and the line of interrupts is longer than all of them.
        if not line.startswith("cpu"):
            return
        name, *fields = line.split(maxsplit=9)
        yield name, list(map(int, fields[:8]))


def _build_link(values: Attributes) -> LinkSample | None:
    """Return the link of a function; without a link the width is 0 (drivers/pci/pci-sysfs.c)."""
    speed = attributes.parse_leading_number(values, _LINK[0])
    width = parse_integer(values, _LINK[1])
    if isinstance(speed, float) and isinstance(width, int) and width:
        return LinkSample(speed, width)
    return None


def read_reset_counts() -> dict[str, int]:
    """Return by name the resets that each NVMe controller counts (drivers/nvme/host/sysfs.c)."""
    counts: dict[str, int] = {}
    values = attributes.read_attributes(_CLASSES, (_RESETS,))
    for path in values:
        _add_count(counts, path.split("/")[1], parse_integer(values, path))
    return counts


def read_disk_sample(sysfs: Path | str) -> DiskSample | None:
    """Return the counters of the block device with this sysfs directory, or None if unreadable.

    With ``queue/iostats`` at 0, all of them stop counting (block/blk-mq.c: blk_do_io_stat).
    """
    directory = Path(sysfs)
    with suppress(OSError, ValueError):
        # Documentation/block/stat.rst: the fields of /proc/diskstats after the name.
        counters = (directory / "stat").read_text(encoding="ascii").split()
        return parse_disk_sample(directory.name, counters, None)
    return None


class CpuTime(Struct, frozen=True):
    """Seconds of some CPUs since boot: total, idle, and in hard and soft interrupts."""

    total: float
    idle: float
    interrupts: float

    def since(self, earlier: "CpuTime") -> "CpuTime":
        """Return the time passed since ``earlier``."""
        return CpuTime(*map(sub, astuple(self), astuple(earlier)))


def read_cpu_time(cpus: Collection[int] = ()) -> CpuTime | None:
    """Return the time of these CPUs, or of all if none is given; None if it cannot be read."""
    wanted = {f"cpu{cpu}" for cpu in cpus} or {"cpu"}
    try:
        times = [ticks for name, ticks in _iterate_ticks() if name in wanted]
    except ValueError:
        return None
    if len(times) != len(wanted):  # one CPU is offline: the sum would lack its time
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    _, _, _, idle, iowait, hard, soft, _ = map(sum, zip(*times, strict=True))
    return CpuTime(sum(map(sum, times)) / ticks, (idle + iowait) / ticks, (hard + soft) / ticks)


def read_temperature(sysfs: Path | str) -> float | None:
    """Return °C of the drive whose block device's directory is ``sysfs``, or None without a sensor.

    Documentation/hwmon/sysfs-interface.rst: temp1_input is in thousandths of a degree. The read
    sends a command to the drive: do not use it on a hung drive.
    """
    for pattern in _SENSORS:
        for path in sorted(Path(sysfs).glob(pattern)):
            with suppress(OSError, ValueError):
                return int(path.read_text(encoding="ascii")) / 1000
    return None
