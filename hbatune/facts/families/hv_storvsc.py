"""Hyper-V and Azure, synthetic SCSI. What is behind a disk, only the hypervisor knows.

Its hosts hang on the VMBus, and have no PCI function and no interrupt that anybody could move. A
LUN whose vendor is another than Hyper-V's own is passed through, from an array for one: left alone.
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
