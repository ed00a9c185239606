"""VMware's paravirtual SCSI. Only the hypervisor knows the drive behind it.

The id is from vmw_pvscsi.h.
"""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="vmw_pvscsi",
    products=(family.Product("VMware PVSCSI", 0x15AD, 0x07C0),),
    protocol=family.assume_protocol(model.Protocol.VIRTUAL),
    depth_default=family.read_host_depth,
    # drivers/scsi/vmw_pvscsi.c: pvscsi_probe
    interrupts=family.Interrupts(family.Vectors.FREE, (family.Handler(r"vmw_pvscsi"),)),
    options=(
        family.Option("ring_pages", family.Purpose.HOST_DEPTH, 1, 32),
        family.Option("cmd_per_lun", family.Purpose.LUN_DEPTH),
        family.Option("disable_msi", family.Purpose.VECTORS, 0, 1),
        family.Option("disable_msix", family.Purpose.VECTORS, 0, 1),
    ),
)
