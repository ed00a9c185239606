"""Xen's paravirtual disks: one disk per device, no SCSI host and no queue_depth.

The tag set is the ring that the two domains share. Only the other domain knows the disk behind it.
"""

from hbatune.facts.family import Depth, Family, Interrupts, Option, Purpose, Vectors

FAMILY = Family(
    name="xen_blkfront",
    drivers=frozenset({"vbd"}),  # drivers/block/xen-blkfront.c: blkfront_ids
    depth=Depth.ABSENT,
    interrupts=Interrupts(Vectors.NONE, "drivers/block/xen-blkfront.c"),
    options=(
        Option("max_ring_page_order", Purpose.HOST_DEPTH, 0),
        Option("max_queues", Purpose.VECTORS, 1),
    ),
)
