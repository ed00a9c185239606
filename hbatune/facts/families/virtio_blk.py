"""virtio-blk: one disk per device, no SCSI host and no queue_depth."""

from hbatune.facts.family import Depth, Family
from hbatune.facts.levers import Interrupts, Option, Purpose, Vectors
from hbatune.facts.product import Product

_REDHAT = 0x1AF4

FAMILY = Family(
    name="virtio_blk",
    drivers=frozenset({"virtio_blk"}),
    products=(
        Product("virtio block device", _REDHAT, 0x1042),
        Product("virtio block device (transitional)", _REDHAT, 0x1001),
    ),
    depth=Depth.ABSENT,
    interrupts=Interrupts(
        Vectors.MIXED, "drivers/block/virtio_blk.c: init_vq", r"virtio\d+-config"
    ),
    options=(Option("queue_depth", Purpose.HOST_DEPTH),),
)
