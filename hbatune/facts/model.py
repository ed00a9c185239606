"""The facts of a machine as frozen values.

A fact that could not be read is never an empty string or a zero: it is a ``Missing`` with one of
four reasons.
"""

import errno
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.loader import ErrorNumber, LongText, ShortText


class Reason(StrEnum):
    """The reason why a fact is missing."""

    ABSENT = "absent"  # this kernel or driver does not offer it
    UNREADABLE = "unreadable"  # it exists, but reading failed or passed its deadline
    VANISHED = "vanished"  # the device disappeared while it was being read
    UNPARSABLE = "unparsable"  # it was read, but makes no sense


class MissingText(StrEnum):
    """The text of a missing fact, which snapshots store; facts fill its braces."""

    NOT_ROOT = "only root can query the controller"
    DEVICE_STATE = "device state is {}"
    HIDDEN_PROCESSES = "the processes of others are hidden from this user"
    OTHER_UNIT = "process {} is not part of {}"
    READER_DIED = "the reading process ended with status {}"
    DRIVER_REFUSED = "the driver refused: {}"
    UNCONFIRMED_PAGE = "the last request has no known result; `hbatune apply` reads it again"
    SILENT_ADAPTER = "other devices of this adapter did not answer"
    WAITING_WRITE = "a write of an earlier run (process {}) is still waiting in the kernel"


class Missing(Struct, frozen=True, tag="missing"):
    """A fact that could not be read, with the kernel's answer (``errno``, ``text``)."""

    reason: Reason
    errno: ErrorNumber | None = None
    text: LongText | None = None

    @property
    def is_denied(self) -> bool:
        """Whether only root can read the fact."""
        return self.errno in (errno.EACCES, errno.EPERM)


def get_fact(fact: str | Missing) -> str | None:
    """Return the fact, or None if it is missing."""
    return None if isinstance(fact, Missing) else fact


# The file of a block device with the size of its tag set.
TAG_COUNT_FILE = "mq/0/nr_tags"
# The file of a block device with its sequence number, and of an interrupt with its CPUs.
DISKSEQ_FILE, AFFINITY_FILE = "diskseq", "smp_affinity_list"
# The prefix of udev properties with a disk's values from before hbatune's rules wrote.
SAVED_PREFIX = "HBATUNE_WAS_"


class Attribute(Struct, frozen=True, tag="attribute"):
    """The text of one sysfs file, stripped, and whether its mode lets root write it.

    The text of a binary file (``vpd_pg*``) is its bytes as hexadecimal digits.
    """

    text: LongText
    writable: bool


class Protocol(StrEnum):
    """The protocol of an endpoint; ``volume`` is a RAID volume, with drives of any protocol."""

    NVME = "nvme"
    SAS = "sas"
    SATA = "sata"
    FC = "fc"
    ISCSI = "iscsi"
    SPI = "spi"
    VIRTIO = "virtio"
    VOLUME = "volume"
    VIRTUAL = "virtual"  # emulated by a hypervisor (not virtio) or by scsi_debug
    UNKNOWN = "unknown"


class Storage(StrEnum):
    """The location of an endpoint's data, which determines the limits behind its adapter."""

    LOCAL = "local"  # a drive, or a volume that the adapter itself creates
    ARRAY = "array"  # an array, which other hosts may share: behind FC, iSCSI or SAS
    FABRIC = "fabric"  # NVMe over fabrics: an array or another host
    VIRTUAL = "virtual"  # emulated by a hypervisor or a cloud, regardless of its reported identity


class Medium(StrEnum):
    """The storage medium of an endpoint."""

    NVME = "nvme"
    SSD = "ssd"
    HDD = "hdd"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """The role of an endpoint among the paths to its data."""

    DISK = "disk"  # a LUN or namespace with a single path, perhaps below an NVMe head
    PATH = "path"  # one of several paths: a dm-multipath member or a hidden NVMe path
    MAP = "map"  # the device that joins paths: a dm-multipath map or a visible NVMe head


class TargetKind(StrEnum):
    """The type of object that a setting is set on."""

    ENDPOINT = "endpoint"
    VECTOR = "vector"  # an interrupt of an adapter
    CONTROLLER = "controller"  # an NVMe controller
    HOST = "host"  # a SCSI host


class Role(StrEnum):
    """The role of an interrupt of an adapter."""

    ADMIN = "admin"  # commands to the adapter itself: never changed
    DATA = "data"
    # For a queue with polled completions. It never fires, and is never changed.
    POLLED = "polled"
    LINE = "line"  # a legacy line, which other devices may share: never changed
    UNKNOWN = "unknown"  # not requested by a driver, or not recognizable by its name


# Generations of PCI Express by GT/s per lane (drivers/pci/probe.c: pci_speed_string).
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}


class Link(Struct, frozen=True):
    """A PCI Express link: its current and maximum speed in GT/s and width in lanes."""

    speed: float | Missing
    width: int | Missing
    max_speed: float | Missing
    max_width: int | Missing

    @property
    def generation(self) -> int | None:
        """The generation of PCI Express of its current speed, or None if unknown."""
        return None if isinstance(self.speed, Missing) else GENERATIONS.get(self.speed)


class Pci(Struct, frozen=True):
    """A PCI function: address, class code and ids as numbers."""

    address: ShortText
    class_code: int | Missing
    vendor: int | Missing
    device: int | Missing
    subsystem_vendor: int | Missing
    subsystem_device: int | Missing


class Host(Struct, frozen=True):
    """A SCSI host: its command limits, in total and for each LUN, and its hardware queues."""

    name: ShortText
    proc_name: ShortText | Missing
    can_queue: int | Missing
    cmd_per_lun: int | Missing
    hw_queues: int | Missing


class Adapter(Struct, frozen=True):
    """A storage adapter: a PCI function (HBA, RAID, FC, NVMe controller) or a virtual host.

    ``target`` is the PCI address, or the name of the SCSI host, NVMe controller or virtio device if
    it has no PCI function. ``document`` is the product's name in the source documents with the
    document's id, as in ``05-50111-01 (D0)``. ``controller`` is the NVMe controller's kernel name
    and ``transport`` the kernel's name of its transport (pcie, tcp, rdma, fc, loop). ``hw_queues``
    counts the queues for I/O, without NVMe's admin queue.
    """

    target: ShortText
    family: ShortText
    product: ShortText | None
    document: ShortText | None
    driver: ShortText | Missing
    pci: Pci | None
    numa_node: int | None
    link: Link | None
    driver_version: ShortText | Missing
    firmware: ShortText | Missing
    hosts: tuple[Host, ...]
    controller: ShortText | None
    hw_queues: int | Missing
    transport: ShortText | None = None

    def find_host(self, name: str | None) -> Host | None:
        """Return the SCSI host with this kernel name."""
        return next((host for host in self.hosts if host.name == name), None)


class PathGroup(Struct, frozen=True):
    """A group of a dm-multipath map: its path selector, and the targets of its paths.

    The map sends I/O only to the ``active`` group. The others replace it if its paths fail.
    """

    selector: ShortText
    active: bool
    paths: tuple[ShortText, ...]


class Endpoint(Struct, frozen=True):
    """A target of tuning with a queue: a SCSI LUN, an NVMe namespace path, a multipath map.

    ``id`` is the stable name (WWN, EUI, serial) and the route to it. ``sysfs`` is the block
    device's directory; ``attributes`` are keyed by their path below it. ``adapter`` is None for a
    map, which may span several. ``vendor``, ``model`` and ``revision`` are escaped, and empty if
    the device reports none (NVMe and virtio have no vendor). ``size`` is in bytes. ``depth_cap`` is
    the largest queue_depth that the device accepts. ``depth_trap`` is the reason why queue_depth
    must not be written at all. ``mounts`` are the mount points of the device and of all devices
    stacked on it, ``[SWAP]`` among them. ``holders`` are the block devices on it. ``volumes`` are
    the names that people use for the devices stacked on it (``vg0/pg``), and of its ZFS pool.
    ``alias`` is the name of a map (``mpatha``). ``port`` is the name of the array's port in front
    of it (Fibre Channel only). ``access`` is the kernel's name for the access state of this path
    (ALUA, or ANA of NVMe), ``preferred`` whether the array prefers the path (ALUA). ``diskseq`` is
    the kernel's number of this disk: each disk that appears in a boot gets the next one, even if
    its name was in use before (block/genhd.c: inc_diskseq). ``evidence`` describes a disk whose
    protocol is unknown. ``ncq_depth`` is the number of commands that an ATA drive can queue: 1 if
    it cannot queue. ``unread`` is an attribute that is required to identify the disk and that the
    system failed to read. ``plugs_zones`` is whether the kernel orders a zoned disk's writes with
    any scheduler, or None if the disk is not zoned. ``raid_level`` is the level of a volume, in its
    driver's form (``6``, ``1(+0)``), or None if unknown. ``path_groups`` are the groups of a map.
    ``removable`` is whether the medium can be removed. ``used_for`` are the uses of the disk that
    rules name (``policy.match``).
    """

    target: ShortText
    id: ShortText
    adapter: ShortText | None
    family: ShortText
    kind: Kind
    protocol: Protocol
    medium: Medium
    vendor: ShortText
    model: ShortText
    revision: ShortText
    sysfs: ShortText
    device_node: ShortText | None
    address: ShortText | None
    controller: ShortText | None
    host: Host | None
    size: int | Missing
    rotational: bool | Missing
    zoned: bool | Missing
    state: ShortText | Missing
    tags: int | Missing
    hw_queues: int | Missing
    depth_cap: int | Missing
    depth_trap: ShortText | None
    tri_mode: bool
    paths: tuple[ShortText, ...]
    map: ShortText | None
    mounts: tuple[ShortText, ...]
    holders: tuple[ShortText, ...]
    attributes: dict[ShortText, Attribute | Missing]
    port: ShortText | None = None
    access: ShortText | Missing = Missing(Reason.ABSENT)
    preferred: bool | Missing = Missing(Reason.ABSENT)
    diskseq: int | Missing = Missing(Reason.ABSENT)
    storage: Storage = Storage.LOCAL
    evidence: tuple[LongText, ...] = ()
    ncq_depth: int | None = None
    unread: ShortText | None = None
    plugs_zones: bool | None = None
    raid_level: ShortText | None = None
    path_groups: tuple[PathGroup, ...] | Missing = Missing(Reason.ABSENT)
    alias: ShortText | None = None
    volumes: tuple[ShortText, ...] = ()
    removable: bool = False
    used_for: tuple[ShortText, ...] = ()

    @property
    def active_group(self) -> PathGroup | None:
        """The group of paths that carries a map's I/O, or None if unknown."""
        groups = () if isinstance(self.path_groups, Missing) else self.path_groups
        return next((group for group in groups if group.active), None)

    @property
    def scsi_target(self) -> str:
        """The address of a LUN's SCSI target (``0:0:1``), or an empty text."""
        return (self.address or "").rpartition(":")[0]


class StackedDevice(Struct, frozen=True):
    """A device on disks, such as a map, an md array or a volume, or a pool of ZFS or btrfs."""

    target: ShortText
    label: ShortText  # the name that people use
    disks: tuple[ShortText, ...]  # the endpoints below it, of a map its paths
    holders: tuple[ShortText, ...] = ()  # the devices directly on it
    attributes: dict[ShortText, Attribute | Missing] = {}
    is_pool: bool = False  # whether it is a ZFS pool


class Module(Struct, frozen=True):
    """A driver's module and the current values of its options that hbatune supports."""

    name: ShortText
    parameters: dict[ShortText, Attribute | Missing]


class Vector(Struct, frozen=True):
    """An interrupt of an adapter; its directory is ``/proc/irq/N``.

    ``names`` are the names of its handlers. ``managed`` vectors are placed by the kernel and cannot
    be moved. ``inferred`` means that only a write could confirm it. ``affinity`` is the list of
    CPUs that may serve it, ``effective`` the CPU that serves it, and ``serves`` the CPUs whose
    requests complete on it. ``unmanaged_by`` is the driver's option to leave its vectors unmanaged.
    ``hint`` are the CPUs that the driver suggests. ``placed`` are the CPUs that hbatune set in this
    boot, if the journal was read.
    """

    irq: int
    id: ShortText
    adapter: ShortText
    names: tuple[ShortText, ...]
    role: Role
    managed: bool
    inferred: bool
    affinity: Attribute | Missing
    effective: LongText | None
    node: int | None
    serves: LongText | None
    unmanaged_by: ShortText | None
    hint: tuple[int, ...] = ()
    placed: tuple[int, ...] = ()

    @property
    def target(self) -> str:
        """Its name in a plan."""
        return f"irq{self.irq}"

    @property
    def directory(self) -> str:
        """The directory of its attributes."""
        return f"/proc/irq/{self.irq}"


class Control(Struct, frozen=True):
    """An adapter's NVMe controller or SCSI host, with its ``attributes`` below ``sysfs``."""

    target: ShortText
    id: ShortText
    adapter: ShortText
    kind: TargetKind
    sysfs: ShortText
    attributes: dict[ShortText, Attribute | Missing]


class CpuRestriction(StrEnum):
    """A setting that excludes CPUs from interrupts, with the name that reasons show."""

    ISOLATED = "isolcpus="
    NOHZ_FULL = "nohz_full="
    IRQAFFINITY = "irqaffinity="
    MANAGED_IRQ = "isolcpus=managed_irq"
    PARTITION = "cpuset.cpus.partition"
    TUNED = "TuneD's isolated_cores"
    DEFAULT = "/proc/irq/default_smp_affinity"
    BANNED = "irqbalance's ban"


class Processors(Struct, frozen=True):
    """The online CPUs, the CPUs isolated from interrupts and ticks, and the cores they share.

    ``irqaffinity`` are the CPUs that the kernel's command line names for interrupts. ``balanced``
    are the CPUs to which irqbalance's settings allow interrupts to move. Both are None if not set,
    and empty if the text makes no sense. ``probing`` are isolated CPUs that the local configuration
    reserves for probes. ``restrictions`` are the online CPUs that further settings leave for
    interrupts, empty if unknown. ``balancing`` is whether irqbalance is proven to run.
    """

    online: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    nohz_full: tuple[int, ...] = ()
    cores: tuple[tuple[int, ...], ...] = ()
    irqaffinity: tuple[int, ...] | None = None
    balanced: tuple[int, ...] | None = None
    probing: tuple[int, ...] = ()
    restrictions: dict[CpuRestriction, tuple[int, ...]] = {}
    balancing: bool = False


class Machine(Struct, frozen=True):
    """A host's adapters and endpoints at one moment, with its kernel and boot.

    ``memory`` is MemTotal in bytes. ``modules`` are the modules of the adapters' drivers; a module
    has the name of its family. ``local_cpus`` are, by adapter, the CPUs near its PCI function.
    ``stacks`` are the devices on the endpoints.
    """

    hostname: ShortText
    kernel: ShortText
    boot_id: ShortText
    cpus: int
    memory: int
    adapters: tuple[Adapter, ...]
    endpoints: tuple[Endpoint, ...]
    modules: tuple[Module, ...] = ()
    vectors: tuple[Vector, ...] = ()
    controls: tuple[Control, ...] = ()
    processors: Processors = Processors()
    local_cpus: dict[ShortText, tuple[int, ...]] = {}
    stacks: tuple[StackedDevice, ...] = ()

    @property
    def adapters_by_target(self) -> dict[str, Adapter]:
        """The adapters, by target."""
        return {adapter.target: adapter for adapter in self.adapters}

    @property
    def endpoints_by_target(self) -> dict[str, Endpoint]:
        """The endpoints, by target."""
        return {endpoint.target: endpoint for endpoint in self.endpoints}

    @property
    def parameters_by_module(self) -> dict[str, dict[str, Attribute | Missing]]:
        """The parameters that the drivers' modules are loaded with, by module and name."""
        return {module.name: module.parameters for module in self.modules}


def fold_heads(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints with each head and path that are one local drive as one disk."""
    by_name = {endpoint.target: endpoint for endpoint in endpoints}
    for name, disk in tuple(by_name.items()):
        if disk.kind is Kind.DISK and (head := by_name.pop(disk.map or "", None)):
            place = {"adapter": disk.adapter, "controller": disk.controller, "state": disk.state}
            by_name[name] = replace(head, id=disk.id, kind=Kind.DISK, paths=(), **place)
    return tuple(by_name.values())
