"""Areca RAID. Its volumes report Areca as vendor; pass-through drives report their own.

Devices that report nothing more stay unknown.
"""

from hbatune.facts.family import (
    Family,
    Handler,
    Interrupts,
    Option,
    Purpose,
    Trap,
    Vectors,
    clamp_depth_at,
    read_option_depth,
)

_MAX_DEPTH = 128  # arcmsr.h: ARCMSR_MAX_CMD_PERLUN


FAMILY = Family(
    name="arcmsr",
    drivers=frozenset({"arcmsr"}),
    model=("host_fw_model",),
    firmware=("host_fw_version",),
    version=("host_driver_version",),
    depth_cap=clamp_depth_at(_MAX_DEPTH),
    depth_default=read_option_depth("cmd_per_lun"),
    interrupts=Interrupts(
        Vectors.FREE, "drivers/scsi/arcmsr/arcmsr_hba.c: arcmsr_request_irq", (Handler(r"arcmsr"),)
    ),
    options=(
        Option("host_can_queue", Purpose.HOST_DEPTH, 32, 1024),
        Option("cmd_per_lun", Purpose.LUN_DEPTH, 1, 128),
        Option("msix_enable", Purpose.VECTORS, 0, 1),
        Option("msi_enable", Purpose.VECTORS, 0, 1),
    ),
    traps=(
        Trap(
            "A depth above 128 is clamped to it in silence.",
            "arcmsr_hba.c: arcmsr_adjust_disk_queue_depth",
        ),
    ),
)
