"""What an endpoint speaks and what it stores on: pure, first match wins, unknown where unsure.

The tables here are read twice: by the functions below, which have all the evidence, and by
``boot.classes``, which writes them out as udev rules for the evidence that udev can see.
"""

from collections.abc import Mapping

from msgspec import Struct

from hbatune.facts.evidence import Evidence
from hbatune.facts.family import Family
from hbatune.facts.model import Medium, Protocol

BY_TRANSPORT: Mapping[str, Protocol] = {
    "usb": Protocol.UNKNOWN,  # its adapter is a bridge, which may hide anything
    "nvme": Protocol.NVME,
    "virtio": Protocol.VIRTIO,
    "ata": Protocol.SATA,
    "fc": Protocol.FC,
    "iscsi": Protocol.ISCSI,
}
"""What a transport (``place.TRANSPORTS``) tells by itself."""

BY_ROTATIONAL = {False: Medium.SSD, True: Medium.HDD}
"""What ``queue/rotational`` tells of a medium that is not NVMe's."""

_SOLID = 0x0001  # SBC-3 table 203: non-rotating medium
_SPINNING = range(0x0401, 0xFFFF)


class Sign(Struct, frozen=True):
    """What one field of the evidence tells: the ``protocol``, where its text is one of ``words``.

    Without words any text will do, and a flag has to be true. ``but`` is where any text tells
    except these words, ``listed`` where the text lists several words.
    """

    protocol: Protocol
    field: str
    words: tuple[str, ...] = ()
    but: bool = False
    listed: bool = False

    def holds(self, evidence: Evidence) -> bool:
        """Whether the evidence shows the sign."""
        found = getattr(evidence, self.field)
        if not found or not self.words:
            return bool(found)
        words = found.replace(",", " ").split() if self.listed else (found,)
        return self.but is not any(word in self.words for word in words)


BY_FAMILY = Sign(Protocol.UNKNOWN, "family")
"""The place of what the family of the adapter knows (``Family.protocol``) among the signs."""

# What raid_level says of a drive: hpsa and smartpqi, and aacraid, whose drives are JBOD or hidden.
_NO_RAID = ("N/A", "JBOD", "Hidden")
# What RAID controllers of the Broadcom family call the volumes that they make up.
_BRANDS = ("LSI", "AVAGO", "BROADCOM")

SIGNS = (
    Sign(Protocol.NVME, "vendor", ("NVMe",)),
    Sign(Protocol.SATA, "vendor", ("ATA",)),
    Sign(Protocol.SATA, "sat"),
    Sign(Protocol.VOLUME, "raid_level", _NO_RAID, but=True),
    BY_FAMILY,
    Sign(Protocol.VOLUME, "vendor", _BRANDS),
    Sign(Protocol.SAS, "port_protocols", ("ssp",), listed=True),
    Sign(Protocol.SATA, "port_protocols", ("sata", "stp"), listed=True),
    Sign(Protocol.SAS, "sas_designator"),
    Sign(Protocol.SAS, "sas_address"),
    Sign(Protocol.SPI, "spi"),
)
"""What tells the protocol of a SCSI disk behind an adapter: the first sign that holds."""


def protocol(evidence: Evidence, family: Family) -> Protocol:
    """Classify by way first, then by drive, then by what the family knows."""
    if (known := BY_TRANSPORT.get(evidence.transport or "")) is not None:
        return known
    if family.protocol(evidence) is Protocol.VIRTUAL:
        return Protocol.VIRTUAL
    if not evidence.pci and evidence.transport != "sas":
        return Protocol.UNKNOWN
    for sign in SIGNS:
        if sign is BY_FAMILY and (own := family.protocol(evidence)) is not None:
            return own
        if sign is not BY_FAMILY and sign.holds(evidence):
            return sign.protocol
    return Protocol.UNKNOWN


def medium(evidence: Evidence, spoken: Protocol) -> Medium:
    """Believe the drive's own page before ``queue/rotational``, which anybody may have set."""
    if spoken is Protocol.NVME:
        return Medium.NVME
    if evidence.rotation == _SOLID:
        return Medium.SSD
    # Asked of None, a range would look at each of its numbers.
    if evidence.rotation is not None and evidence.rotation in _SPINNING:
        return Medium.HDD
    if evidence.rotational is None:
        return Medium.UNKNOWN
    return BY_ROTATIONAL[evidence.rotational]
