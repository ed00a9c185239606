"""The place of a device, parsed from its sysfs path alone: no file is opened for it."""

import re
from functools import cache

from msgspec import Struct

MULTIPATH_UUID = "mpath-"
"""The prefix of dm/uuid of a multipath map (multipath-tools, libmultipath/devmapper.h)."""

_PCI = re.compile(r"(.*/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]))(?=/|$)")
_HOST = re.compile(r"(.*/(host\d+))(?=/|$)")
_SCSI = re.compile(r"(.*)/target[\d:]+/(\d+:\d+:\d+:\d+)/block/[^/]+$")
_CONTROLLER = re.compile(r"(.*/(?:nvme|nvme-fabrics/ctl)/(nvme\d+))(?=/|$)")
_HEAD = re.compile(r"/virtual/nvme-subsystem/[^/]+/[^/]+$")
_VIRTIO = re.compile(r"(.*/(virtio\d+))(?=/|$)")
_END_DEVICE = re.compile(r"(.*/(end_device-[\d:]+))(?=/|$)")
_SESSION = re.compile(r"(.*/(session\d+))(?=/|$)")


class Transport(Struct, frozen=True):
    """A transport, and the folders of a sysfs path that show it; ``#`` stands for a number."""

    name: str
    folders: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """A regular expression that finds one of the folders in a path."""
        folders = (re.escape(each).replace(r"\#", r"\d[\d:-]*") for each in self.folders)
        return re.compile(rf"/(?:{'|'.join(folders)})(?:/|$)")

    @property
    def globs(self) -> str:
        """Globs for udev's DEVPATH that fit any path below one of the folders."""
        return "|".join(f"*/{each.replace('#', '[0-9]*')}/*" for each in self.folders)


# The first that fits decides: a device behind USB is USB, even if it looks like another one.
TRANSPORTS = (
    Transport("usb", ("usb#",)),
    Transport("nvme", ("nvme/nvme#", "nvme-fabrics/ctl/nvme#", "nvme-subsystem/nvme-subsys#")),
    Transport("virtio", ("virtio#",)),
    Transport("ata", ("ata#",)),
    Transport("fc", ("rport-#",)),
    Transport("iscsi", ("session#",)),
    Transport("sas", ("end_device-#",)),
)
_PATTERNS = tuple((each.name, each.pattern) for each in TRANSPORTS)


class Branch(Struct, frozen=True):
    """The part of a path that all devices of one target port share. All are directories.

    ``adapter`` is the name of the device's adapter: the PCI address, or the name of the SCSI
    host, NVMe controller or virtio device. ``bound`` is the directory of the device that the
    driver is bound to, ``session`` that of an iSCSI session. ``transport`` is the name of one of
    ``TRANSPORTS``.
    """

    adapter: str | None
    pci: str | None
    host: str | None
    controller: str | None
    end_device: str | None
    bound: str | None
    transport: str | None
    session: str | None = None


class Place(Struct, frozen=True):
    """A device's branch and its address there: H:C:T:L, if it is a SCSI device."""

    branch: Branch
    address: str | None

    @property
    def target(self) -> str | None:
        """The name of the SCSI target."""
        return "target" + self.address.rpartition(":")[0] if self.address else None

    @property
    def channel(self) -> int | None:
        """The SCSI channel."""
        return int(self.address.split(":")[1]) if self.address else None


def name_of(directory: str) -> str:
    """Return the kernel name of the device with this sysfs directory."""
    return directory.rpartition("/")[2]


def place(directory: str) -> Place:
    """Return the place of the block device with this sysfs directory."""
    scsi = _SCSI.match(directory)
    if scsi:
        return Place(branch(scsi[1]), scsi[2])
    return Place(branch(directory.rpartition("/")[0]), None)


@cache
def branch(path: str) -> Branch:
    """Return the branch of the part of a sysfs path above a target or a namespace.

    Cached, since thousands of LUNs share a few branches.
    """
    transport = next((name for name, pattern in _PATTERNS if pattern.search(path)), None)
    pci, address = _last(_PCI, path)
    if transport == "usb":
        # The PCI function is then a USB controller, which serves much else.
        pci = address = None
    host, host_name = _last(_HOST, path)
    controller, controller_name = _last(_CONTROLLER, path)
    virtio, virtio_name = _last(_VIRTIO, path)
    return Branch(
        adapter=address or host_name or controller_name or virtio_name,
        pci=pci,
        host=host,
        controller=controller,
        end_device=_last(_END_DEVICE, path)[0],
        bound=virtio or (pci if pci else host and host.rpartition("/")[0]),
        transport=transport,
        session=_last(_SESSION, path)[0],
    )


def is_head(directory: str) -> bool:
    """Whether this is the visible disk of an NVMe subsystem, with its paths hidden below it."""
    return _HEAD.search(directory) is not None


def is_virtual(directory: str) -> bool:
    """Whether no adapter is behind the block device: loop, ram, zram, dm, md, nbd and such."""
    return "/devices/virtual/block/" in directory


def _last(pattern: re.Pattern[str], path: str) -> tuple[str | None, str | None]:
    found = pattern.match(path)
    return (found[1], found[2]) if found else (None, None)
