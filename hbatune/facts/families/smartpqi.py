"""Microchip SmartRAID, SmartHBA and HPE Gen10 controllers. The model is a host attribute.

The driver's 185 subsystem ids are not repeated here: the firmware names the card.
"""

from hbatune.facts import family

FAMILY = family.Family(
    name="smartpqi",
    model=("model",),
    firmware=("firmware_version",),
    version=("driver_version",),
    depth=family.Depth.FIXED,
    shares_tags=lambda parameters, queues: True,
    # drivers/scsi/smartpqi/smartpqi_init.c: pqi_enable_msix_interrupts
    interrupts=family.Interrupts(
        family.Vectors.MANAGED,
        (family.Handler(r"smartpqi\d*", managed=True),),
        "disable_managed_interrupts=1",
    ),
    options=(family.Option("disable_managed_interrupts", family.Purpose.VECTORS, 0, 1),),
)
