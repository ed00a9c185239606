"""Parse a device's position from its sysfs path, and build the route to it, as in its id.

A route is the adapter, and the port or address behind it. Like systemd's ID_PATH
(udev-builtin-path_id.c), it contains nothing that a boot assigns: no SCSI host number, no NVMe
instance, no number of a transport class and no interrupt number. A part of the kernel's path
replaces an attribute that cannot be read. No file is opened here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate

from msgspec import Struct

from hbatune.facts.attributes import Attributes, get_word
from hbatune.facts.names import group_items, natural_key

# The prefix of dm/uuid of a multipath map (multipath-tools, libmultipath/devmapper.h).
MULTIPATH_UUID = "mpath-"

# Compiled by re at first use: most commands use none of them, and start sooner.
PCI_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"

SAS_ADDRESS = "sas_address"  # drivers/scsi/scsi_transport_sas.c, for an end device

_FABRIC = ("transport", "address", "subsysnqn")  # drivers/nvme/host/sysfs.c
_VPORT = "/vport-"  # an NPIV port (drivers/scsi/scsi_transport_fc.c: fc_vport_setup)
_FC_HOST = "port_name"  # drivers/scsi/scsi_transport_fc.c, for a host
_PORT_NO = "port_no"  # drivers/ata/libata-transport.c
_TARGET_NAME, _IFACE = "targetname", "ifacename"  # drivers/scsi/scsi_transport_iscsi.c
_PORTAL = ("persistent_address", "persistent_port")

_WORLD_WIDE = r"0x0*[1-9a-f][0-9a-f]*"  # all zeros are not a name
_USB = rf".*/({PCI_ADDRESS})/usb\d+/.*/\d+-([\d.]+:[\d.]+)/"
# A boot assigns their numbers: drivers/virtio/virtio.c, drivers/scsi/fcoe/fcoe_sysfs.c.
_NUMBERED = r"virtio\d+|ctlr_\d+"
_DEFAULT_IFACE = ("", "default", "(null)", "<null>")


class Transport(Struct, frozen=True):
    """A transport, and the directories of a sysfs path that identify it; ``#`` is a number."""

    name: str
    folders: tuple[str, ...]

    @property
    def globs(self) -> str:
        """Globs for udev's DEVPATH that match any path below one of the directories."""
        return "|".join(f"*/{folder.replace('#', '[0-9]*')}/*" for folder in self.folders)


# The first match decides: a device behind USB is USB, even if it looks like another type.
TRANSPORTS = (
    Transport("usb", ("usb#",)),
    Transport("nvme", ("nvme/nvme#", "nvme-fabrics/ctl/nvme#", "nvme-subsystem/nvme-subsys#")),
    Transport("virtio", ("virtio#",)),
    Transport("xen", ("vbd-#",)),
    Transport("firewire", ("fw#",)),
    Transport("srp", ("infiniband_srp",)),
    Transport("ata", ("ata#",)),
    Transport("fc", ("rport-#",)),
    Transport("iscsi", ("session#",)),
    Transport("sas", ("end_device-#",)),
)


class Branch(Struct, frozen=True):
    """The part of a path that all devices of one target port share: directories and two names.

    ``adapter`` is the name of the device's adapter: the PCI address, or the name of the SCSI host,
    NVMe controller or virtio device. ``transport`` is the name of one of ``TRANSPORTS``.
    ``sas_port`` is the drive's port in the SAS transport class, once for all LUNs behind it.
    ``bound`` is the device that the driver is bound to, ``session`` an iSCSI session.
    """

    adapter: str | None
    pci: str | None
    host: str | None
    controller: str | None
    sas_port: str | None
    bound: str | None
    transport: str | None
    session: str | None = None

    @property
    def host_name(self) -> str | None:
        """The kernel name of the SCSI host."""
        return get_kernel_name(self.host) if self.host else None


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


def get_kernel_name(directory: str) -> str:
    """Return the kernel name of the device with this sysfs directory."""
    return directory.rpartition("/")[2]


def parse_place(directory: str) -> Place:
    """Return the branch and address of the block device with this sysfs directory."""
    match directory.rsplit("/", 4):
        case above, target, address, "block", name if (
            name
            and target.startswith("target")
            and target[6:].replace(":", "").isdecimal()
            and address.count(":") == 3
            and all(map(str.isdecimal, address.split(":")))
        ):
            return Place(parse_branch(above), address)
    return Place(parse_branch(directory.rpartition("/")[0]), None)


@cache  # thousands of LUNs share a few branches
def parse_branch(path: str) -> Branch:
    """Return the branch for the part of a sysfs path above a target or a namespace."""
    directories = tuple(accumulate(path.split("/"), "{}/{}".format))[::-1]  # from the path up
    transport = _find_transport(directories)
    functions = (d for d in directories if re.fullmatch(PCI_ADDRESS, get_kernel_name(d)))
    # With USB, the PCI function is a USB controller, which serves other devices too.
    pci = None if transport == "usb" else next(functions, None)
    find_numbered = partial(_find_numbered, directories)
    host = find_numbered("/host")
    controller = find_numbered("/nvme/nvme") or find_numbered("/nvme-fabrics/ctl/nvme")
    virtio, xen = find_numbered("/virtio"), find_numbered("/vbd-")
    adapter = pci or host or controller or virtio or xen
    end_device = find_numbered("/end_device-")
    return Branch(
        adapter=get_kernel_name(adapter) if adapter else None,
        pci=pci,
        host=host,
        controller=controller,
        sas_port=get_class_dir(end_device, "sas_device") if end_device else None,
        bound=virtio or xen or pci or (host and host.rpartition("/")[0]),
        transport=transport,
        session=find_numbered("/session"),
    )


def is_head(directory: str) -> bool:
    """Return whether this is the visible disk of an NVMe subsystem, with hidden paths below it."""
    return directory.split("/")[-4:-2] == ["virtual", "nvme-subsystem"]


def is_virtual(directory: str) -> bool:
    """Return whether the block device has no adapter: loop, ram, zram, dm, md, nbd and similar."""
    return "/devices/virtual/block/" in directory


def _find_transport(directories: Sequence[str]) -> str | None:
    for transport in TRANSPORTS:
        for folder in transport.folders:
            text = "/" + folder.removesuffix("#")
            for directory in directories:
                _, is_below, suffix = directory.rpartition(text)
                is_number = suffix[:1].isdecimal() and not suffix.strip("0123456789:-")
                if is_below and (is_number if folder.endswith("#") else not suffix):
                    return transport.name
    return None


def _find_numbered(directories: Sequence[str], text: str) -> str | None:
    """Return the first directory whose path ends in the text and a number (6:0:1)."""
    for directory in directories:
        if directory.rpartition(text)[2].replace(":", "").isdecimal():
            return directory
    return None


def find_port_name_file(place: Place) -> str:
    """Return the path of the FC array port's name, below the LUN's block device."""
    return f"device/../fc_transport/{place.target}/port_name"


def get_class_dir(directory: str, device_class: str) -> str:
    """Return the directory of a device's attributes in a class, below the device's own."""
    return f"{directory}/{device_class}/{get_kernel_name(directory)}"


def list_route_attributes(branches: Iterable[Branch]) -> dict[str, tuple[str, ...]]:
    """Return, by directory, the attributes that routes need: for each port, not for each LUN."""
    wanted: dict[str, tuple[str, ...]] = {}
    for branch in branches:
        if branch.sas_port:
            wanted[branch.sas_port] = (SAS_ADDRESS,)
        if branch.transport == "ata" and (port := _get_ata_port(branch)):
            wanted[port] = (_PORT_NO,)
        if branch.session:
            session, connection = _list_iscsi_dirs(branch.session)
            wanted[session] = (_TARGET_NAME, _IFACE)
            wanted[connection] = _PORTAL
        if branch.host and _VPORT in branch.host:
            wanted[get_class_dir(branch.host, "fc_host")] = (_FC_HOST,)
        if branch.controller and not branch.pci:
            wanted[branch.controller] = _FABRIC
    return wanted


class Routes:
    """The routes of one machine, from the attributes of its hosts, ports and controllers."""

    def __init__(self, branches: Iterable[Branch], read: Mapping[str, Attributes]) -> None:
        self._read = read
        hosts: dict[str, str] = {}
        controllers: dict[str, str] = {}
        # Branches with disks come first: they identify a host better than the host itself.
        for branch in branches:
            if branch.host:
                hosts.setdefault(branch.host, self._format_adapter(branch))
            if branch.controller:
                controllers.setdefault(branch.controller, self._format_bus(branch))
        self._hosts = _rank(hosts)
        self._controllers = _rank(controllers)

    def of_disk(self, directory: str, place: Place, attributes: Attributes) -> str:
        """Return the route to a block device with these ``attributes``."""
        branch = place.branch
        if branch.controller:
            return self._format_bus(branch)
        if branch.adapter is None:  # without an adapter: the name of the device above it
            above = directory.rpartition("/block/")[0]
            return _sanitize(get_kernel_name(above) or get_kernel_name(directory))
        port = self._format_port(place, attributes) if place.address else ""
        return "/".join(filter(None, (self._format_adapter(branch), port)))

    def of_disks(self, places: Mapping[str, Place]) -> set[str]:
        """Return the routes to the block devices with these directories."""
        return {self.of_disk(d, place, self._read.get(d, {})) for d, place in places.items()}

    def of_control(self, directory: str) -> str:
        """Return the id of a SCSI host or NVMe controller: its rank replaces the boot's number."""
        is_host = directory in self._hosts
        adapter, rank, _ = (self._hosts if is_host else self._controllers)[directory]
        return f"{'host' if is_host else 'controller'}-{rank}@{adapter}"

    def _format_adapter(self, branch: Branch) -> str:
        if branch.pci:
            return get_kernel_name(branch.pci)
        if branch.transport == "iscsi":
            return "iscsi"
        if branch.controller:
            return f"nvme-{self._read_word(branch.controller, _FABRIC[0]) or 'fabrics'}"
        if usb := re.match(_USB, f"{branch.host}/"):
            return f"{usb[1]}-usb-0:{usb[2]}"
        above = branch.bound or ""
        # The device above: for FCoE, a network interface.
        if re.fullmatch(_NUMBERED, get_kernel_name(above)):
            above = above.rpartition("/")[0]
        return _sanitize(get_kernel_name(above))

    def _format_bus(self, branch: Branch) -> str:
        """Return the adapter of an NVMe controller; over fabrics with its address and subsystem."""
        adapter = self._format_adapter(branch)
        if branch.pci or branch.controller is None:
            return adapter
        address, name = map(partial(self._read_word, branch.controller), _FABRIC[1:])
        return "/".join(filter(None, (adapter, _format_address(address), name)))

    def _format_port(self, place: Place, attributes: Attributes) -> str:
        branch, address = place.branch, place.address or ""
        lun = f"lun-{address.rpartition(':')[2]}"
        match branch.transport:
            case "fc":
                name = get_word(attributes, find_port_name_file(place))
                if re.fullmatch(_WORLD_WIDE, name):
                    return f"{self._format_initiator(branch)}fc-{name}-{lun}"
            case "sas":
                name = self._read_word(branch.sas_port or "", SAS_ADDRESS)
                if re.fullmatch(_WORLD_WIDE, name):
                    return f"sas-{name}-{lun}"
            case "iscsi":
                if target := self._format_iscsi(branch):
                    return f"{target}-{lun}"
            case "ata":
                number = self._read_word(_get_ata_port(branch) or "", _PORT_NO)
                if number.isdecimal():
                    # On a port multiplier, or the second on a cable.
                    position = address.partition(":")[2]
                    return f"ata-{number}" + (f"-scsi-{position}" if position != "0:0:0" else "")
        return f"{self._format_host_rank(branch)}scsi-{address.partition(':')[2]}"

    def _format_initiator(self, branch: Branch) -> str:
        """Return the part that distinguishes an NPIV port of a card from the card's own port."""
        if not branch.host or _VPORT not in branch.host:
            return ""
        name = self._read_word(get_class_dir(branch.host, "fc_host"), _FC_HOST)
        if re.fullmatch(_WORLD_WIDE, name):
            return f"vport-{name}-"
        return self._format_host_rank(branch)

    def _format_iscsi(self, branch: Branch) -> str:
        """Return portal, interface and name of an iSCSI target, or an empty text without a name."""
        session, connection = _list_iscsi_dirs(branch.session or "")
        target = self._read_word(session, _TARGET_NAME)
        if not target:
            return ""
        address, port = map(partial(self._read_word, connection), _PORTAL)
        portal = f"ip-{address}:{port}-" if address and port else ""
        iface = self._read_word(session, _IFACE)
        over = "" if iface.lower() in _DEFAULT_IFACE else f"iface-{iface}-"
        return f"{over}{portal}iscsi-{target}"

    def _format_host_rank(self, branch: Branch) -> str:
        """Return the host's rank among its adapter's hosts, or an empty text for a single host."""
        if branch.host is None:
            return ""
        _, rank, count = self._hosts[branch.host]
        return f"host-{rank}-" if count > 1 else ""

    def _read_word(self, directory: str, name: str) -> str:
        return _sanitize(get_word(self._read.get(directory, {}), name))


def _rank(adapters: Mapping[str, str]) -> dict[str, tuple[str, int, int]]:
    """Return by directory the adapter, the rank in the adapter, and the adapter's count."""
    ordered = sorted(adapters, key=lambda directory: natural_key(get_kernel_name(directory)))
    ranks = {}
    for adapter, directories in group_items(ordered, adapters.__getitem__).items():
        for rank, directory in enumerate(directories):
            ranks[directory] = (adapter, rank, len(directories))
    return ranks


def _format_address(text: str) -> str:
    """Return the address of a fabric's controller, from ``traddr=…,trsvcid=…,host_traddr=…``.

    The address that the host connected from is omitted unless it was configured (``host_traddr``,
    ``host_iface``). Otherwise the network chooses it at each connection.
    """
    parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    service = parts.get("trsvcid", "")
    target = parts.get("traddr", "") + (f":{service}" if service not in ("", "none") else "")
    return "-".join(filter(None, (target, parts.get("host_traddr"), parts.get("host_iface"))))


def _sanitize(text: str) -> str:
    """Replace the separators of an id's parts, and unusual characters, in the text."""
    return re.sub(r"[^A-Za-z0-9._:+=,\[\]-]", "_", text)


def _get_ata_port(branch: Branch) -> str | None:
    above = (branch.host or "").rpartition("/")[0]
    return get_class_dir(above, "ata_port") if get_kernel_name(above).startswith("ata") else None


def _list_iscsi_dirs(session: str) -> tuple[str, str]:
    """Return the class directories of a session and its first connection (iscsi_create_conn)."""
    connection = f"{session}/connection{get_kernel_name(session).removeprefix('session')}:0"
    return get_class_dir(session, "iscsi_session"), get_class_dir(connection, "iscsi_connection")
