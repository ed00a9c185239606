"""NVMe controllers, on PCI Express and over fabrics. The controller reports its model."""

from hbatune.facts import family
from hbatune.facts.model import Role

FAMILY = family.Family(
    name="nvme",
    model=("model",),
    firmware=("firmware_rev",),
    depth=family.Depth.ABSENT,
    # drivers/nvme/host/pci.c: nvme_setup_irqs
    interrupts=family.Interrupts(
        family.Vectors.MIXED,
        (family.Handler(r"nvme\d+q0", Role.ADMIN), family.Handler(r"nvme\d+q\d+", managed=True)),
    ),
    coalescing=(
        # Set Features: aggregation threshold in bits 7:0, time in bits 15:8, in 100 µs. 0 in either
        # switches it off. The kernel never sets it, so a reset of the controller clears it.
        # NVMe base specification: Interrupt Coalescing
        "feature 08h",
    ),
    options=(
        family.Option("io_queue_depth", family.Purpose.HOST_DEPTH, 2, 4095),
        family.Option("write_queues", family.Purpose.VECTORS),
        family.Option("poll_queues", family.Purpose.VECTORS),
        family.Option("use_threaded_interrupts", family.Purpose.VECTORS, 0, 1),
    ),
)
