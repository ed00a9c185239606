"""Classify endpoints by protocol and medium, from evidence read elsewhere. Pure.

The first match wins. If the evidence is not sufficient, the result is unknown. The tables are used
twice: by the functions below, which have all the evidence, and by ``boot.conditions``, which writes
them as udev rules for the evidence that udev has.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from hbatune.facts.ids import escape_text
from hbatune.facts.model import Medium, Protocol, Storage
from hbatune.facts.names import matches_glob

_SAS = 6  # SPC-4 table 477: protocol identifier


class Evidence(Struct, frozen=True):
    """The sysfs evidence about an endpoint's route and drive; None if there is nothing.

    ``transport`` is the transport of ``routes.Branch``. ``fabric`` is whether an NVMe controller is
    behind a fabric. ``port_protocols`` are the protocols of the drive's port in the SAS transport
    class. ``sat`` is whether the ATA information page exists, which only a translation has.
    ``ncq_depth`` is the drive's queue depth on that page. ``ncq_off`` is the option of the kernel's
    command line that makes libata queue nothing for the drive. ``rotation`` is the medium rotation
    rate of VPD page B1h. ``access`` is the access state of ALUA, which a device handler has only
    for the LUNs of an array (drivers/scsi/device_handler).
    """

    transport: str | None = None
    pci: bool = True
    fabric: bool = False
    channel: int | None = None
    vendor: str = ""
    model: str = ""
    access: str | None = None
    raid_level: str | None = None
    port_protocols: str | None = None
    sas_address: str | None = None
    sas_designator: bool = False
    sat: bool = False
    ncq_depth: int | None = None
    ncq_off: str | None = None
    spi: bool = False
    rotation: int | None = None
    rotational: bool | None = None

    @property
    def is_ata(self) -> bool:
        """Whether the drive speaks ATA behind a translation."""
        return self.vendor == "ATA" or self.sat


Classifier = Callable[[Evidence], Protocol | None]

# The protocol of a transport (``routes.TRANSPORTS``) that has only one.
PROTOCOL_BY_TRANSPORT: Mapping[str, Protocol] = {
    # Bridges, which may hide any device, regardless of the LUN's report.
    "usb": Protocol.UNKNOWN,
    "firewire": Protocol.UNKNOWN,
    "srp": Protocol.UNKNOWN,
    "nvme": Protocol.NVME,
    "virtio": Protocol.VIRTIO,
    "ata": Protocol.SATA,
    "fc": Protocol.FC,
    "iscsi": Protocol.ISCSI,
    "xen": Protocol.VIRTUAL,
}
# The medium by ``queue/rotational``. A solid drive that speaks NVMe is ``Medium.NVME``.
MEDIUM_BY_ROTATIONAL = {False: Medium.SSD, True: Medium.HDD}
_SOLID = 0x0001  # SBC-3 table 203: non-rotating medium
_SPINNING = range(0x0401, 0xFFFF)


class Sign(Struct, frozen=True):
    """A sign of a ``protocol``: one field of the evidence, whose text is one of ``words``.

    Without words any text is a sign, and a flag must be true. With ``but``, any text except these
    words is a sign. With ``listed``, the text is a list of words. A word may be a glob.
    """

    protocol: Protocol
    field: str
    words: tuple[str, ...] = ()
    but: bool = False
    listed: bool = False

    def holds(self, evidence: Evidence) -> bool:
        """Return whether the evidence shows the sign."""
        value = getattr(evidence, self.field)
        if not value or not self.words:
            return bool(value)
        words = value.replace(",", " ").split() if self.listed else (value,)
        matched = any(matches_glob(text, self.words) for text in words)
        return self.but is not matched


# The position in ``PROTOCOL_SIGNS`` of the adapter family's own rule (``Family.protocol``).
FAMILY_SIGN = Sign(Protocol.UNKNOWN, "family")

# Vendors of hypervisors' disks in INQUIRY data, and their models if libata reports "ATA". VMware
# and VirtualBox emulate LSI's and Intel's adapters, Hyper-V has its own. QEMU's disks are
# classified by the emulated adapter; disks meant to be virtual are behind virtio.
_HYPERVISORS = ("VMware", "VMware,", "VBOX", "Msft", "XENSRC")
_VIRTUAL_DISKS = ("VMware Virtual *", "VBOX HARDDISK", "Virtual HD")

# The signs of a hypervisor's disk, which override the emulated adapter's transport.
VIRTUAL_SIGNS = (
    Sign(Protocol.VIRTUAL, "vendor", _HYPERVISORS),
    Sign(Protocol.VIRTUAL, "model", _VIRTUAL_DISKS),
)
# The transports that hypervisors emulate. Behind FC and iSCSI, such a vendor is an array's.
EMULATED_TRANSPORTS = (None, "sas", "ata")

# Emulated NVMe controllers of clouds and hypervisors, by model: EBS, persistent disks and
# Hyperdisk, Azure's remote disks, VMware. A local SSD of a cloud ("Amazon EC2 NVMe Instance
# Storage", "nvme_card") is a drive.
VIRTUAL_NVME = (
    "Amazon Elastic Block Store*",
    "nvme_card-pd*",
    "MSFT NVMe Accelerator*",
    "VMware Virtual NVMe*",
)

# SAS-attached arrays, by vendor and model in the INQUIRY data of their LUNs (multipath-tools,
# libmultipath/hwtable.c).
SAS_ARRAYS = (
    ("HP|HPE", "MSA*|P2000*"),
    ("DELL", "MD3*"),
    ("DellEMC|DELLEMC", "ME4*|ME5*"),
    ("IBM", "1726-*|1746*|1813*|1814*|1818*|2145*|DS*"),
    ("LENOVO|Lenovo", "DE_Series*|DS*|2145*|4600*|6411*"),
    ("LSI|NETAPP|SGI|STK|SUN|FUJITSU", "INF-01-00*|ETERNUS_DX*|CSM*|LCSM*|ArrayStorage*"),
    ("DotHill|DOTHILL", "*"),
    ("SEAGATE", "[456]*"),
)

# NVMe arrays by the model of their controllers (multipath-tools, libmultipath/hwtable.c).
NVME_ARRAYS = {
    "EMC PowerMax*": "Dell PowerMax",
    "dellemc-powerstore*": "Dell PowerStore",
    "HITACHI SVOS-RF-System*": "Hitachi VSP",
    "Huawei-XSG1*": "Huawei OceanStor",
    "IBM*2145*": "IBM SVC",
    "FlashSystem*": "IBM FlashSystem",
    "InfiniBox*": "Infinidat InfiniBox",
    "NetApp ONTAP Controller*": "NetApp ONTAP",
    "VASTData*": "VAST",
}


def name_array(model: str) -> str | None:
    """Return the name of the NVMe array with this model, or None for any other device."""
    return next((name for glob, name in NVME_ARRAYS.items() if matches_glob(model, [glob])), None)


# raid_level of a drive that is not a volume: hpsa and smartpqi, and aacraid (JBOD, Hidden).
_NO_RAID = ("N/A", "JBOD", "Hidden")
# The level in a volume's raid_level (hpsa.c: raid_label; smartpqi_init.c: raid_levels; aachba.c:
# container_types; raid_class.c), or in the model of ipr's volumes ("IPR-6   5EC99000").
_RAID_LEVEL = re.compile(r"(?:RAID|IPR)[- ]?(\d[\d()+]*(?:E|ADM|Triple\))?)", re.IGNORECASE)
# The vendor of RAID volumes: Broadcom's controllers, and Areca's.
_BRANDS = ("LSI", "AVAGO", "BROADCOM", "Areca")

# The protocol of a SCSI disk behind an adapter is the protocol of its first matching sign.
PROTOCOL_SIGNS = (
    Sign(Protocol.NVME, "vendor", ("NVMe",)),
    Sign(Protocol.SATA, "vendor", ("ATA",)),
    Sign(Protocol.SATA, "sat"),
    Sign(Protocol.VOLUME, "raid_level", _NO_RAID, but=True),
    FAMILY_SIGN,
    Sign(Protocol.VOLUME, "vendor", _BRANDS),
    Sign(Protocol.SAS, "port_protocols", ("ssp",), listed=True),
    Sign(Protocol.SATA, "port_protocols", ("sata", "stp"), listed=True),
    Sign(Protocol.SAS, "sas_designator"),
    Sign(Protocol.SAS, "sas_address"),
    Sign(Protocol.SPI, "spi"),
)


_CACHE_SIZE = 256  # thousands of LUNs have only a few different combinations


@lru_cache(maxsize=_CACHE_SIZE)
def classify_protocol(evidence: Evidence, by_family: Classifier) -> Protocol:
    """Return the protocol: by the transport, then by the drive and by ``Family.protocol``."""
    is_emulated = evidence.transport in EMULATED_TRANSPORTS
    if is_emulated and any(sign.holds(evidence) for sign in VIRTUAL_SIGNS):
        return Protocol.VIRTUAL
    if (by_transport := PROTOCOL_BY_TRANSPORT.get(evidence.transport or "")) is not None:
        return by_transport
    family_protocol = by_family(evidence)
    if family_protocol is Protocol.VIRTUAL:
        return Protocol.VIRTUAL
    if not evidence.pci and evidence.transport != "sas":
        return Protocol.UNKNOWN
    for sign in PROTOCOL_SIGNS:
        if sign is FAMILY_SIGN and family_protocol is not None:
            return family_protocol
        if sign is not FAMILY_SIGN and sign.holds(evidence):
            return sign.protocol
    return Protocol.UNKNOWN


@lru_cache(maxsize=_CACHE_SIZE)
def classify_storage(evidence: Evidence, protocol: Protocol) -> Storage:
    """Return the location of the data of an endpoint with this protocol."""
    match protocol:
        case Protocol.FC | Protocol.ISCSI:
            return Storage.ARRAY
        case Protocol.VIRTIO | Protocol.VIRTUAL:
            return Storage.VIRTUAL
        case Protocol.NVME if evidence.fabric:
            return Storage.FABRIC
        case Protocol.NVME if matches_glob(evidence.model, VIRTUAL_NVME):
            return Storage.VIRTUAL
        case Protocol.SAS if evidence.access is not None:
            return Storage.ARRAY
        case Protocol.SAS:
            for vendors, models in SAS_ARRAYS:
                is_vendor = matches_glob(evidence.vendor, vendors.split("|"))
                if is_vendor and matches_glob(evidence.model, models.split("|")):
                    return Storage.ARRAY
    return Storage.LOCAL


def find_raid_level(evidence: Evidence) -> str | None:
    """Return the RAID level of a volume, as in ``6`` or ``1(+0)``, or None if it shows none."""
    match = _RAID_LEVEL.match(evidence.raid_level or evidence.model)
    return escape_text(match[1]) if match else None


class Unclassified(StrEnum):
    """The evidence of an endpoint without a sign of its protocol, which snapshots store."""

    NO_FUNCTION = "no PCI function"
    NO_TRANSPORT = "no transport class, SAS designator or ATA page"
    NO_PATH = "without a path"


def describe_unknown(evidence: Evidence, driver: str) -> tuple[str, ...]:
    """Describe an unclassified disk, for example ``transport usb``."""
    details = {
        "driver": driver,
        "transport": evidence.transport,
        "channel": None if evidence.channel is None else str(evidence.channel),
        "vendor": evidence.vendor,
        "model": evidence.model,
        "port protocols": evidence.port_protocols,
    }
    missing = [] if evidence.pci else [Unclassified.NO_FUNCTION]
    if evidence.transport is None:
        missing.append(Unclassified.NO_TRANSPORT)
    return (*(f"{name} {escape_text(text)}" for name, text in details.items() if text), *missing)


# A medium to ignore: the kernel reports disks behind virtio as rotational by default, since virtio
# does not report it (include/uapi/linux/virtio_blk.h: virtio_blk_config).
UNRELIABLE_MEDIUM = (Protocol.VIRTIO, Medium.HDD)


def classify_medium(evidence: Evidence, protocol: Protocol) -> Medium:
    """Return the medium, by the drive's own page before ``queue/rotational``, which is writable."""
    medium = Medium.UNKNOWN
    is_nvme = protocol is Protocol.NVME
    if evidence.rotation == _SOLID:
        medium = Medium.SSD
    # Without the first test, ``None in range`` would compare None with each number in it.
    elif evidence.rotation is not None and evidence.rotation in _SPINNING:
        medium = Medium.HDD
    # Since Linux 6.13 a namespace can be rotational (drivers/nvme/host/core.c). A tri-mode drive
    # without the page says nothing: the SCSI layer's default is rotational.
    elif evidence.rotational is not None and (not is_nvme or evidence.transport == "nvme"):
        medium = MEDIUM_BY_ROTATIONAL[evidence.rotational]
    if is_nvme and medium is not Medium.HDD:
        return Medium.NVME
    return Medium.UNKNOWN if (protocol, medium) == UNRELIABLE_MEDIUM else medium


def parse_rotation_rate(page: bytes) -> int | None:
    """Return the medium rotation rate of VPD page B1h (SBC-3 6.6.2): bytes 4 and 5."""
    return int.from_bytes(page[4:6], "big") if len(page) >= 6 and page[1] == 0xB1 else None


def parse_serial_number(page: bytes) -> str | None:
    """Return the unit serial number of VPD page 80h (SPC-4 7.8.18)."""
    if len(page) < 5 or page[1] != 0x80:
        return None
    length = int.from_bytes(page[2:4], "big")
    return page[4 : 4 + length].decode("ascii", "backslashreplace").strip(" \0") or None


def parse_ncq_depth(page: bytes) -> int | None:
    """Return the number of commands an ATA drive queues, from VPD page 89h (SAT-4 12.4.2).

    The IDENTIFY DEVICE data begin at byte 60 (ACS-4 7.12): bit 8 of word 76 is native command
    queuing, bits 4 to 0 of word 75 are the depth minus one.
    """
    if len(page) < 214 or page[1] != 0x89:
        return None
    depth = int.from_bytes(page[210:212], "little")
    capabilities = int.from_bytes(page[212:214], "little")
    return (depth & 0x1F) + 1 if capabilities & 0x100 else 1


def has_sas_port(page: bytes) -> bool:
    """Return whether VPD page 83h (SPC-4 7.8.6) names a SAS target port."""
    if len(page) < 4 or page[1] != 0x83:
        return False
    end = min(len(page), 4 + int.from_bytes(page[2:4], "big"))
    offset = 4
    while offset + 4 <= end:
        protocol, association = page[offset] >> 4, page[offset + 1] >> 4 & 3
        identified = bool(page[offset + 1] & 0x80)  # PIV: the protocol identifier is valid
        if identified and association == 1 and protocol == _SAS:
            return True
        offset += 4 + page[offset + 3]
    return False
