"""Xen's paravirtual disks: one disk per device, no SCSI host and no queue_depth.

The tag set is the ring that the two domains share. Only the other domain knows the disk behind it.
"""

from hbatune.facts import family

FAMILY = family.Family(
    name="xen_blkfront",
    drivers=frozenset({"vbd"}),  # drivers/block/xen-blkfront.c: blkfront_ids
    depth=family.Depth.ABSENT,
    # drivers/block/xen-blkfront.c
    interrupts=family.Interrupts(family.Vectors.NONE),
    options=(
        family.Option("max_ring_page_order", family.Purpose.HOST_DEPTH, 0),
        family.Option("max_queues", family.Purpose.VECTORS, 1),
    ),
)
