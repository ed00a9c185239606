"""Find the machine's storage devices, their paths in sysfs, and the stacks of disks.

The devices of a class are the links in its directory. libudev finds the same ones (sd-device,
device-enumerator.c: enumerator_scan_dir_and_add_devices), but makes 150 system calls for each LUN.
The tests compare both (``tests/hosts/test_classes.py``). Almost no attribute is read here.
"""

import errno
import os
import re
import stat
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import PurePath

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts import routes
from hbatune.facts.attributes import get_word, read_attributes, read_bytes, read_text
from hbatune.facts.ids import escape_text
from hbatune.facts.names import group_items
from hbatune.facts.routes import Branch, Place, get_kernel_name
from hbatune.workers import Pool, Replied, Stuck

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
_LINK_FOLDERS = ("", "mapper/", "md/", "disk/by-id/")
# Exists whenever the kernel has a block layer (block/genhd.c: genhd_device_init).
_BLOCK = "/sys/class/block"
_NUMBERS = "/sys/dev/block"
_VIRTUAL = "/sys/devices/virtual/block"
_BTRFS = "/sys/fs/btrfs"
# The module's statistics: a directory for each imported pool (OpenZFS, spa_stats.c), and files.
_POOLS = "/proc/spl/kstat/zfs"
_ZFS_MODULE = "/sys/module/zfs"
# What libblkid calls each device of a pool (libblkid/src/superblocks/zfs.c: zfs_idinfo).
_POOL_MEMBER = "zfs_member"
_UDEV_DATABASE = "/run/udev/data"
_SCSI = "/sys/bus/scsi/devices"
SWAP = "[SWAP]"
_MOUNTINFO = "/proc/self/mountinfo"
_SWAPS = "/proc/swaps"
_EXCLUDED_NAMES = {"sr", "fd", "loop", "ram", "zram", "md", "nbd"}
_UUID = "dm/uuid"
# Management ports of PCIe switches, which mpt3sas drives (mpt3sas_scsih.c: mpt3sas_pci_table).
_SWITCH_PORTS = {("0x1000", "0x00b2"), ("0x1000", "0x02b0"), ("0x1000", "0x02b1")}


def resolve_name(name: str) -> tuple[str, ...]:
    """Return the disks of a name in [site], or the name itself. No file is opened for a path."""
    stack = find_named_stack(name, deadline=None)
    return stack.disks if stack else (name,)


def _read_disk_name(link: str) -> str:
    """Return the disk of a link to a block device: of a partition, the disk that it is on."""
    with suppress(OSError):
        # block/partitions/core.c: part_partition_show. The link of a partition ends in
        # DISK/PARTITION.
        if os.path.exists(f"{link}/partition"):
            return os.readlink(link).split("/")[-2]
    return get_kernel_name(link)


def find_block_device(name: str, *, search: bool = True) -> str | None:
    """Return the kernel name of the block device that a name means, or None.

    A name is a kernel name, a link below ``/dev`` or the end of one, the address of a LUN
    (H:C:T:L), or a name of device-mapper, which is ``VG/LV`` for LVM. Without udev's links, the
    latter takes a ``search`` in sysfs.
    """
    short = name.removeprefix(_DEV)
    if os.path.normpath(_DEV + short) != _DEV + short:  # a path elsewhere
        return None
    if re.fullmatch(r"\d+:\d+:\d+:\d+", name, re.ASCII):
        return next(iter(list_names(f"{_SCSI}/{name}/block")), None)
    # A dangling link names no disk: the caller reports the name.
    links = filter(os.path.exists, (f"{_DEV}{folder}{short}" for folder in _LINK_FOLDERS))
    for kernel in (short.replace("/", "!"), *map(_find_node_device, links)):
        if kernel is not None and find_disk_directory(kernel):
            return kernel
    mapper = f"{_DEV}mapper"
    if not search or any(os.path.islink(f"{mapper}/{entry}") for entry in list_names(mapper)):
        return None  # udev makes a link to each map
    # Containers often lack these links. sysfs has the names as well: a file for each of thousands.
    group, _, volume = (part.replace("-", "--") for part in short.partition("/"))
    names = (short.removeprefix("mapper/"), f"{group}-{volume}")
    for kernel in list_names(_BLOCK):
        if kernel.startswith("dm-"):
            mapped = read_text(f"{_VIRTUAL}/{kernel}/dm/name").strip()
            if mapped == names[0] or (mapped == names[1] and read_label(kernel) == short):
                return kernel
    return None


def read_label(kernel: str) -> str:
    """Return the name that people use: ``mpatha``, ``vg0/pg``, a btrfs's label, or ``sda``.

    drivers/md/dm-sysfs.c: dm_attr_name_show. LVM joins the names of the group and the volume with
    a hyphen, and doubles the hyphens in both (libdm-string.c: dm_build_dm_name).
    """
    folder = f"{_BLOCK}/{kernel}/dm"
    is_mapped = kernel.startswith("dm-")
    name = read_text(f"{folder}/name" if is_mapped else f"{_BTRFS}/{kernel}/label").strip()
    volume = re.fullmatch(r"((?:[^-]|--)+)-((?:[^-]|--)+)", name)
    if volume and read_text(f"{folder}/uuid").startswith("LVM-"):
        name = "/".join(volume.groups()).replace("--", "-")
    return escape_text(name or kernel)


def list_lower_devices(kernel: str) -> tuple[str, ...]:
    """Return the block devices directly below one: of a disk, a map and an NVMe head, no device."""
    directory = find_disk_directory(kernel)
    if directory is None:
        return ()
    if (disk := _read_disk_name(f"{_BLOCK}/{kernel}")) != kernel:
        return (disk,)
    if not routes.is_virtual(directory) or routes.is_head(directory) or is_map(directory):
        return ()
    return tuple(sorted(list_lower_disks(directory)))


def list_lower_disks(directory: str) -> set[str]:
    """Return the whole disks that the links of a device point to, directly or as partitions."""
    names = list_names(f"{directory}/slaves")
    return {_read_disk_name(f"{directory}/slaves/{name}") for name in names}


class NamedStack(Struct, frozen=True):
    """A name of a disk, of a stack of block devices, or of a file on one.

    ``layers`` are the kernel names of the devices, from the top. A disk's own name has no layers.
    The devices without another one below are the ``disks``.
    """

    name: str
    layers: tuple[tuple[str, ...], ...]
    disks: tuple[str, ...]


def find_named_stack(name: str, *, deadline: float | None = 5.0) -> NamedStack | None:
    """Return the stack or the disk that a name means, or None for any other name.

    A word without a slash names a device or a ZFS pool, and never a file. UsageError for a file
    that is on no block device, or whose file system does not answer within the ``deadline`` in
    seconds. Without a deadline, a path is only a mount point.
    """
    device, pool = find_block_device(name, search=False), name
    # Only the link of a volume of ZFS names its pool (OpenZFS, udev/zvol_id.c).
    if device and name.startswith(f"{_DEV}zvol/"):
        device, pool = None, name.removeprefix(f"{_DEV}zvol/").partition("/")[0]
    members: Sequence[str] = ()
    # Without this directory, the search decides. It reads udev's entries of all block devices.
    if device is None and "/" not in pool and pool in (list_names(_POOLS) or (pool,)):
        members = find_pools().get(pool, ())
    # Last: the search for a map reads a file of each one.
    if device is None and not members and pool == name:
        device = find_block_device(name)
    layers = [tuple(members)]
    if device is not None:
        if not list_lower_devices(device):
            return NamedStack(name, (), (device,))
        layers = [(device,)]
    elif "/" in pool and deadline is not None:
        layers = [_find_file_devices(name, deadline)]
    # The last mount hides earlier ones at the same point.
    elif "/" in pool and (mount := {mount.point: mount for mount in _read_mounts()}.get(name)):
        layers = [_find_mounted_devices(mount)]
    disks: list[str] = []
    for layer in layers:  # grows in the loop
        lowers: dict[str, None] = {}
        for upper in layer:
            if below := list_lower_devices(upper):
                lowers.update(dict.fromkeys(below))
            else:
                disks.append(upper)
        if lowers:
            layers.append(tuple(lowers))
    return NamedStack(name, tuple(layers), tuple(dict.fromkeys(disks))) if disks else None


def _find_file_devices(name: str, deadline: float) -> tuple[str, ...]:
    """Return the block devices of a file, or none if there is no such file."""
    path, node, error = name, 0, errno.ENOENT
    with Pool(_locate_file, size=1, deadline=deadline) as pool:
        for event in pool.run([name]):
            if isinstance(event, Replied):
                path, node, error = event.reply
            elif isinstance(event, Stuck):
                problem = f"the file system of {name!r} did not answer within {deadline:g} seconds"
                raise UsageError(problem, hint="name the disk or the volume")
    if error in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return ()
    if error:
        raise UsageError(f"{name!r} cannot be read: {os.strerror(error)}")
    if node:
        device = os.path.realpath(f"{_NUMBERS}/{os.major(node)}:{os.minor(node)}")
        return (get_kernel_name(device),)
    parents = {path, *map(str, PurePath(path).parents)}
    mounts = [mount for mount in _read_mounts() if mount.point in parents]
    # The last mount hides earlier ones at the same point.
    mount = max(reversed(mounts), key=lambda mount: len(mount.point), default=None)
    devices = _find_mounted_devices(mount) if mount else ()
    if mount and not devices:
        problem = f"{name!r} is on {mount.filesystem} ({mount.source}), not on a block device"
        hint = "name its disks: `zpool status -LP` lists them"
        raise UsageError(problem, hint=hint if mount.filesystem == "zfs" else None)
    return devices


def _locate_file(name: str) -> Iterator[tuple[str, int, int]]:  # pragma: no cover  (in the worker)
    """Yield the resolved path of a file, the number of a block device's node, and an errno or 0."""
    try:
        path = os.path.realpath(name, strict=True)
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            os.stat(f"{path}/.")  # mounts an autofs directory (fs/namei.c: follow_automount)
        yield path, status.st_rdev if stat.S_ISBLK(status.st_mode) else 0, 0
    except OSError as error:
        yield name, 0, error.errno or errno.EIO


def find_other_uses(stack: NamedStack) -> tuple[str, ...]:
    """Return the other top devices and pools on a stack's disks, and the other mount points."""
    devices, members = find_devices(), {device for layer in stack.layers for device in layer}
    points = find_mounts(devices.stack, devices.disks)
    uses = {point for disk in stack.disks for point in points.get(disk, ())}
    uses -= {point for device, point in _iterate_mounts(devices.stack.pools) if device in members}
    # A pool of exactly the top devices is the name itself, or the name is in it.
    pools, top = devices.stack.pools.items(), {*stack.layers[0]}
    members.update(devices.maps)
    members.update(get_kernel_name(pool) for pool, lowers in pools if {*lowers} == top)
    for name, _, below in list_stacks(devices.stack, devices.disks):
        is_top = name not in members and not devices.stack.holders(name)
        if is_top and not below.isdisjoint(stack.disks):
            uses.add(read_label(name))
    return tuple(sorted(uses))


Lowers = Mapping[str, Sequence[str]]


class Stack:
    """The whole disks under each disk, and the reverse; by kernel name.

    ``slaves`` are the kernel's links, ``hidden`` the paths of NVMe heads, which have no links.
    ``pools`` are the devices of each ZFS pool, and of each btrfs by its directory.
    """

    def __init__(self, slaves: Lowers, hidden: Lowers, pools: Lowers | None = None) -> None:
        self.below = {**slaves, **hidden}
        self.pools = pools or {}
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


def _find_whole_disk(device: str, disks: Mapping[str, str]) -> str | None:
    """Return the disk with this kernel name, or the disk of the partition with this name."""
    disk = _read_disk_name(f"{_BLOCK}/{device}")
    return disk if disk in disks else None


def find_disk_directory(name: str) -> str | None:
    """Return the sysfs directory of the block device with this kernel name."""
    with suppress(OSError):
        path = _resolve_link(_BLOCK, os.readlink(f"{_BLOCK}/{name}"))
        os.stat(path)
        return path if "/" not in name and get_kernel_name(path) == name else None
    return None


def find_hidden_paths(heads: Iterable[str], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return each NVMe head with its hidden paths."""
    paths = group_items(sorted(names), find_head)
    return {head: tuple(paths.get(head, ())) for head in heads}


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
    for device, point in _iterate_mounts(stack.pools):
        whole = _find_whole_disk(device, disks)
        for lower in stack.foundations(whole) if whole else ():
            points_by_disk[lower].add(point)
    return {name: tuple(sorted(points)) for name, points in points_by_disk.items()}


def list_stacks(stack: Stack, disks: Mapping[str, str]) -> Iterator[tuple[str, str, set[str]]]:
    """Yield the devices on others with their directories, and all devices below each.

    A ZFS pool has no directory, and a btrfs is named by its UUID. NVMe heads are omitted: their
    hidden paths name them.
    """
    for name, lowers in stack.below.items():
        if lowers and not routes.is_head(disks[name]):
            yield name, disks[name], stack.foundations(name) - {name}
    for pool, members in stack.pools.items():
        wholes = filter(None, (_find_whole_disk(member, disks) for member in members))
        directory = pool if "/" in pool else ""
        yield get_kernel_name(pool), directory, set[str]().union(*map(stack.foundations, wholes))


def find_volumes(stack: Stack, disks: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each disk the names of all devices stacked on it, and of its pool."""
    names_by_disk: dict[str, set[str]] = defaultdict(set)
    for upper, _, lowers in list_stacks(stack, disks):
        label = read_label(upper)
        for lower in lowers:
            names_by_disk[lower].add(label)
    return {name: tuple(sorted(names)) for name, names in names_by_disk.items()}


class _Mount(Struct, frozen=True):
    """A mount: its point, its options, and the number and the source of its file system."""

    point: str
    options: tuple[str, ...]
    number: str
    filesystem: str
    source: str


def _read_mounts() -> Iterator[_Mount]:
    """Yield the mounts, in the order of mountinfo (proc(5))."""
    for line in read_text(_MOUNTINFO).splitlines():
        mount, _, filesystem = line.partition(" - ")
        fields, source = mount.split(" "), filesystem.split(" ")
        if len(fields) > 5 and len(source) > 1:
            options = tuple(fields[5].split(","))
            origin = (source[0], _unescape(source[1]))
            yield _Mount(_unescape(fields[4]), options, fields[2], *origin)


def read_mount_options(points: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the mount options at each of these points; the last mount hides earlier ones."""
    return {mount.point: mount.options for mount in _read_mounts() if mount.point in points}


def _iterate_mounts(pools: Lowers) -> Iterator[tuple[str, str]]:
    """Yield block devices with mount points; proc(5) describes the format of swaps."""
    for mount in _read_mounts():
        for device in _find_mounted_devices(mount, pools):
            yield device, mount.point
    for line in read_text(_SWAPS).splitlines()[1:]:
        if line.split() and (swap := _find_node_device(_unescape(line.split()[0]))):
            yield swap, SWAP


def _find_mounted_devices(mount: _Mount, pools: Lowers | None = None) -> tuple[str, ...]:
    """Return the block devices of a mount, which are several only for btrfs and ZFS."""
    if mount.filesystem == "zfs":  # the source is a dataset: POOL/NAME
        pools = find_pools() if pools is None else pools
        return tuple(pools.get(mount.source.partition("/")[0], ()))
    with suppress(OSError):
        return (os.readlink(f"{_NUMBERS}/{mount.number}").rpartition("/")[2],)
    # A btrfs has a separate device number, which belongs to no disk. Its source names one device.
    device = _find_node_device(mount.source)
    if device is None:
        return ()
    if mount.filesystem == "btrfs":
        for members in _find_btrfs().values():
            if device in members:
                return tuple(members)
    return (device,)


def find_pools() -> dict[str, list[str]]:
    """Return each ZFS pool with the kernel names of its disks and partitions.

    Cache and spare devices do not store the name of a pool. They are in the pool ``zfs_member``.
    Without ZFS's module, this host uses no pool, and udev's database is not searched. With libudev,
    which also reads the ``uevent`` of each device, a search takes 25 times the CPU time.
    """
    if not os.path.isdir(_ZFS_MODULE):
        return {}
    pools: dict[str, list[str]] = defaultdict(list)
    line = f"\nE:ID_FS_TYPE={_POOL_MEMBER}\n".encode()
    for name in list_names(_UDEV_DATABASE):
        if not name.startswith("b"):  # block devices (sd-device.c: sd_device_get_device_id)
            continue
        entry = b"\n" + read_bytes(f"{_UDEV_DATABASE}/{name}")
        if line in entry:
            pool = os.fsdecode(entry.partition(b"\nE:ID_FS_LABEL=")[2].partition(b"\n")[0])
            with suppress(OSError):  # a removed device
                pools[pool or _POOL_MEMBER].append(os.readlink(f"{_NUMBERS}/{name[1:]}"))
    return {pool: list(map(get_kernel_name, sorted(links))) for pool, links in pools.items()}


def _find_btrfs() -> dict[str, list[str]]:
    """Return the devices of each mounted btrfs with several, by its directory in sysfs."""
    directories = (f"{_BTRFS}/{name}" for name in list_names(_BTRFS))
    members = {path: sorted(list_names(f"{path}/devices")) for path in directories}
    return {path: names for path, names in members.items() if len(names) > 1}


def _find_node_device(node: str) -> str | None:
    """Return the block device of a device node, which may be a link such as /dev/mapper/NAME."""
    if not node.startswith(_DEV):
        return None
    name = os.path.realpath(node).removeprefix(_DEV).replace("/", "!")  # a link out of /dev: none
    return name if os.path.exists(f"{_BLOCK}/{name}") else None


def _unescape(text: str) -> str:
    """Undo the octal escapes of blanks and similar characters (fs/proc_namespace.c: mangle)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


class Devices(Struct, frozen=True):
    """The devices of a machine, and how they are stacked, by kernel name.

    ``disks`` are the directories of all whole block devices, ``maps`` the directories of devices
    that join paths. ``places`` are the possible endpoints, by directory. ``branches`` are first
    the endpoints' branches, and then those that end in a SCSI host or an NVMe controller.
    """

    disks: Mapping[str, str]
    places: Mapping[str, Place]
    maps: Mapping[str, str]
    branches: tuple[Branch, ...]
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
            slaves[name] = tuple(sorted(list_lower_disks(directory)))
            if is_map(directory):
                maps[name] = directory
    hosts = (name.rpartition("/scsi_host/")[0] for name in list_directories("scsi_host"))
    branches = map(routes.parse_branch, [*hosts, *list_directories("nvme")])
    servers = [branch for branch in branches if not _is_switch_port(branch)]
    servers.sort(key=lambda server: server.adapter or "")
    return Devices(
        disks=disks,
        places=places,
        maps=heads | maps,
        branches=tuple(dict.fromkeys((*list_branches(places), *servers))),
        stack=Stack(slaves, find_hidden_paths(heads, disks), find_pools() | _find_btrfs()),
    )


def _is_switch_port(server: Branch) -> bool:
    """Return whether a server is only the management port of a PCIe switch."""
    files = ("vendor", "device") if server.pci else ()
    return tuple(read_text(f"{server.pci}/{file}").strip() for file in files) in _SWITCH_PORTS


def can_be_endpoint(name: str, directory: str) -> bool:
    """Return whether the block device has hardware behind it and is neither optical nor floppy."""
    return not routes.is_virtual(directory) and name.rstrip("0123456789") not in _EXCLUDED_NAMES


def is_map(directory: str) -> bool:
    """Return whether a block device is a multipath map of device-mapper."""
    return get_word(read_attributes(directory, (_UUID,)), _UUID).startswith(routes.MULTIPATH_UUID)
