"""Enumerates devices with udev, reads what udev keeps of them, and finds how disks are stacked.

It gives the devices' places; hardly any attribute is read here. Properties that hbatune's rules
keep in udev's database are of this boot and of this very appearance of the device: the database is
on a memory file system and forgets a device that is removed.
"""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache

import pyudev
from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.attributes import read, word
from hbatune.facts.model import SAVED_PREFIX, Endpoint
from hbatune.facts.routes import (
    MULTIPATH_UUID,
    Branch,
    Place,
    branch,
    is_head,
    is_virtual,
    name_of,
    place,
)

SEEN = "HBATUNE_SEEN"
"""Set once the rules have run for a disk that appeared, to the disk's sequence number."""
_APPEARED = "USEC_INITIALIZED"

_DEV = "/dev/"

SWAP = "[SWAP]"

_MOUNTINFO = "/proc/self/mountinfo"
_SWAPS = "/proc/swaps"
_OCTAL = re.compile(r"\\([0-7]{3})")
_HIDDEN = re.compile(r"(nvme\d+)c\d+(n\d+)$")

_NOT_OURS = {"sr", "fd", "loop", "ram", "zram", "md", "nbd"}
_UUID = "dm/uuid"
_BLOCK = "/sys/class/block"
"""There whenever the kernel has a block layer (block/genhd.c: genhd_device_init)."""


@cache
def context() -> pyudev.Context:
    """Return udev's library, loaded once: pyudev runs ldconfig each time that it looks for it."""
    return pyudev.Context()


class Saved(Struct, frozen=True):
    """The saved texts, by the property's name without prefix, and when udev first saw the device.

    ``appeared`` is in µs since boot.
    """

    texts: Mapping[str, str]
    appeared: str


def saved(endpoints: Iterable[Endpoint]) -> dict[str, Saved]:
    """Return, by id, the values saved of these endpoints; others are left out."""
    found = {}
    for each in endpoints:
        try:
            properties = pyudev.Devices.from_sys_path(context(), each.sysfs).properties
        except pyudev.DeviceNotFoundError:  # removed since it was surveyed
            continue
        texts = {
            name.removeprefix(SAVED_PREFIX): str(text)
            for name, text in properties.items()
            if name.startswith(SAVED_PREFIX) and text
        }
        if texts:
            found[each.id] = Saved(texts, str(properties.get(_APPEARED, "")))
    return found


def marked_disks() -> list[str]:
    """Return the sysfs paths of all disks with properties of hbatune in udev's database."""
    disks = context().list_devices(subsystem="block", DEVTYPE="disk")
    return [each.sys_path for each in disks if any(map(_is_ours, each.properties))]


def _is_ours(name: str) -> bool:
    return name == SEEN or name.startswith(SAVED_PREFIX)


def is_link(name: str) -> bool:
    """Whether a name is the path of a link below ``/dev`` and no kernel name, by its form."""
    return name.startswith(_DEV) and "/" in name.removeprefix(_DEV)


def followed(name: str) -> str:
    """Return the kernel name of the disk that a link below ``/dev`` leads to.

    A link to a partition means the disk that it is on. Any other name, and a link that does not
    exist (now), is returned as it is.
    """
    if not name.startswith(_DEV) or not os.path.islink(name):
        return name
    node = os.path.realpath(name)
    # A link out of /dev, or a dangling one, names no disk: the caller reports the name.
    if not node.startswith(_DEV) or not os.path.exists(node):
        return name
    kernel = node.removeprefix(_DEV).replace("/", "!")
    directory = os.path.realpath(f"{_BLOCK}/{kernel}")
    if os.path.exists(f"{directory}/partition"):  # block/partitions/core.c: part_partition_show
        return os.path.basename(os.path.dirname(directory))
    return kernel


class Stack:
    """The whole disks under each disk, and the other way round; by kernel name.

    ``slaves`` are the links of the kernel; ``hidden`` the paths of NVMe heads, which have none.
    """

    def __init__(
        self, slaves: Mapping[str, tuple[str, ...]], hidden: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.below = {**slaves, **hidden}
        self._holders: dict[str, list[str]] = defaultdict(list)
        for upper, lowers in slaves.items():
            for lower in lowers:
                self._holders[lower].append(upper)

    def holders(self, name: str) -> tuple[str, ...]:
        """Return the block devices directly on the disk or its partitions."""
        return tuple(sorted(self._holders.get(name, ())))

    def foundations(self, name: str) -> set[str]:
        """Return the disk and all devices below it, down to the drives."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.below.get(name, ())
        return found


def read_slaves(directory: str, disks: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the whole disks that a stacked device (dm, md, bcache) stands on."""
    folder = f"{directory}/slaves"
    with suppress(OSError):
        found = (whole_disk(folder, entry, disks) for entry in os.listdir(folder))
        return tuple(sorted({name for name in found if name}))
    return ()


def whole_disk(folder: str, entry: str, disks: Mapping[str, str]) -> str | None:
    """Return the disk that a link in ``folder`` leads to, itself or as one of its partitions."""
    if entry in disks:
        return entry
    with suppress(OSError):
        # The link of a partition ends in DISK/PARTITION.
        *_, parent, name = os.readlink(f"{folder}/{entry}").split("/")
        return next((found for found in (name, parent) if found in disks), None)
    return None


def hidden_paths(heads: Iterable[str], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return each NVMe head with its hidden paths.

    ``nvmeXcCnY`` is the path over controller C to ``nvmeXnY`` (nvme/host/multipath.c:
    nvme_mpath_set_disk_name); X is the subsystem's number, not a controller's.
    """
    paths: dict[str, list[str]] = {head: [] for head in heads}
    for name in names:
        hidden = _HIDDEN.match(name)
        if hidden and hidden[1] + hidden[2] in paths:
            paths[hidden[1] + hidden[2]].append(name)
    return {head: tuple(sorted(found)) for head, found in paths.items()}


def mounts(stack: Stack, disks: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each disk the mount points of it and of every device stacked on it."""
    found: dict[str, set[str]] = defaultdict(set)
    # Downwards: a filesystem on LVM on a map makes the map, its paths and their disks mounted.
    for name, point in [*_mounted(disks), *_swapped(disks)]:
        for lower in stack.foundations(name):
            found[lower].add(point)
    return {name: tuple(sorted(points)) for name, points in found.items()}


def mount_options(points: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the mount options at each of these points; the last mount hides earlier ones."""
    found = {}
    for line in _lines(_MOUNTINFO):
        fields = line.split(" ")
        if len(fields) > 5 and (point := _unescape(fields[4])) in points:
            found[point] = tuple(fields[5].split(","))
    return found


def _mounted(disks: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (disk, mount point); proc(5) describes the format of mountinfo."""
    pools = _btrfs(disks)
    found = []
    for line in _lines(_MOUNTINFO):
        mount, _, filesystem = line.partition(" - ")
        fields, source = mount.split(" "), filesystem.split(" ")
        if len(fields) < 5 or len(source) < 2:
            continue
        # A btrfs has a device number of its own, which belongs to no disk: then by its source.
        disk = whole_disk("/sys/dev/block", fields[2], disks) or _of_node(source[1], disks)
        if disk:
            point = _unescape(fields[4])
            members = pools.get(disk, {disk}) if source[0] == "btrfs" else {disk}
            found += [(member, point) for member in sorted(members)]
    return found


def _swapped(disks: Mapping[str, str]) -> list[tuple[str, str]]:
    nodes = (line.split()[0] for line in _lines(_SWAPS)[1:] if line.split())
    return [(disk, SWAP) for node in nodes if (disk := _of_node(node, disks))]


def _btrfs(disks: Mapping[str, str]) -> dict[str, set[str]]:
    """Return for each disk of a btrfs the disks of all its devices: mountinfo names only one."""
    pools: dict[str, set[str]] = {}
    with suppress(OSError):
        for entry in os.scandir("/sys/fs/btrfs"):
            folder = f"{entry.path}/devices"
            if os.path.isdir(folder):
                found = (whole_disk(folder, name, disks) for name in os.listdir(folder))
                members = {name for name in found if name}
                for member in members:
                    pools[member] = pools.get(member, set()) | members
    return pools


def _of_node(node: str, disks: Mapping[str, str]) -> str | None:
    """Return the disk behind a device node, which may be a link such as /dev/mapper/NAME."""
    if not node.startswith("/dev/"):
        return None
    return whole_disk("/sys/class/block", name_of(os.path.realpath(_unescape(node))), disks)


def _lines(path: str) -> list[str]:
    with suppress(OSError), open(path, encoding="utf-8", errors="backslashreplace") as file:
        return file.read().splitlines()
    return []


def _unescape(text: str) -> str:
    """Undo the octal escapes of blanks and the like (fs/proc_namespace.c: mangle)."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


class Devices(Struct, frozen=True):
    """The devices of a machine, by sysfs directory, and how they are stacked, by kernel name.

    ``disks`` are all whole block devices by name; ``places`` those that may be endpoints;
    ``maps`` those that join paths; ``servers`` the branches that end in a SCSI host or an NVMe
    controller, whether or not a disk is on them; ``parallel`` the targets on a parallel bus.
    """

    disks: Mapping[str, str]
    places: Mapping[str, Place]
    maps: Mapping[str, str]
    servers: tuple[Branch, ...]
    parallel: frozenset[str]
    stack: Stack


def find() -> Devices:
    """Enumerate the machine's storage: block devices, the hidden NVMe paths too, and adapters.

    UsageError if sysfs is hidden: a machine without any disk has the class, but an empty one.
    """
    if not os.path.isdir(_BLOCK):
        raise UsageError(
            f"{_BLOCK} is not there, so that no disk can be seen",
            hint="it is hidden in many containers: run hbatune on the host",
        )
    # Not matched by DEVTYPE: for that libudev would open every one of them.
    block = set(_directories("block"))
    partitions = {directory for directory in block if os.path.dirname(directory) in block}
    disks = {name_of(directory): directory for directory in sorted(block - partitions)}
    places = {d: place(d) for name, d in disks.items() if _may_be_endpoint(name, d)}
    heads = {name_of(directory): directory for directory in places if is_head(directory)}
    # Only virtual devices stand on others; the folder of a real disk need not be read.
    slaves = {name: read_slaves(d, disks) for name, d in disks.items() if is_virtual(d)}
    maps = {name: disks[name] for name in slaves if _joins(disks[name])}
    hosts = (name.rpartition("/scsi_host/")[0] for name in _directories("scsi_host"))
    servers = {branch(d) for d in [*hosts, *_directories("nvme")]}
    return Devices(
        disks=disks,
        places={d: found for d, found in places.items() if not is_head(d)},
        maps=heads | maps,
        servers=tuple(sorted(servers, key=lambda server: server.adapter or "")),
        parallel=frozenset(name_of(d) for d in _directories("spi_transport")),
        stack=Stack(slaves, hidden_paths(heads, disks)),
    )


def _directories(subsystem: str) -> Iterator[str]:
    for device in context().list_devices(subsystem=subsystem):
        yield str(device.sys_path)


def _may_be_endpoint(name: str, directory: str) -> bool:
    """Whether the block device has hardware behind it, and is no optical drive and no floppy."""
    return not is_virtual(directory) and name.rstrip("0123456789") not in _NOT_OURS


def _joins(directory: str) -> bool:
    """Whether a block device is a multipath map of device-mapper."""
    uuid = word(read(directory, (_UUID,)), _UUID)
    return uuid.startswith(MULTIPATH_UUID)
