"""virtio-scsi of QEMU and others. No firmware."""

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.model import Host, Missing


def _depth_cap(host: Host, evidence: Evidence) -> int | Missing:
    """Return cmd_per_lun, to which the driver clamps in silence (virtscsi_change_queue_depth)."""
    return host.cmd_per_lun


FAMILY = Family(
    name="virtio_scsi",
    drivers=frozenset({"virtio_scsi"}),
    depth_cap=_depth_cap,
)
