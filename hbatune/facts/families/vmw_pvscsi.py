"""VMware's paravirtual SCSI. What the drive behind it is, only the hypervisor knows."""

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.model import Protocol


def _protocol(evidence: Evidence) -> Protocol | None:
    return Protocol.VIRTUAL


FAMILY = Family(
    name="vmw_pvscsi",
    drivers=frozenset({"vmw_pvscsi"}),
    protocol=_protocol,
)
