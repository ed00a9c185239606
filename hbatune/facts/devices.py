"""Find the machine's storage devices, their places, and the stacks of disks.

Lists the devices of a class by reading its folder in sysfs: one link for each device.

libudev finds the same ones (sd-device, device-enumerator.c: enumerator_scan_dir_and_add_devices),
and opens each folder on the way to each of them: a hundred and fifty system calls a LUN. It is the
referee of the tests (``tests/hosts/test_classes.py``).

Finds the machine's storage devices and their places, and how disks are stacked on each other.

Hardly any attribute is read here.
"""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.attributes import read, word
from hbatune.facts.ids import escape
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

_CLASS = "/sys/class"
_UP = "../../devices/"
"""The beginning of the kernel's own links (fs/sysfs/symlink.c: sysfs_create_link)."""


def directories(name: str) -> list[str]:
    """Return the sysfs directories of the devices of a class, none where there is no such class.

    Devices that vanish meanwhile are left out. Bytes of a name that are no UTF-8 are kept as
    surrogates (``os.fsdecode``), so that the directory can be opened.
    """
    folder = f"{_CLASS}/{name}"
    found = []
    with suppress(OSError):  # the class is there once a driver has registered it
        for entry in os.listdir(folder):
            try:
                found.append(_directory(folder, os.readlink(f"{folder}/{entry}")))
            except OSError:  # an attribute of the class, or a device that is gone
                continue
    # As libudev does: what has no such file is no device (sd-device.c: sd_device_set_syspath).
    return sorted(each for each in found if os.access(f"{each}/uevent", os.F_OK))


def directory_of(name: str, device: str) -> str:
    """Return the sysfs directory of one device of a class. OSError where there is none."""
    folder = f"{_CLASS}/{name}"
    found = _directory(folder, os.readlink(f"{folder}/{device}"))
    os.stat(found)
    return found


def _directory(folder: str, link: str) -> str:
    """Return the directory that a link of a class leads to, without any link on its way."""
    if link.startswith(_UP) and "/." not in link.removeprefix(_UP):
        return f"/sys/devices/{link.removeprefix(_UP)}"
    return os.path.realpath(os.path.join(folder, link))


_DEV = "/dev/"

SWAP = "[SWAP]"

_MOUNTINFO = "/proc/self/mountinfo"
_SWAPS = "/proc/swaps"
_OCTAL = r"\\([0-7]{3})"
_HIDDEN = r"(nvme\d+)c\d+(n\d+)$"

_NOT_OURS = {"sr", "fd", "loop", "ram", "zram", "md", "nbd"}
_UUID = "dm/uuid"
_BLOCK = "/sys/class/block"
"""There whenever the kernel has a block layer (block/genhd.c: genhd_device_init)."""


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
        """Return the block devices directly on the disk or its partitions.

        An administrator chooses the names of some (drivers/md/md.c: md_alloc): they are escaped.
        """
        return tuple(sorted(map(escape, self._holders.get(name, ()))))

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
        head = head_of(name)
        if head in paths:
            paths[head].append(name)
    return {head: tuple(sorted(found)) for head, found in paths.items()}


def head_of(name: str) -> str | None:
    """Return the NVMe head that a hidden path belongs to, by their names; None for other disks."""
    hidden = name.startswith("nvme") and re.match(_HIDDEN, name)
    return hidden[1] + hidden[2] if hidden else None


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
    if "\\" not in text:
        return text
    return re.sub(_OCTAL, lambda found: chr(int(found[1], 8)), text)


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


def has_sysfs() -> bool:
    """Whether sysfs shows block devices: without any disk it has the class, but an empty one."""
    return os.path.isdir(_BLOCK)


def find() -> Devices:
    """Enumerate the machine's storage: block devices, the hidden NVMe paths too, and adapters.

    UsageError if sysfs is hidden.
    """
    if not has_sysfs():
        raise UsageError(
            f"{_BLOCK} is not there, so that no disk can be seen",
            hint="it is hidden in many containers: run hbatune on the host",
        )
    block = set(directories("block"))
    partitions = {directory for directory in block if directory.rpartition("/")[0] in block}
    disks = {name_of(directory): directory for directory in sorted(block - partitions)}
    places = {d: place(d) for name, d in disks.items() if may_be_endpoint(name, d)}
    heads = {name_of(directory): directory for directory in places if is_head(directory)}
    # Only virtual devices stand on others; the folder of a real disk need not be read.
    slaves = {name: read_slaves(d, disks) for name, d in disks.items() if is_virtual(d)}
    maps = {name: disks[name] for name in slaves if is_map(disks[name])}
    hosts = (name.rpartition("/scsi_host/")[0] for name in directories("scsi_host"))
    servers = dict.fromkeys(branch(d) for d in [*hosts, *directories("nvme")])
    return Devices(
        disks=disks,
        places={d: found for d, found in places.items() if not is_head(d)},
        maps=heads | maps,
        servers=tuple(sorted(servers, key=lambda server: server.adapter or "")),
        parallel=frozenset(name_of(d) for d in directories("spi_transport")),
        stack=Stack(slaves, hidden_paths(heads, disks)),
    )


def may_be_endpoint(name: str, directory: str) -> bool:
    """Whether the block device has hardware behind it, and is no optical drive and no floppy."""
    return not is_virtual(directory) and name.rstrip("0123456789") not in _NOT_OURS


def is_map(directory: str) -> bool:
    """Whether a block device is a multipath map of device-mapper."""
    uuid = word(read(directory, (_UUID,)), _UUID)
    return uuid.startswith(MULTIPATH_UUID)
