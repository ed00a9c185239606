"""NVMe controllers, on PCI Express and over fabrics. The controller reports its model."""

from hbatune.facts.family import (
    Coalescing,
    Depth,
    Family,
    Handler,
    Interrupts,
    Mechanism,
    Option,
    Purpose,
    Trap,
    Vectors,
)
from hbatune.facts.model import Role

FAMILY = Family(
    name="nvme",
    drivers=frozenset({"nvme"}),
    model=("model",),
    firmware=("firmware_rev",),
    depth=Depth.ABSENT,
    interrupts=Interrupts(
        Vectors.MIXED,
        "drivers/nvme/host/pci.c: nvme_setup_irqs",
        (Handler(r"nvme\d+q0", Role.ADMIN), Handler(r"nvme\d+q\d+", managed=True)),
    ),
    coalescing=(
        # Set Features: aggregation threshold in bits 7:0, time in bits 15:8, in 100 µs. 0 in either
        # switches it off. The kernel never sets it, so a reset of the controller clears it.
        Coalescing(
            Mechanism.NVME_FEATURE,
            "feature 08h",
            "NVMe base specification: Interrupt Coalescing",
        ),
    ),
    options=(
        Option("io_queue_depth", Purpose.HOST_DEPTH, 2, 4095),
        Option("write_queues", Purpose.VECTORS),
        Option("poll_queues", Purpose.VECTORS),
        Option("use_threaded_interrupts", Purpose.VECTORS, 0, 1),
    ),
    traps=(
        Trap(
            "io_queue_depth takes effect when the driver is bound again; after a mere reset sqsize "
            "shows it, and the tag set does not have it.",
            "drivers/nvme/host/pci.c: nvme_pci_enable",
        ),
        Trap(
            "A coalescing that was set is gone after every controller reset.",
            "drivers/nvme/host/pci.c: nvme_reset_work",
        ),
    ),
)
