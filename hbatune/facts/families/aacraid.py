"""Adaptec RAID (Series 6 to 8 and older). The model is a host attribute."""

from hbatune.facts import classify, family, model

_CONTAINERS = 0  # aacraid.h: CONTAINER_CHANNEL


def _find_depth_trap(host: model.Host, evidence: classify.Evidence) -> str | None:
    """Return the reason for drives outside containers: a write sets 1 or the firmware's depth."""
    if evidence.channel == _CONTAINERS:
        return None
    return "any write to a drive that is not a container lowers its depth to one command"


FAMILY = family.Family(
    name="aacraid",
    model=("model",),
    firmware=("hba_kernel_version",),
    version=("driver_version",),
    protocol=family.classify_by_channel({_CONTAINERS: model.Protocol.VOLUME}),
    depth_cap=lambda pci, host, evidence: 256,  # linit.c: aac_change_queue_depth
    volumes_alike=True,  # they share can_queue (linit.c: aac_slave_configure)
    depth_trap=_find_depth_trap,
    # drivers/scsi/aacraid/comminit.c: aac_define_int_mode
    interrupts=family.Interrupts(family.Vectors.FREE, (family.Handler(r"aac.*"),)),
    options=(
        family.Option("numacb", family.Purpose.HOST_DEPTH),
        family.Option("msi", family.Purpose.VECTORS, neutral=2),
    ),
)
