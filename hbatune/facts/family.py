"""What hbatune knows of one adapter family: the driver, and where its facts are read."""

from collections.abc import Callable
from dataclasses import dataclass

from hbatune.facts.evidence import Evidence
from hbatune.facts.model import Host, Missing, Protocol


def no_word(evidence: Evidence) -> Protocol | None:
    """Leave the protocol to the transport's evidence."""
    return None


def as_the_host(host: Host, evidence: Evidence) -> int | Missing:
    """Take can_queue for the largest queue_depth (drivers/scsi/scsi_sysfs.c)."""
    return host.can_queue


@dataclass(frozen=True)
class Family:
    """An adapter family. A new one is a new module in ``families`` with a ``FAMILY``.

    ``drivers`` are the names of the kernel drivers, or what ``scsi_host/hostN/proc_name`` says.
    ``firmware`` and ``version`` are attributes of the SCSI host or NVMe controller, in the order
    in which they are tried; a driver without an attribute for its version has the module's.
    ``protocol`` says what an endpoint speaks where its transport and vendor do not tell.
    ``depth_cap`` is the largest queue_depth of an endpoint on the host; can_queue and the
    midlayer's own limit hold beside it.
    """

    name: str
    drivers: frozenset[str]
    firmware: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    protocol: Callable[[Evidence], Protocol | None] = no_word
    depth_cap: Callable[[Host, Evidence], int | Missing] = as_the_host
