"""Hyper-V and Azure, synthetic SCSI. What is behind a disk, only the hypervisor knows.

Its hosts hang on the VMBus, and have no PCI function and no interrupt that anybody could move.
"""

from hbatune.facts.classify import Evidence
from hbatune.facts.family import Family, Interrupts, Option, Purpose, Vectors
from hbatune.facts.model import Protocol


def _protocol(evidence: Evidence) -> Protocol | None:
    return Protocol.VIRTUAL


FAMILY = Family(
    name="hv_storvsc",
    drivers=frozenset({"hv_storvsc", "storvsc_host"}),
    protocol=_protocol,
    depth_ramps=True,
    interrupts=Interrupts(Vectors.NONE, "drivers/scsi/storvsc_drv.c"),
    options=(
        Option("storvsc_ringbuffer_size", Purpose.HOST_DEPTH),
        Option("storvsc_vcpus_per_sub_channel", Purpose.VECTORS),
        Option("storvsc_max_hw_queues", Purpose.VECTORS),
    ),
)
