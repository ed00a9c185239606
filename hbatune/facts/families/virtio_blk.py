"""virtio-blk: one disk per device, no SCSI host and no queue_depth."""

from hbatune.facts import family, model

_REDHAT = 0x1AF4

FAMILY = family.Family(
    name="virtio_blk",
    products=(
        family.Product("virtio block device", _REDHAT, 0x1042),
        family.Product("virtio block device (transitional)", _REDHAT, 0x1001),
    ),
    depth=family.Depth.ABSENT,
    # drivers/block/virtio_blk.c: init_vq
    interrupts=family.Interrupts(
        family.Vectors.MIXED,
        (
            family.Handler(r"virtio\d+-config", model.Role.ADMIN),
            family.Handler(r"virtio\d+-req\.\d+", managed=True),
            family.Handler(r"virtio\d+-virtqueues"),
        ),
    ),
    options=(family.Option("queue_depth", family.Purpose.HOST_DEPTH),),
)
