"""virtio-blk: one disk per device, no SCSI host and no queue_depth."""

from hbatune.facts.family import (
    Depth,
    Family,
    Handler,
    Interrupts,
    Option,
    Product,
    Purpose,
    Vectors,
)
from hbatune.facts.model import Role

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
        Vectors.MIXED,
        "drivers/block/virtio_blk.c: init_vq",
        (
            Handler(r"virtio\d+-config", Role.ADMIN),
            Handler(r"virtio\d+-req\.\d+", managed=True),
            Handler(r"virtio\d+-virtqueues"),
        ),
    ),
    options=(Option("queue_depth", Purpose.HOST_DEPTH),),
)
