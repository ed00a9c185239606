"""Adaptec RAID (Series 6 to 8 and older). The model is a host attribute."""

from hbatune.facts.classify import Evidence
from hbatune.facts.family import (
    Family,
    Handler,
    Interrupts,
    Option,
    Purpose,
    Trap,
    Vectors,
    clamp_depth_at,
    classify_by_channel,
)
from hbatune.facts.model import Host, Protocol

_CONTAINERS = 0  # aacraid.h: CONTAINER_CHANNEL
_MAX_DEPTH = 256  # linit.c: aac_change_queue_depth


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
    protocol=classify_by_channel({_CONTAINERS: Protocol.VOLUME}),
    depth_cap=clamp_depth_at(_MAX_DEPTH),
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
