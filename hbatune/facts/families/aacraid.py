"""Adaptec RAID (Series 6 to 8 and older). The model is a host attribute."""

from hbatune.facts.classify import Evidence
from hbatune.facts.family import Family, Handler, Interrupts, Option, Purpose, Trap, Vectors
from hbatune.facts.model import Host, Missing, Pci, Protocol

_CONTAINERS = 0  # aacraid.h: CONTAINER_CHANNEL
_MAX_DEPTH = 256  # linit.c: aac_change_queue_depth


def _classify(evidence: Evidence) -> Protocol | None:
    return Protocol.VOLUME if evidence.channel == _CONTAINERS else None


def _limit_depth(pci: Pci | None, host: Host, evidence: Evidence) -> int | Missing:
    return (
        host.can_queue if isinstance(host.can_queue, Missing) else min(host.can_queue, _MAX_DEPTH)
    )


def _find_depth_trap(host: Host, evidence: Evidence) -> str | None:
    """Return the reason for drives outside containers: a write sets 1 or the firmware's depth."""
    if evidence.channel == _CONTAINERS:
        return None
    return "any write drops a drive that is no container to one command"


FAMILY = Family(
    name="aacraid",
    drivers=frozenset({"aacraid"}),
    model=("model",),
    firmware=("hba_kernel_version",),
    version=("driver_version",),
    protocol=_classify,
    depth_cap=_limit_depth,
    depth_trap=_find_depth_trap,
    interrupts=Interrupts(
        Vectors.FREE, "drivers/scsi/aacraid/comminit.c: aac_define_int_mode", (Handler(r"aac.*"),)
    ),
    options=(Option("numacb", Purpose.HOST_DEPTH), Option("msi", Purpose.VECTORS)),
    traps=(
        Trap(
            "Writing the depth of a drive that is no container sets it to 1 and reports success.",
            "linit.c: aac_change_queue_depth",
        ),
        Trap("numacb only lowers can_queue; more is ignored.", "comminit.c: aac_init_adapter"),
    ),
)
