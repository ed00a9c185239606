"""The facts of a machine as frozen values.

A fact that could not be read is never an empty string or a zero: it is a ``Missing`` with one of
four reasons.
"""

from enum import StrEnum

from msgspec import Struct


class Reason(StrEnum):
    """The reason why a fact is missing."""

    ABSENT = "absent"  # this kernel or driver does not offer it
    UNREADABLE = "unreadable"  # it is there, but reading failed or passed its deadline
    VANISHED = "vanished"  # the device disappeared while it was being read
    UNPARSABLE = "unparsable"  # it was read, and makes no sense


class Missing(Struct, frozen=True, tag="missing"):
    """A fact that could not be read, with the kernel's answer (``errno``, ``text``)."""

    reason: Reason
    errno: int | None = None
    text: str | None = None


def known(fact: str | Missing) -> str | None:
    """Return the fact, or None where it is missing."""
    return None if isinstance(fact, Missing) else fact


TAGS = "mq/0/nr_tags"
"""The file of a block device with the size of its tag set."""


SAVED_PREFIX = "HBATUNE_WAS_"
"""The prefix of udev properties that hold a disk's values from before hbatune's rules wrote."""


class Attribute(Struct, frozen=True, tag="attribute"):
    """The text of one sysfs file, stripped, and whether its mode lets root write it.

    The text of a binary file (``vpd_pg*``) is its bytes as hexadecimal digits.
    """

    text: str
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
    VIRTUAL = "virtual"  # made up by a hypervisor other than virtio, or by scsi_debug
    UNKNOWN = "unknown"


class Storage(StrEnum):
    """Where an endpoint's data is: whose queues and limits are behind its adapter."""

    LOCAL = "local"  # a drive, or a volume that the adapter itself makes up
    ARRAY = "array"  # an array, which other hosts may share: behind FC, iSCSI or SAS
    FABRIC = "fabric"  # NVMe over fabrics: an array or another host
    VIRTUAL = "virtual"  # made up by a hypervisor or a cloud, whatever it looks like


class Medium(StrEnum):
    """The storage medium of an endpoint."""

    NVME = "nvme"
    SSD = "ssd"
    HDD = "hdd"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """The place of an endpoint among the paths to its data."""

    DISK = "disk"  # a LUN or namespace with a single path
    PATH = "path"  # one of several paths: a dm-multipath member or a hidden NVMe path
    MAP = "map"  # the device that joins paths: a dm-multipath map or a visible NVMe head


class TargetKind(StrEnum):
    """The kind of thing that a setting is set on."""

    ENDPOINT = "endpoint"
    VECTOR = "vector"  # an interrupt of an adapter
    CONTROLLER = "controller"  # an NVMe controller
    HOST = "host"  # a SCSI host


class Role(StrEnum):
    """The role of an interrupt of an adapter."""

    ADMIN = "admin"  # commands to the adapter itself: left alone
    DATA = "data"
    POLLED = (
        "polled"  # of a queue whose completions are polled for: it never fires, and is left alone
    )
    LINE = "line"  # a legacy line, which other devices may share: left alone
    UNKNOWN = "unknown"  # not requested by a driver, or its name says nothing


GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
"""Generations of PCI Express by GT/s per lane (drivers/pci/probe.c: pci_speed_string)."""


class Link(Struct, frozen=True):
    """A PCI Express link: speed in GT/s and width in lanes, the current and the maximum ones."""

    speed: float | Missing
    width: int | Missing
    max_speed: float | Missing
    max_width: int | Missing

    @property
    def generation(self) -> int | None:
        """The generation of PCI Express of its current speed; None if that is not known."""
        return None if isinstance(self.speed, Missing) else GENERATIONS.get(self.speed)


class Pci(Struct, frozen=True):
    """A PCI function: address, class code and ids as numbers."""

    address: str
    class_code: int | Missing
    vendor: int | Missing
    device: int | Missing
    subsystem_vendor: int | Missing
    subsystem_device: int | Missing


class Host(Struct, frozen=True):
    """A SCSI host: the most commands in all and for each LUN, and its hardware queues."""

    name: str
    proc_name: str | Missing
    can_queue: int | Missing
    cmd_per_lun: int | Missing
    hw_queues: int | Missing


class Adapter(Struct, frozen=True):
    """A storage adapter: a PCI function (HBA, RAID, FC, NVMe controller) or a virtual host.

    ``target`` is the PCI address, or the name of the SCSI host, NVMe controller or virtio device
    if no PCI function of its own is behind it. ``product`` is its name and ``document`` the name
    in the documents and which of them, as in ``05-50111-01 (D0)``; None if unknown.
    ``controller`` is the NVMe controller's kernel name and ``transport`` the kernel's word for what
    it is reached by (pcie, tcp, rdma, fc, loop). ``hw_queues`` counts the queues for I/O, without
    NVMe's admin queue.
    """

    target: str
    family: str
    product: str | None
    document: str | None
    driver: str | Missing
    pci: Pci | None
    numa_node: int | None
    link: Link | None
    driver_version: str | Missing
    firmware: str | Missing
    hosts: tuple[Host, ...]
    controller: str | None
    hw_queues: int | Missing
    transport: str | None = None


class Endpoint(Struct, frozen=True):
    """A target of tuning with a queue: a SCSI LUN, an NVMe namespace path, a multipath map.

    ``id`` is the stable name (WWN, EUI, serial) and the route to it. ``sysfs`` is the block
    device's directory; ``attributes`` are keyed by their path below it. ``adapter`` is None for
    a map, which may span several. ``state`` is the SCSI device's or the NVMe controller's own word.
    ``vendor``, ``model`` and ``revision`` are empty if the device has none (NVMe and virtio
    have no vendor); their control characters are escaped. ``size`` is in bytes. ``depth_cap`` is
    the largest queue_depth that the device takes, and ``depth_trap`` the reason why it must not be
    written at all, None if it may. ``mounts`` are the mount points of it and of all devices
    stacked on it, ``[SWAP]`` among them. ``port`` is the name of the array's port in front of it
    (Fibre Channel only). ``access`` is the kernel's word for how the array serves this path
    (ALUA, or ANA of NVMe), ``preferred`` whether the array prefers it (ALUA). ``diskseq`` is the
    kernel's number of this very disk: each disk that appears in a boot gets the next one, even if
    its name was in use before (block/genhd.c: inc_diskseq). ``storage`` is where its data is.
    ``evidence`` is what there is to see of a disk whose protocol is not known, in words.
    ``ncq_depth`` is how many commands an ATA drive says that it can queue, 1 if it cannot, None if
    it does not say. ``unread`` is an attribute without which it cannot be identified, if the system
    failed to read that, None otherwise.
    """

    target: str
    id: str
    adapter: str | None
    family: str
    kind: Kind
    protocol: Protocol
    medium: Medium
    vendor: str
    model: str
    revision: str
    sysfs: str
    device_node: str | None
    address: str | None
    controller: str | None
    host: Host | None
    size: int | Missing
    rotational: bool | Missing
    zoned: bool | Missing
    state: str | Missing
    tags: int | Missing
    hw_queues: int | Missing
    depth_cap: int | Missing
    depth_trap: str | None
    tri_mode: bool
    paths: tuple[str, ...]
    map: str | None
    mounts: tuple[str, ...]
    holders: tuple[str, ...]
    attributes: dict[str, Attribute | Missing]
    port: str | None = None
    access: str | Missing = Missing(Reason.ABSENT)
    preferred: bool | Missing = Missing(Reason.ABSENT)
    diskseq: int | Missing = Missing(Reason.ABSENT)
    storage: Storage = Storage.LOCAL
    evidence: tuple[str, ...] = ()
    ncq_depth: int | None = None
    unread: str | None = None

    @property
    def mounted(self) -> bool:
        """Whether a filesystem or swap on it, or on anything stacked on it, is in use."""
        return bool(self.mounts)

    @property
    def held(self) -> bool:
        """Whether another block device (a map, LVM, md) stands on it."""
        return bool(self.holders)


class Module(Struct, frozen=True):
    """A driver's module and the values in use of those of its options that hbatune knows."""

    name: str
    parameters: dict[str, Attribute | Missing]


class Vector(Struct, frozen=True):
    """An interrupt of an adapter; its directory is ``/proc/irq/N``.

    ``names`` are those of its handlers. ``managed`` ones were placed by the kernel, and cannot
    be moved; ``inferred`` means that only a write could tell for sure. ``affinity`` is the
    list of CPUs that may serve it, ``effective`` the one that does, ``serves`` the CPUs whose
    requests complete on it, None if that is not known. ``unmanaged_by`` is the driver's option
    to leave its vectors free, None without one.
    """

    irq: int
    id: str
    adapter: str
    names: tuple[str, ...]
    role: Role
    managed: bool
    inferred: bool
    affinity: Attribute | Missing
    effective: str | None
    node: int | None
    serves: str | None
    unmanaged_by: str | None

    @property
    def target(self) -> str:
        """Its name in a plan."""
        return f"irq{self.irq}"

    @property
    def directory(self) -> str:
        """The directory of its attributes."""
        return f"/proc/irq/{self.irq}"


class Control(Struct, frozen=True):
    """A control of an adapter itself: its NVMe controller, or one of its SCSI hosts.

    ``sysfs`` is the directory that ``attributes`` are below.
    """

    target: str
    id: str
    adapter: str
    kind: TargetKind
    sysfs: str
    attributes: dict[str, Attribute | Missing]


class Processors(Struct, frozen=True):
    """The CPUs that are online, those kept free of interrupts and ticks, and which share a core.

    ``irqaffinity`` are those that the kernel's command line names for interrupts, and ``balanced``
    those to which irqbalance's settings let it move them: None if it is not set, and no CPU at all
    if its text makes no sense. ``probing`` are isolated ones that the site gives to probes.
    """

    online: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    nohz_full: tuple[int, ...] = ()
    cores: tuple[tuple[int, ...], ...] = ()
    irqaffinity: tuple[int, ...] | None = None
    balanced: tuple[int, ...] | None = None
    probing: tuple[int, ...] = ()


class Machine(Struct, frozen=True):
    """A host's adapters and endpoints at one moment, with the kernel and boot they belong to.

    ``memory`` is MemTotal in bytes. ``modules`` are those of the adapters' drivers; a module has
    the name of its family. ``local_cpus`` are, by adapter, the CPUs near its PCI function.
    """

    hostname: str
    kernel: str
    boot_id: str
    cpus: int
    memory: int
    adapters: tuple[Adapter, ...]
    endpoints: tuple[Endpoint, ...]
    modules: tuple[Module, ...] = ()
    vectors: tuple[Vector, ...] = ()
    controls: tuple[Control, ...] = ()
    processors: Processors = Processors()
    local_cpus: dict[str, tuple[int, ...]] = {}
