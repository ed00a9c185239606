"""Virtual SCSI of IBM Power: disks that a VIOS serves. Its hosts have no PCI function.

A LUN starts at a depth of 16 (ibmvscsi.h: IBMVSCSI_CMDS_PER_LUN_DEFAULT).
"""

from hbatune.facts.family import (
    Family,
    Interrupts,
    Trap,
    Vectors,
    assume_protocol,
    clamp_depth_at,
    read_host_depth,
)
from hbatune.facts.model import Protocol

_MAX_DEPTH = 64  # ibmvscsi.h: IBMVSCSI_MAX_CMDS_PER_LUN


FAMILY = Family(
    name="ibmvscsi",
    drivers=frozenset({"ibmvscsi"}),
    protocol=assume_protocol(Protocol.VIRTUAL),
    depth_cap=clamp_depth_at(_MAX_DEPTH),
    depth_default=read_host_depth,
    interrupts=Interrupts(Vectors.NONE, "drivers/scsi/ibmvscsi/ibmvscsi.c"),
    traps=(
        Trap(
            "A depth above 64 is clamped to it in silence.",
            "ibmvscsi.c: ibmvscsi_change_queue_depth",
        ),
    ),
)
