"""The kernel's own simulated SCSI host."""

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.levers import Interrupts, Option, Purpose, Vectors
from hbatune.facts.model import Protocol


def _protocol(evidence: Evidence) -> Protocol | None:
    return Protocol.VIRTUAL


FAMILY = Family(
    name="scsi_debug",
    drivers=frozenset({"scsi_debug"}),
    protocol=_protocol,
    interrupts=Interrupts(Vectors.NONE, "drivers/scsi/scsi_debug.c"),
    options=(Option("max_queue", Purpose.HOST_DEPTH), Option("host_max_queue", Purpose.HOST_DEPTH)),
)
