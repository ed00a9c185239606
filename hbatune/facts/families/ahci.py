"""SATA on the mainboard. No firmware of its own; one SCSI host for every port."""

from hbatune.facts.family import Family
from hbatune.facts.model import Host, Missing

_NCQ = 32  # ATA8-ACS: depth of native command queueing; linux/ata.h: ATA_MAX_QUEUE


def _depth_cap(host: Host) -> int | Missing:
    return min(host.can_queue, _NCQ) if isinstance(host.can_queue, int) else host.can_queue


FAMILY = Family(
    name="ahci",
    drivers=frozenset({"ahci", "ahci_platform"}),
    depth_cap=_depth_cap,
)
