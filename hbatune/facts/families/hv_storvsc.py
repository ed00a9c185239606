"""Hyper-V and Azure, synthetic SCSI. Only the hypervisor knows the storage behind a disk.

Its hosts are on the VMBus, and have no PCI function and no movable interrupt. A LUN with a vendor
other than Hyper-V's is passed through, for example from an array, and is not changed.
"""

from hbatune.facts import family

FAMILY = family.Family(
    name="hv_storvsc",
    drivers=frozenset({"hv_storvsc", "storvsc_host"}),
    depth_default=family.read_host_depth,  # storvsc_drv.c: scsi_driver.cmd_per_lun
    depth_ramps=True,
    # drivers/scsi/storvsc_drv.c
    interrupts=family.Interrupts(family.Vectors.NONE),
    options=(
        family.Option("storvsc_ringbuffer_size", family.Purpose.HOST_DEPTH),
        family.Option("storvsc_vcpus_per_sub_channel", family.Purpose.VECTORS, neutral=1),
        family.Option("storvsc_max_hw_queues", family.Purpose.VECTORS, neutral=-1),
    ),
)
