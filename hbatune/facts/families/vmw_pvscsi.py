"""VMware's paravirtual SCSI. Only the hypervisor knows the drive behind it.

The id is from vmw_pvscsi.h.
"""

from hbatune.facts.family import (
    Family,
    Handler,
    Interrupts,
    Option,
    Product,
    Purpose,
    Vectors,
    assume_protocol,
    read_host_depth,
)
from hbatune.facts.model import Protocol

FAMILY = Family(
    name="vmw_pvscsi",
    drivers=frozenset({"vmw_pvscsi"}),
    products=(Product("VMware PVSCSI", 0x15AD, 0x07C0),),
    protocol=assume_protocol(Protocol.VIRTUAL),
    depth_default=read_host_depth,
    interrupts=Interrupts(
        Vectors.FREE, "drivers/scsi/vmw_pvscsi.c: pvscsi_probe", (Handler(r"vmw_pvscsi"),)
    ),
    options=(
        Option("ring_pages", Purpose.HOST_DEPTH, 1, 32),
        Option("cmd_per_lun", Purpose.LUN_DEPTH),
        Option("disable_msi", Purpose.VECTORS, 0, 1),
        Option("disable_msix", Purpose.VECTORS, 0, 1),
    ),
)
