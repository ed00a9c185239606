"""What hbatune knows of one adapter family: the driver, where its facts are read, its levers."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.evidence import Evidence
from hbatune.facts.levers import NOT_KNOWN, Coalescing, Interrupts, Option, Trap
from hbatune.facts.model import Attribute, Host, Missing, Pci, Protocol
from hbatune.facts.product import Product


class Depth(StrEnum):
    """What the driver makes of ``device/queue_depth`` (drivers/scsi/scsi_sysfs.c)."""

    SET = "set"  # its host template has change_queue_depth
    FIXED = "fixed"  # it has not: the file's mode is 0444
    ABSENT = "absent"  # its endpoints are no SCSI devices


def no_word(evidence: Evidence) -> Protocol | None:
    """Leave the protocol to the transport's evidence."""
    return None


def as_the_host(pci: Pci | None, host: Host, evidence: Evidence) -> int | Missing:
    """Take can_queue for the largest queue_depth (drivers/scsi/scsi_sysfs.c)."""
    return host.can_queue


def no_trap(host: Host, evidence: Evidence) -> str | None:
    """Know of nothing that speaks against writing queue_depth."""
    return None


Parameters = Mapping[str, Attribute | Missing]
"""The options of a driver's module as they are in use."""


def tags_for_each_queue(parameters: Parameters, queues: int) -> bool:
    """Give every hardware queue tags of its own, as drivers do without ``host_tagset``."""
    return False


def tags_shared(parameters: Parameters, queues: int) -> bool:
    """Share one tag set among all hardware queues (``host_tagset`` in scsi_host_template)."""
    return True


def tags_shared_by_several(parameters: Parameters, queues: int) -> bool:
    """Share one tag set where there are several queues: with one, ``host_tagset`` is not set."""
    return queues > 1


class Family(Struct, frozen=True):
    """An adapter family. A new one is a new module in ``families`` with a ``FAMILY``.

    ``drivers`` are the names of the kernel drivers, or what ``scsi_host/hostN/proc_name`` says.
    ``model``, ``firmware`` and ``version`` are attributes of the SCSI host or NVMe controller, in
    the order in which they are tried; a driver without an attribute for its version has the
    module's. ``products`` name the product where no attribute does, and what documents call it.
    ``protocol`` says what an endpoint speaks where its transport and vendor do not tell.
    ``depth_cap`` is the largest queue_depth of an endpoint on the host; can_queue and the
    midlayer's own limit hold beside it. ``depth_trap`` says why queue_depth is not to be written
    at all, where a write does harm. ``depth_ramps`` is whether a full queue lowers the depth, and
    the kernel raises it again: the driver's host template has ``track_queue_depth``
    (drivers/scsi/scsi_error.c: scsi_handle_queue_full, scsi_handle_queue_ramp_up).
    ``shares_tags`` is whether all hardware queues of a host share one tag set, so that requests are
    allocated once a LUN and not for each queue (drivers/scsi/scsi_lib.c: scsi_mq_setup_tags).
    ``credits`` are host attributes with the number of commands that the firmware offers. An empty
    ``coalescing`` means that there is no lever.
    """

    name: str
    drivers: frozenset[str]
    products: tuple[Product, ...] = ()
    model: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    protocol: Callable[[Evidence], Protocol | None] = no_word
    depth: Depth = Depth.SET
    depth_cap: Callable[[Pci | None, Host, Evidence], int | Missing] = as_the_host
    depth_trap: Callable[[Host, Evidence], str | None] = no_trap
    depth_ramps: bool = False
    shares_tags: Callable[[Parameters, int], bool] = tags_for_each_queue
    credits: tuple[str, ...] = ()
    interrupts: Interrupts = NOT_KNOWN
    coalescing: tuple[Coalescing, ...] = ()
    options: tuple[Option, ...] = ()
    traps: tuple[Trap, ...] = ()
