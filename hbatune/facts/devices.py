"""Find the machine's storage devices, their paths in sysfs, and the stacks of disks.

The devices of a class are the links in its directory. libudev finds the same ones (sd-device,
device-enumerator.c: enumerator_scan_dir_and_add_devices), but makes 150 system calls for each LUN.
The tests compare both (``tests/hosts/test_classes.py``). Almost no attribute is read here.
"""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts import routes
from hbatune.facts.attributes import get_word, read_attributes, read_text
from hbatune.facts.ids import escape_text
from hbatune.facts.routes import Branch, Place, get_kernel_name

_CLASS = "/sys/class"
# The beginning of the kernel's own links (fs/sysfs/symlink.c: sysfs_create_link).
_LINK_PREFIX = "../../devices/"


def list_names(directory: str) -> list[str]:
    """Return the names in a directory, or none if it cannot be read."""
    with suppress(OSError):
        return os.listdir(directory)
    return []


def list_directories(name: str) -> list[str]:
    """Return the sysfs directories of the devices of a class, none if there is no such class.

    Devices that vanish during the call are omitted. Bytes of a name that are not UTF-8 are kept as
    surrogates (``os.fsdecode``), so the directory can be opened.
    """
    class_dir = f"{_CLASS}/{name}"
    paths = []
    for entry in list_names(class_dir):  # the class exists once a driver has registered it
        try:
            path = _resolve_link(class_dir, os.readlink(f"{class_dir}/{entry}"))
        except OSError:  # an attribute of the class, or a removed device
            continue
        # As in libudev: a directory without this file is not a device (sd-device.c:
        # sd_device_set_syspath).
        if os.access(f"{path}/uevent", os.F_OK):
            paths.append(path)
    return sorted(paths)


def _resolve_link(folder: str, link: str) -> str:
    if link.startswith(_LINK_PREFIX) and "/." not in link.removeprefix(_LINK_PREFIX):
        return f"/sys/devices/{link.removeprefix(_LINK_PREFIX)}"
    return os.path.realpath(os.path.join(folder, link))


_DEV = "/dev/"
# Exists whenever the kernel has a block layer (block/genhd.c: genhd_device_init).
_BLOCK = "/sys/class/block"
SWAP = "[SWAP]"
_MOUNTINFO = "/proc/self/mountinfo"
_SWAPS = "/proc/swaps"
_EXCLUDED_NAMES = {"sr", "fd", "loop", "ram", "zram", "md", "nbd"}
_UUID = "dm/uuid"
# Management ports of PCIe switches, which mpt3sas drives (mpt3sas_scsih.c: mpt3sas_pci_table).
_SWITCH_PORTS = {("0x1000", "0x00b2"), ("0x1000", "0x02b0"), ("0x1000", "0x02b1")}


def is_link(name: str) -> bool:
    """Return whether a name has the form of a link below ``/dev``, not of a kernel name."""
    return name.startswith(_DEV) and "/" in name.removeprefix(_DEV)


def resolve_link(name: str) -> str:
    """Return the disk that a link below ``/dev`` points to, or any other name unchanged."""
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


Lowers = Mapping[str, tuple[str, ...]]


class Stack:
    """The whole disks under each disk, and the reverse; by kernel name.

    ``slaves`` are the kernel's links, ``hidden`` the paths of NVMe heads, which have no links.
    """

    def __init__(self, slaves: Lowers, hidden: Lowers) -> None:
        self.below = {**slaves, **hidden}
        self._holders: dict[str, list[str]] = defaultdict(list)
        for upper, lowers in slaves.items():
            for lower in lowers:
                self._holders[lower].append(upper)

    def holders(self, name: str) -> tuple[str, ...]:
        """Return the block devices directly on the disk or its partitions."""
        # An administrator chooses some of the names (drivers/md/md.c: md_alloc).
        return tuple(sorted(map(escape_text, self._holders.get(name, ()))))

    def foundations(self, name: str) -> set[str]:
        """Return the disk and all devices below it, down to the drives."""
        disks: set[str] = set()
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name not in disks:
                disks.add(name)
                waiting += self.below.get(name, ())
        return disks


def _list_disks(folder: str, disks: Mapping[str, str]) -> set[str]:
    names = set()
    for entry in list_names(folder):
        if name := _find_whole_disk(folder, entry, disks):
            names.add(name)
    return names


def _find_whole_disk(folder: str, entry: str, disks: Mapping[str, str]) -> str | None:
    """Return the disk that a link in ``folder`` points to, directly or as a partition."""
    if entry in disks:
        return entry
    with suppress(OSError):
        # The link of a partition ends in DISK/PARTITION.
        *_, parent, name = os.readlink(f"{folder}/{entry}").split("/")
        for candidate in (name, parent):
            if candidate in disks:
                return candidate
    return None


def find_disk_directory(name: str) -> str | None:
    """Return the sysfs directory of the block device with this kernel name."""
    with suppress(OSError):
        path = _resolve_link(_BLOCK, os.readlink(f"{_BLOCK}/{name}"))
        os.stat(path)
        return path if "/" not in name and get_kernel_name(path) == name else None
    return None


def find_hidden_paths(heads: Iterable[str], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return each NVMe head with its hidden paths."""
    paths: dict[str, tuple[str, ...]] = dict.fromkeys(heads, ())
    for name in sorted(names):
        head = find_head(name)
        if head in paths:
            paths[head] += (name,)
    return paths


def find_head(name: str) -> str | None:
    """Return the NVMe head of a hidden path, by their names, or None for other disks.

    ``nvmeXcCnY`` is the path over controller C to ``nvmeXnY`` (nvme/host/multipath.c:
    nvme_mpath_set_disk_name); X is the subsystem's number, not a controller's.
    """
    hidden = name.startswith("nvme") and re.match(r"(nvme\d+)c\d+(n\d+)$", name)
    return hidden[1] + hidden[2] if hidden else None


def find_mounts(stack: Stack, disks: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each disk the mount points of it and of every device stacked on it."""
    points_by_disk: dict[str, set[str]] = defaultdict(set)
    # A filesystem on LVM on a map counts as mounted on the map, its paths and their disks.
    for name, point in _iterate_mounts(disks):
        for lower in stack.foundations(name):
            points_by_disk[lower].add(point)
    return {name: tuple(sorted(points)) for name, points in points_by_disk.items()}


def read_mount_options(points: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the mount options at each of these points; the last mount hides earlier ones."""
    options = {}
    for line in read_text(_MOUNTINFO).splitlines():
        fields = line.split(" ")
        if len(fields) > 5 and (point := _unescape(fields[4])) in points:
            options[point] = tuple(fields[5].split(","))
    return options


def _iterate_mounts(disks: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield disks with mount points; proc(5) describes the format of mountinfo and swaps."""
    pools = _map_btrfs_members(disks)
    for line in read_text(_MOUNTINFO).splitlines():
        mount, _, filesystem = line.partition(" - ")
        fields, source = mount.split(" "), filesystem.split(" ")
        if len(fields) < 5 or len(source) < 2:
            continue
        # A btrfs has a separate device number, which belongs to no disk. Its source names the disk.
        disk = _find_whole_disk("/sys/dev/block", fields[2], disks) or _find_disk(source[1], disks)
        if disk:
            members = pools.get(disk, {disk}) if source[0] == "btrfs" else {disk}
            for member in members:
                yield member, _unescape(fields[4])
    for line in read_text(_SWAPS).splitlines()[1:]:
        if line.split() and (disk := _find_disk(line.split()[0], disks)):
            yield disk, SWAP


def _map_btrfs_members(disks: Mapping[str, str]) -> dict[str, set[str]]:
    """Return for each disk of a btrfs all disks of the file system: mountinfo names only one."""
    pools: dict[str, set[str]] = {}
    with suppress(OSError):
        for entry in os.scandir("/sys/fs/btrfs"):
            members = _list_disks(f"{entry.path}/devices", disks)
            for member in members:
                pools[member] = pools.get(member, set()) | members
    return pools


def _find_disk(node: str, disks: Mapping[str, str]) -> str | None:
    """Return the disk behind a device node, which may be a link such as /dev/mapper/NAME."""
    if not node.startswith(_DEV):
        return None
    name = get_kernel_name(os.path.realpath(_unescape(node)))
    return _find_whole_disk(_BLOCK, name, disks)


def _unescape(text: str) -> str:
    """Undo the octal escapes of blanks and similar characters (fs/proc_namespace.c: mangle)."""
    if "\\" not in text:
        return text
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


class Devices(Struct, frozen=True):
    """The devices of a machine, and how they are stacked, by kernel name.

    ``disks`` are the directories of all whole block devices, ``maps`` the directories of devices
    that join paths. ``places`` are the possible endpoints, by directory. ``servers`` are the
    branches that end in a SCSI host or an NVMe controller. ``parallel`` are the targets on a
    parallel bus.
    """

    disks: Mapping[str, str]
    places: Mapping[str, Place]
    maps: Mapping[str, str]
    servers: tuple[Branch, ...]
    parallel: frozenset[str]
    stack: Stack


def list_branches(places: Mapping[str, Place]) -> tuple[Branch, ...]:
    """Return the branches of these possible endpoints."""
    return tuple(dict.fromkeys(map(attrgetter("branch"), places.values())))


def has_sysfs() -> bool:
    """Return whether sysfs shows block devices. Without any disk, the class exists but is empty."""
    return os.path.isdir(_BLOCK)


def find_devices() -> Devices:
    """Return the machine's block devices and adapters. UsageError if sysfs is hidden."""
    if not has_sysfs():
        raise UsageError(
            f"{_BLOCK} is missing, so hbatune sees no disks",
            hint="it is hidden in many containers: run hbatune on the host",
        )
    block = set(list_directories("block"))
    # Without partitions.
    directories = sorted(d for d in block if d.rpartition("/")[0] not in block)
    disks = dict(zip(map(get_kernel_name, directories), directories, strict=True))
    places, heads, slaves, maps = {}, {}, {}, {}
    for name, directory in disks.items():
        if routes.is_head(directory):
            heads[name] = directory
        elif can_be_endpoint(name, directory):
            places[directory] = routes.parse_place(directory)
        # Only virtual devices are stacked on others: the directory of a real disk need not be read.
        elif routes.is_virtual(directory):
            slaves[name] = tuple(sorted(_list_disks(f"{directory}/slaves", disks)))
            if is_map(directory):
                maps[name] = directory
    hosts = (name.rpartition("/scsi_host/")[0] for name in list_directories("scsi_host"))
    branches = map(routes.parse_branch, [*hosts, *list_directories("nvme")])
    servers = dict.fromkeys(branch for branch in branches if not _is_switch_port(branch))
    return Devices(
        disks=disks,
        places=places,
        maps=heads | maps,
        servers=tuple(sorted(servers, key=lambda server: server.adapter or "")),
        parallel=frozenset(map(get_kernel_name, list_directories("spi_transport"))),
        stack=Stack(slaves, find_hidden_paths(heads, disks)),
    )


def _is_switch_port(server: Branch) -> bool:
    """Return whether a server is only the management port of a PCIe switch."""
    files = ("vendor", "device") if server.pci else ()
    ids = tuple(read_text(f"{server.pci}/{file}").strip() for file in files)
    return ids in _SWITCH_PORTS


def can_be_endpoint(name: str, directory: str) -> bool:
    """Return whether the block device has hardware behind it and is neither optical nor floppy."""
    return not routes.is_virtual(directory) and name.rstrip("0123456789") not in _EXCLUDED_NAMES


def is_map(directory: str) -> bool:
    """Return whether a block device is a multipath map of device-mapper."""
    uuid = get_word(read_attributes(directory, (_UUID,)), _UUID)
    return uuid.startswith(routes.MULTIPATH_UUID)
