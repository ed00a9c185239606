"""Symbios and LSI 53C8xx, parallel SCSI (SYM8751SP). Its queue_depth is read-only."""

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.model import Protocol


def _protocol(evidence: Evidence) -> Protocol | None:
    return Protocol.SPI


FAMILY = Family(
    name="sym53c8xx",
    drivers=frozenset({"sym53c8xx"}),
    protocol=_protocol,
)
