"""What is known of an endpoint before it is classified: a raw record, and its parsing."""

from msgspec import Struct

_SAS = 6  # SPC-4 table 477: protocol identifier


class Evidence(Struct, frozen=True):
    """What sysfs says about an endpoint's way and its drive; None where it says nothing.

    ``transport`` is the word of ``place.Branch``. ``port_protocols`` is what the SAS transport
    class says of the drive's port. ``sat`` is whether the ATA information page exists, which only
    a SCSI to ATA translation has, and ``ncq_depth`` what the drive says there. ``rotation`` is
    the medium rotation rate of VPD page B1h.
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
