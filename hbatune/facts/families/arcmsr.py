"""Areca RAID. Its volumes report Areca as vendor; pass-through drives report their own.

Devices that report nothing more stay unknown.
"""

from hbatune.facts import family

FAMILY = family.Family(
    name="arcmsr",
    model=("host_fw_model",),
    firmware=("host_fw_version",),
    version=("host_driver_version",),
    depth_cap=lambda pci, host, evidence: 128,  # arcmsr.h: ARCMSR_MAX_CMD_PERLUN
    depth_default=family.read_option_depth("cmd_per_lun"),
    # drivers/scsi/arcmsr/arcmsr_hba.c: arcmsr_request_irq
    interrupts=family.Interrupts(family.Vectors.FREE, (family.Handler(r"arcmsr"),)),
    options=(
        family.Option("host_can_queue", family.Purpose.HOST_DEPTH, 32, 1024),
        family.Option("cmd_per_lun", family.Purpose.LUN_DEPTH, 1, 128),
        family.Option("msix_enable", family.Purpose.VECTORS, 0, 1, neutral=1),
        family.Option("msi_enable", family.Purpose.VECTORS, 0, 1, neutral=1),
    ),
)
