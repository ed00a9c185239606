"""The properties of an adapter family, as data that each module of ``families`` declares."""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from hbatune.facts.classify import Classifier, Evidence
from hbatune.facts.model import Attribute, Endpoint, Host, Missing, Pci, Protocol, Role


class Product(Struct, frozen=True):
    """A product, or without a ``subsystem`` a chip that many products carry, by its PCI ids."""

    name: str
    vendor: int
    device: int
    subsystem: tuple[int, int] | None = None
    document: str | None = None  # its name in the source documents, and the document's id
    cache: bool | None = None  # whether it has its own write cache


def identify_product(products: Iterable[Product], pci: Pci | None) -> Product | None:
    """Return the product with these ids; a matching subsystem overrides the bare chip."""
    if pci is None:
        return None
    chip = None
    for product in products:
        if (product.vendor, product.device) == (pci.vendor, pci.device):
            if product.subsystem == (pci.subsystem_vendor, pci.subsystem_device):
                return product
            if product.subsystem is None:
                chip = chip or product
    return chip


# The current values of a driver's module options.
Parameters = Mapping[str, Attribute | Missing]


class Vectors(StrEnum):
    """Whether an administrator can move an adapter's data vectors, with the driver's defaults.

    This is the expectation for a family; if kernels differ, for the newest supported one. On a
    machine, each vector's own file decides.
    """

    FREE = "free"  # they can be moved
    MANAGED = "managed"  # the kernel has spread them over the CPUs, and they cannot be moved
    MIXED = "mixed"  # data vectors are managed, others (admin, high priority) are free
    PINNED = "pinned"  # the driver has placed them, and refuses to move them
    INTX = "INTx"  # one line, which other devices may share
    NONE = "none"  # no separate interrupt: behind a network card, or simulated
    UNKNOWN = "unknown"


class Handler(Struct, frozen=True):
    """The role of vectors whose handlers' names, as in ``/proc/irq/N/``, match all of ``pattern``.

    With its defaults, the kernel or the driver places a ``managed`` vector, and forbids moving it.
    Only data vectors are managed.
    """

    pattern: str
    role: Role = Role.DATA
    managed: bool = False


class Interrupts(Struct, frozen=True):
    """The interrupt model of a family.

    The first match among ``handlers`` decides. A vector without a match is not changed.
    ``unmanaged_by`` is the module option that leaves the vectors unmanaged, with its cost.
    ``polled`` returns how many of the given number of data vectors belong to queues that the driver
    polls: they are the last ones, free to move, and never fire. ``driver_queues`` is the maximum of
    the driver's own queues, one per data vector, if the block layer sees a single queue.
    """

    vectors: Vectors
    handlers: tuple[Handler, ...] = ()
    unmanaged_by: str = ""
    polled: Callable[[Parameters, int], int] = lambda parameters, vectors: 0
    driver_queues: int | None = None

    def expected(self, names: Iterable[str]) -> tuple[Role, bool]:
        """Return the role of a vector with these handlers, and whether it should be managed.

        A vector that also serves data is a data vector. It is managed only if the vectors of all
        its handlers are: a single NVMe vector, which also serves the admin queue, is free.
        """
        matches: list[Handler] = []
        for name in names:
            for handler in self.handlers:
                if re.fullmatch(handler.pattern, name):
                    matches.append(handler)
                    break
        if any(handler.role is Role.DATA for handler in matches):
            return Role.DATA, all(handler.managed for handler in matches)
        return (Role.ADMIN if matches else Role.UNKNOWN), False


class Purpose(StrEnum):
    """The purpose of a module option."""

    HOST_DEPTH = "host depth"
    LUN_DEPTH = "LUN depth"
    VECTORS = "vectors"
    COALESCING = "coalescing"
    COMPLETION = "completion"


class Option(Struct, frozen=True):
    """An option of the driver's module, which takes effect when the module is loaded.

    ``own`` is a special value, often outside of the range from ``low`` to ``high``, for which the
    driver uses as much as the adapter offers. An option that is not ``shown`` has no file below
    /sys/module (fs/sysfs/group.c: create_files skips mode 0), so the value at load is unknown. An
    option with a ``key`` is a text with several parts, for which hbatune writes ``KEY:NUMBER``.
    Only some versions of the module have an ``optional`` one. With the ``neutral`` value, one for
    vectors keeps none back.
    """

    name: str
    purpose: Purpose
    low: int | None = None
    high: int | None = None
    own: int | None = None
    shown: bool = True
    key: str = ""
    optional: bool = False
    neutral: int = 0

    def is_neutral(self, text: str) -> bool:
        """Return whether the option has its neutral value. The kernel shows a bool as Y or N."""
        return {"N": "0", "Y": "1"}.get(text, text) in (str(self.neutral), str(self.own))


class Depth(StrEnum):
    """The driver's support of ``device/queue_depth`` (drivers/scsi/scsi_sysfs.c)."""

    SET = "set"  # its host template has change_queue_depth
    FIXED = "fixed"  # without change_queue_depth: the file's mode is 0444
    ABSENT = "absent"  # its endpoints are not SCSI devices


def assume_protocol(protocol: Protocol) -> Classifier:
    """Return a function that gives each endpoint this protocol."""
    return lambda evidence: protocol


def classify_by_channel(protocols: Mapping[int, Protocol]) -> Classifier:
    """Return a function that gives an endpoint the protocol of its SCSI channel, or None."""
    return lambda evidence: protocols.get(-1 if evidence.channel is None else evidence.channel)


def limit_ncq_depth(pci: Pci | None, host: Host, evidence: Evidence) -> int | Missing:
    """Return a SATA drive's own depth, above which libata clamps or refuses (libata-scsi.c)."""
    if not evidence.is_ata:
        return host.can_queue
    # 32 is ATA_MAX_QUEUE (linux/ata.h).
    return 32 if evidence.ncq_depth is None else evidence.ncq_depth


DepthDefault = Callable[[Endpoint, Parameters, Pci | None], int | None]
"""Returns the initial depth of an endpoint, from its driver's options and its adapter's ids."""


def get_number(parameters: Parameters, name: str) -> int:
    """Return the value of a module's option, or 0 if it is missing or not a number."""
    option = parameters.get(name)
    return int(option.text) if isinstance(option, Attribute) and option.text.isdecimal() else 0


def read_option_depth(name: str) -> DepthDefault:
    """Return a function that reads the initial depth of LUNs from an option of the module."""
    return lambda endpoint, parameters, pci: get_number(parameters, name) or None


def read_ncq_depth(endpoint: Endpoint, parameters: Parameters, pci: Pci | None) -> int | None:
    """Return the drive's own depth minus one: only some kernels reserve a tag for error handling.

    None for a drive that does not queue or does not report it, which may start at one command.
    """
    depth = endpoint.ncq_depth
    return depth - 1 if depth is not None and depth > 1 else None


def read_host_depth(endpoint: Endpoint, parameters: Parameters, pci: Pci | None) -> int | None:
    """Return cmd_per_lun of the host as the initial depth of LUNs."""
    depth = endpoint.host.cmd_per_lun if endpoint.host else None
    return depth if isinstance(depth, int) and depth > 1 else None


class Family(Struct, frozen=True):
    """An adapter family. A new one is a new module in ``families`` with a ``FAMILY``.

    ``drivers`` are the names of the kernel drivers, or the texts of ``scsi_host/hostN/proc_name``;
    without any, the driver has the family's name. ``model``, ``firmware`` and ``version`` are
    attributes of the SCSI host or NVMe controller, in search order. If a driver has no attribute
    for its version, the module's version is used. ``protocol`` returns an endpoint's protocol if
    its transport and vendor do not show it.

    ``depth_cap`` is the largest queue_depth of an endpoint on the host; can_queue and the
    midlayer's own limit apply too. ``depth_default`` returns an endpoint's initial depth.
    ``initial_depths`` are the constant ones, which udev can compare. ``depth_trap`` returns the
    reason why queue_depth must not be written at all. ``depth_ramps`` is whether a full queue
    lowers the depth, and the kernel raises it again: the driver's host template has
    ``track_queue_depth`` (drivers/scsi/scsi_error.c: scsi_handle_queue_full,
    scsi_handle_queue_ramp_up). ``volumes_alike`` is whether all volumes start with one depth.

    ``resets`` are the settings that the driver resets to its own values, after a controller reset
    and whenever the firmware reports a changed drive; the latter raises no event. ``shares_tags``
    is whether all hardware queues of a host share one tag set, so requests are allocated once for
    each LUN and not for each queue (drivers/scsi/scsi_lib.c: scsi_mq_setup_tags). ``credits`` are
    host attributes with the number of commands that the firmware offers. ``inspected`` are host
    attributes that checks read. ``coalescing`` are the attributes, options and features that
    control interrupt coalescing. ``fixed_coalescing`` is the coalescing that a driver sets once.
    """

    name: str
    drivers: frozenset[str] = frozenset()
    products: tuple[Product, ...] = ()
    model: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    protocol: Classifier = lambda evidence: None
    depth: Depth = Depth.SET
    depth_cap: Callable[[Pci | None, Host, Evidence], int | Missing] = (
        lambda pci, host, evidence: host.can_queue  # drivers/scsi/scsi_sysfs.c
    )
    # Unknown, or the firmware determines it.
    depth_default: DepthDefault = lambda endpoint, parameters, pci: None
    initial_depths: Mapping[Protocol, int] = {}
    # A write of queue_depth is not known to do harm.
    depth_trap: Callable[[Host, Evidence], str | None] = lambda host, evidence: None
    depth_ramps: bool = False
    volumes_alike: bool = False
    resets: tuple[str, ...] = ()
    # Without host_tagset in scsi_host_template, every hardware queue has its own tags.
    shares_tags: Callable[[Parameters, int], bool] = lambda parameters, queues: False
    credits: tuple[str, ...] = ()
    inspected: tuple[str, ...] = ()
    interrupts: Interrupts = Interrupts(Vectors.UNKNOWN)
    coalescing: tuple[str, ...] = ()
    fixed_coalescing: str = ""
    options: tuple[Option, ...] = ()

    def __post_init__(self) -> None:
        if not self.drivers:
            force_setattr(self, "drivers", frozenset({self.name}))
