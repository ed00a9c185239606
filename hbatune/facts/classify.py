"""What an endpoint speaks and what it stores on: pure, first match wins, unknown where unsure."""

from collections.abc import Callable

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.model import Medium, Protocol

_TRANSPORTS = {
    "usb": Protocol.UNKNOWN,  # its adapter is a bridge that nobody here knows
    "nvme": Protocol.NVME,
    "virtio": Protocol.VIRTIO,
    "ata": Protocol.SATA,
    "fc": Protocol.FC,
    "iscsi": Protocol.ISCSI,
}
_SOLID = 0x0001  # SBC-3 table 203: non-rotating medium
_SPINNING = range(0x0401, 0xFFFF)
# What RAID controllers of the Broadcom family call the volumes that they make up.
_BRANDS = {"LSI", "AVAGO", "BROADCOM"}
# What raid_level says of a drive: hpsa and smartpqi, and aacraid, whose drives are JBOD or hidden.
_NO_RAID = {"", "N/A", "JBOD", "Hidden"}


def protocol(evidence: Evidence, family: Family) -> Protocol:
    """Classify by way first, then by drive, then by what the family knows."""
    if evidence.transport in _TRANSPORTS:
        return _TRANSPORTS[evidence.transport]
    if family.protocol(evidence) is Protocol.VIRTUAL:
        return Protocol.VIRTUAL
    if not evidence.pci and evidence.transport != "sas":
        return Protocol.UNKNOWN
    for rule in _RULES:
        found = rule(evidence, family)
        if found is not None:
            return found
    return Protocol.UNKNOWN


def medium(evidence: Evidence, spoken: Protocol) -> Medium:
    """Believe the drive's own page before ``queue/rotational``, which anybody may have set."""
    if spoken is Protocol.NVME:
        return Medium.NVME
    if evidence.rotation == _SOLID:
        return Medium.SSD
    # A range looks at each of its numbers for what is no number.
    if evidence.rotation is not None and evidence.rotation in _SPINNING:
        return Medium.HDD
    if evidence.rotational is None:
        return Medium.UNKNOWN
    return Medium.HDD if evidence.rotational else Medium.SSD


def _drive(evidence: Evidence, family: Family) -> Protocol | None:
    if evidence.vendor == "NVMe":
        return Protocol.NVME
    if evidence.vendor == "ATA" or evidence.sat:
        return Protocol.SATA
    return None


def _volume(evidence: Evidence, family: Family) -> Protocol | None:
    if evidence.raid_level is not None and evidence.raid_level not in _NO_RAID:
        return Protocol.VOLUME
    return None


def _family(evidence: Evidence, family: Family) -> Protocol | None:
    return family.protocol(evidence)


def _brand(evidence: Evidence, family: Family) -> Protocol | None:
    return Protocol.VOLUME if evidence.vendor in _BRANDS else None


def _sas(evidence: Evidence, family: Family) -> Protocol | None:
    if evidence.port_protocols is not None:
        spoken = evidence.port_protocols.replace(",", " ").split()
        if "ssp" in spoken:
            return Protocol.SAS
        if {"sata", "stp"} & set(spoken):
            return Protocol.SATA
    if evidence.sas_designator or evidence.sas_address:
        return Protocol.SAS
    return None


def _spi(evidence: Evidence, family: Family) -> Protocol | None:
    return Protocol.SPI if evidence.spi else None


_RULES: tuple[Callable[[Evidence, Family], Protocol | None], ...] = (
    _drive,
    _volume,
    _family,
    _brand,
    _sas,
    _spi,
)
