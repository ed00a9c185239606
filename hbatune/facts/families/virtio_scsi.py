"""virtio-scsi of QEMU and others. It has no firmware. Ids are from linux/virtio_ids.h."""

from hbatune.facts.classify import Evidence
from hbatune.facts.family import (
    Family,
    Handler,
    Interrupts,
    Option,
    Product,
    Purpose,
    Trap,
    Vectors,
    read_host_depth,
)
from hbatune.facts.model import Host, Missing, Pci, Role

_REDHAT = 0x1AF4


def _limit_depth(pci: Pci | None, host: Host, evidence: Evidence) -> int | Missing:
    """Return cmd_per_lun, to which the driver silently clamps (virtscsi_change_queue_depth)."""
    return host.cmd_per_lun


FAMILY = Family(
    name="virtio_scsi",
    drivers=frozenset({"virtio_scsi"}),
    products=(
        Product("virtio SCSI", _REDHAT, 0x1048),
        Product("virtio SCSI (transitional)", _REDHAT, 0x1004),
    ),
    depth_cap=_limit_depth,
    depth_default=read_host_depth,
    depth_ramps=True,
    interrupts=Interrupts(
        Vectors.MIXED,
        "drivers/scsi/virtio_scsi.c: virtscsi_init",
        (
            Handler(r"virtio\d+-(config|control|event)", Role.ADMIN),
            Handler(r"virtio\d+-request", managed=True),
            # With too few vectors for one each, the queues share one, which is not managed.
            Handler(r"virtio\d+-virtqueues"),
        ),
    ),
    options=(Option("virtscsi_poll_queues", Purpose.VECTORS),),
    traps=(
        Trap(
            "A depth above cmd_per_lun is clamped to it in silence.",
            "drivers/scsi/virtio_scsi.c: virtscsi_change_queue_depth",
        ),
    ),
)
