"""The kernel's own simulated SCSI host."""

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.model import Protocol


def _protocol(evidence: Evidence) -> Protocol | None:
    return Protocol.VIRTUAL


FAMILY = Family(
    name="scsi_debug",
    drivers=frozenset({"scsi_debug"}),
    protocol=_protocol,
)
