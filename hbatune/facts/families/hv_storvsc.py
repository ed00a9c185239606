"""Hyper-V and Azure, synthetic SCSI. Only the hypervisor knows the storage behind a disk.

Its hosts are on the VMBus, and have no PCI function and no movable interrupt. A LUN with a vendor
other than Hyper-V's is passed through, for example from an array, and is not changed.
"""

from hbatune.facts.family import Family, Interrupts, Option, Purpose, Vectors

FAMILY = Family(
    name="hv_storvsc",
    drivers=frozenset({"hv_storvsc", "storvsc_host"}),
    depth_ramps=True,
    interrupts=Interrupts(Vectors.NONE, "drivers/scsi/storvsc_drv.c"),
    options=(
        Option("storvsc_ringbuffer_size", Purpose.HOST_DEPTH),
        Option("storvsc_vcpus_per_sub_channel", Purpose.VECTORS),
        Option("storvsc_max_hw_queues", Purpose.VECTORS),
    ),
)
