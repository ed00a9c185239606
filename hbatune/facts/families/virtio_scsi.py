"""virtio-scsi of QEMU and others. It has no firmware. Ids are from linux/virtio_ids.h."""

from hbatune.facts import family, model

_REDHAT = 0x1AF4

FAMILY = family.Family(
    name="virtio_scsi",
    products=(
        family.Product("virtio SCSI", _REDHAT, 0x1048),
        family.Product("virtio SCSI (transitional)", _REDHAT, 0x1004),
    ),
    # The driver silently clamps to it (virtscsi_change_queue_depth).
    depth_cap=lambda pci, host, evidence: host.cmd_per_lun,
    depth_default=family.read_host_depth,
    depth_ramps=True,
    # drivers/scsi/virtio_scsi.c: virtscsi_init
    interrupts=family.Interrupts(
        family.Vectors.MIXED,
        (
            family.Handler(r"virtio\d+-(config|control|event)", model.Role.ADMIN),
            family.Handler(r"virtio\d+-request", managed=True),
            # With too few vectors for one each, the queues share one, which is not managed.
            family.Handler(r"virtio\d+-virtqueues"),
        ),
    ),
    options=(family.Option("virtscsi_poll_queues", family.Purpose.VECTORS),),
)
