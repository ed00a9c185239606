"""Classifies endpoints by protocol and medium, from evidence read elsewhere. Pure.

First match wins, and if the evidence is not enough the answer is unknown. The tables here are
read twice: by the functions below, which have all the evidence, and by ``boot.conditions``, which
writes them out as udev rules for the evidence that udev can see.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from hbatune.facts.model import Medium, Protocol

_SAS = 6  # SPC-4 table 477: protocol identifier


class Evidence(Struct, frozen=True):
    """The contents of sysfs about an endpoint's route and its drive; None if there is nothing.

    ``transport`` is the word of ``routes.Branch``. ``port_protocols`` are those of the drive's port
    in the SAS transport class. ``sat`` is whether the ATA information page exists, which only
    a SCSI to ATA translation has, and ``ncq_depth`` the drive's queue depth on that page.
    ``rotation`` is the medium rotation rate of VPD page B1h.
    """

    transport: str | None = None
    pci: bool = True
    channel: int | None = None
    vendor: str = ""
    raid_level: str | None = None
    port_protocols: str | None = None
    sas_address: str | None = None
    sas_designator: bool = False
    sat: bool = False
    ncq_depth: int | None = None
    spi: bool = False
    rotation: int | None = None
    rotational: bool | None = None


BY_TRANSPORT: Mapping[str, Protocol] = {
    "usb": Protocol.UNKNOWN,  # its adapter is a bridge, which may hide anything
    "nvme": Protocol.NVME,
    "virtio": Protocol.VIRTIO,
    "ata": Protocol.SATA,
    "fc": Protocol.FC,
    "iscsi": Protocol.ISCSI,
}
"""The protocol of a transport (``routes.TRANSPORTS``) that has only one."""

BY_ROTATIONAL = {False: Medium.SSD, True: Medium.HDD}
"""The medium by ``queue/rotational``, of endpoints that do not speak NVMe."""

_SOLID = 0x0001  # SBC-3 table 203: non-rotating medium
_SPINNING = range(0x0401, 0xFFFF)


class Sign(Struct, frozen=True):
    """A sign of a ``protocol``: one field of the evidence, whose text is one of ``words``.

    Without words any text is a sign, and a flag has to be true. With ``but`` any text is one
    except these words; with ``listed`` the text is a list of words.
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
"""The place among the signs of the adapter family's own knowledge (``Family.protocol``)."""

# raid_level of a drive that is no volume: of hpsa and smartpqi, and of aacraid (JBOD, Hidden).
_NO_RAID = ("N/A", "JBOD", "Hidden")
# The vendor of volumes of RAID controllers of the Broadcom family.
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
"""The protocol of a SCSI disk behind an adapter is that of the first sign that holds."""


def protocol(evidence: Evidence, by_family: Callable[[Evidence], Protocol | None]) -> Protocol:
    """Return the protocol: by the transport first, then by the drive and the adapter's family.

    ``by_family`` is ``Family.protocol``.
    """
    if (known := BY_TRANSPORT.get(evidence.transport or "")) is not None:
        return known
    if by_family(evidence) is Protocol.VIRTUAL:
        return Protocol.VIRTUAL
    if not evidence.pci and evidence.transport != "sas":
        return Protocol.UNKNOWN
    for sign in SIGNS:
        if sign is BY_FAMILY and (own := by_family(evidence)) is not None:
            return own
        if sign is not BY_FAMILY and sign.holds(evidence):
            return sign.protocol
    return Protocol.UNKNOWN


def medium(evidence: Evidence, spoken: Protocol) -> Medium:
    """Return the medium, by the drive's own page before ``queue/rotational``, which is writable."""
    if spoken is Protocol.NVME:
        return Medium.NVME
    if evidence.rotation == _SOLID:
        return Medium.SSD
    # Without the first test, ``None in range`` would compare None with each of its numbers.
    if evidence.rotation is not None and evidence.rotation in _SPINNING:
        return Medium.HDD
    if evidence.rotational is None:
        return Medium.UNKNOWN
    return BY_ROTATIONAL[evidence.rotational]


def rotation_rate(page: bytes) -> int | None:
    """Return the medium rotation rate of VPD page B1h (SBC-3 6.6.2): bytes 4 and 5."""
    return int.from_bytes(page[4:6], "big") if len(page) >= 6 and page[1] == 0xB1 else None


def serial_number(page: bytes) -> str | None:
    """Return the unit serial number of VPD page 80h (SPC-4 7.8.18)."""
    if len(page) < 5 or page[1] != 0x80:
        return None
    length = int.from_bytes(page[2:4], "big")
    text = page[4 : 4 + length].decode("ascii", "backslashreplace").strip(" \0")
    return text or None


def ncq_depth(page: bytes) -> int | None:
    """Return how many commands an ATA drive queues, from VPD page 89h (SAT-4 12.4.2).

    The IDENTIFY DEVICE data begin at byte 60 (ACS-4 7.12): bit 8 of word 76 is native command
    queuing, bits 4 to 0 of word 75 are the depth less one.
    """
    if len(page) < 214 or page[1] != 0x89:
        return None
    depth, capabilities = (int.from_bytes(page[at : at + 2], "little") for at in (210, 212))
    return (depth & 0x1F) + 1 if capabilities & 0x100 else 1


def has_sas_port(page: bytes) -> bool:
    """Whether VPD page 83h (SPC-4 7.8.6) names a target port that speaks SAS."""
    if len(page) < 4 or page[1] != 0x83:
        return False
    end = min(len(page), 4 + int.from_bytes(page[2:4], "big"))
    at = 4
    while at + 4 <= end:
        protocol, association = page[at] >> 4, page[at + 1] >> 4 & 3
        identified = bool(page[at + 1] & 0x80)  # PIV: the protocol identifier is valid
        if identified and association == 1 and protocol == _SAS:
            return True
        at += 4 + page[at + 3]
    return False
