"""Broadcom MegaRAID and Dell PERC. The firmware's version is in no sysfs attribute."""

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.model import Protocol

_PHYSICAL_CHANNELS = 2  # megaraid_sas.h: MEGASAS_MAX_PD_CHANNELS; logical drives come after them


def _protocol(evidence: Evidence) -> Protocol | None:
    """Tell volumes from drives by channel; both are flat below the host."""
    if evidence.channel is None:
        return None
    return Protocol.SAS if evidence.channel < _PHYSICAL_CHANNELS else Protocol.VOLUME


FAMILY = Family(
    name="megaraid_sas",
    drivers=frozenset({"megaraid_sas"}),
    protocol=_protocol,
)
