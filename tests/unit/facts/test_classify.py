"""What an endpoint is taken for, by the evidence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts.classify import (
    Evidence,
    classify_medium,
    classify_protocol,
    classify_storage,
    find_raid_level,
    has_sas_port,
    parse_ncq_depth,
    parse_rotation_rate,
    parse_serial_number,
)
from hbatune.facts.families import GENERIC, families, family_of
from hbatune.facts.model import Medium, Protocol, Storage


def sas(vendor: str, spoken: str, **more: Any) -> Evidence:
    """Return what is known of a drive below an end device."""
    return Evidence(transport="sas", channel=0, vendor=vendor, port_protocols=spoken, **more)


CASES = {
    "native NVMe": (Evidence(transport="nvme"), "nvme", Protocol.NVME),
    "virtio": (Evidence(transport="virtio", vendor="ATA"), "virtio_scsi", Protocol.VIRTIO),
    "libata": (Evidence(transport="ata", vendor="ATA"), "ahci", Protocol.SATA),
    "FC, whatever the array says": (Evidence(transport="fc", vendor="LSI"), None, Protocol.FC),
    "iSCSI": (Evidence(transport="iscsi", pci=False), None, Protocol.ISCSI),
    "USB bridge to a SATA drive": (
        Evidence(transport="usb", pci=False, vendor="ATA", sat=True),
        None,
        Protocol.UNKNOWN,
    ),
    "tri-mode NVMe": (Evidence(vendor="NVMe", channel=2), "megaraid_sas", Protocol.NVME),
    "NVMe that its HBA reports as SSP": (
        Evidence(transport="sas", vendor="NVMe", port_protocols="ssp"),
        None,
        Protocol.NVME,
    ),
    "SATA behind an HBA": (
        Evidence(transport="sas", vendor="ATA", port_protocols="sata"),
        None,
        Protocol.SATA,
    ),
    "SATA by the ATA information page alone": (Evidence(sat=True), None, Protocol.SATA),
    "logical drive": (Evidence(channel=2, vendor="DELL"), "megaraid_sas", Protocol.VOLUME),
    "system drive": (Evidence(channel=1, vendor="SEAGATE"), "megaraid_sas", Protocol.SAS),
    "volume by raid_level": (
        Evidence(raid_level="RAID-5", sas_address="0x0"),
        None,
        Protocol.VOLUME,
    ),
    "drive with raid_level": (
        Evidence(transport="sas", raid_level="N/A", port_protocols="ssp"),
        None,
        Protocol.SAS,
    ),
    "volume by brand": (Evidence(vendor="BROADCOM"), None, Protocol.VOLUME),
    "SAS end device": (
        Evidence(transport="sas", vendor="SEAGATE", port_protocols="ssp"),
        "mptsas",
        Protocol.SAS,
    ),
    "SATA end device without SATL": (
        Evidence(transport="sas", port_protocols="sata, stp"),
        None,
        Protocol.SATA,
    ),
    "flat SAS by designator": (Evidence(sas_designator=True), None, Protocol.SAS),
    "flat SAS by address": (Evidence(sas_address="0x5000c500a1b2c3d5"), None, Protocol.SAS),
    "SAS of a chip that is not on PCI": (
        Evidence(transport="sas", pci=False, port_protocols="ssp"),
        None,
        Protocol.SAS,
    ),
    "parallel SCSI by driver": (Evidence(vendor="SEAGATE"), "sym53c8xx", Protocol.SPI),
    "parallel SCSI by transport class": (Evidence(spi=True), None, Protocol.SPI),
    "a hypervisor's disk on an emulated HBA": (
        Evidence(transport="sas", vendor="VMware,", port_protocols="ssp"),
        "mptsas",
        Protocol.VIRTUAL,
    ),
    "a hypervisor's disk on an emulated SATA port": (
        Evidence(transport="ata", vendor="ATA", model="VBOX HARDDISK"),
        "ahci",
        Protocol.VIRTUAL,
    ),
    "an array of a hypervisor's maker": (
        Evidence(transport="iscsi", pci=False, vendor="VMware"),
        "iscsi_tcp",
        Protocol.ISCSI,
    ),
    "SRP, whatever is behind it": (
        Evidence(transport="srp", vendor="ATA", sat=True),
        None,
        Protocol.UNKNOWN,
    ),
    "FireWire": (Evidence(transport="firewire", vendor="ATA"), None, Protocol.UNKNOWN),
    "MegaRAID, a drive on a volume's channel": (
        Evidence(channel=2, sas_designator=True),
        "megaraid_sas",
        Protocol.SAS,
    ),
    "MegaRAID, a volume by ALUA": (
        Evidence(channel=0, sas_designator=True, access="active/optimized"),
        "megaraid_sas",
        Protocol.VOLUME,
    ),
    "Hyper-V": (Evidence(pci=False, vendor="Msft"), "hv_storvsc", Protocol.VIRTUAL),
    "Hyper-V, passed through": (
        Evidence(pci=False, vendor="DGC"),
        "hv_storvsc",
        Protocol.UNKNOWN,
    ),
    "Power's virtual SCSI": (Evidence(pci=False, vendor="AIX"), "ibmvscsi", Protocol.VIRTUAL),
    "Xen": (Evidence(transport="xen", pci=False), "vbd", Protocol.VIRTUAL),
    "Areca, a volume": (Evidence(channel=0, vendor="Areca"), "arcmsr", Protocol.VOLUME),
    "Areca, a drive": (Evidence(channel=0, vendor="SEAGATE"), "arcmsr", Protocol.UNKNOWN),
    "pvscsi": (Evidence(vendor="ATA"), "vmw_pvscsi", Protocol.VIRTUAL),
    "scsi_debug": (Evidence(pci=False, vendor="Linux"), "scsi_debug", Protocol.VIRTUAL),
    "flat and silent": (Evidence(vendor="SEAGATE"), None, Protocol.UNKNOWN),
    "end device and silent": (Evidence(transport="sas"), None, Protocol.UNKNOWN),
    "a host that is not on PCI": (Evidence(pci=False, vendor="ATA"), None, Protocol.UNKNOWN),
}

# How the drivers of tri-mode and RAID controllers place what they serve, one shape a line:
# mpt3sas_scsih.c (PCIE_CHANNEL, RAID_CHANNEL), mpi3mr_os.c (mpi3mr_report_tgtdev_to_host),
# smartpqi_sas_transport.c, megaraid_sas.h, hpsa.c, aacraid's linit.c, ipr.h.
PORT = "0x5000c500a1b2c3d5"
SHAPES = {
    "mpt3sas, SAS": (sas("SEAGATE", "ssp"), "mpt3sas", Protocol.SAS),
    "mpt3sas, SATA": (sas("ATA", "sata", sat=True), "mpt3sas", Protocol.SATA),
    "mpt3sas, NVMe, whose wwid is its sas_address": (
        Evidence(channel=2, vendor="NVMe", sas_address=PORT),
        "mpt3sas",
        Protocol.NVME,
    ),
    "mpt3sas, NVMe by channel": (Evidence(channel=2, vendor="INTEL"), "mpt3sas", Protocol.NVME),
    "mpt3sas, volume": (Evidence(channel=1, vendor="LSI"), "mpt3sas", Protocol.VOLUME),
    "mpt3sas, volume with an address": (
        Evidence(channel=1, vendor="DELL", sas_address=PORT),
        "mpt3sas",
        Protocol.VOLUME,
    ),
    "mpt2sas, volume": (Evidence(channel=1, vendor="LSILOGIC"), "mpt2sas", Protocol.VOLUME),
    "mpi3mr with SAS transport, SAS": (sas("SEAGATE", "ssp"), "mpi3mr", Protocol.SAS),
    "mpi3mr with SAS transport, SATA": (sas("ATA", "sata", sat=True), "mpi3mr", Protocol.SATA),
    "mpi3mr with SAS transport, NVMe": (
        Evidence(channel=1, vendor="NVMe"),
        "mpi3mr",
        Protocol.NVME,
    ),
    "mpi3mr with SAS transport, volume": (
        Evidence(channel=1, vendor="DELL"),
        "mpi3mr",
        Protocol.VOLUME,
    ),
    "mpi3mr flat, SAS": (
        Evidence(channel=0, vendor="SEAGATE", sas_designator=True),
        "mpi3mr",
        Protocol.SAS,
    ),
    "mpi3mr flat, SATA": (Evidence(channel=0, vendor="ATA", sat=True), "mpi3mr", Protocol.SATA),
    "mpi3mr flat, NVMe": (Evidence(channel=0, vendor="NVMe"), "mpi3mr", Protocol.NVME),
    "mpi3mr flat, volume": (Evidence(channel=0, vendor="BROADCOM"), "mpi3mr", Protocol.VOLUME),
    "mpi3mr flat, and nothing tells": (
        Evidence(channel=0, vendor="SEAGATE"),
        "mpi3mr",
        Protocol.UNKNOWN,
    ),
    "smartpqi, SAS": (sas("HPE", "ssp", raid_level="N/A"), "smartpqi", Protocol.SAS),
    "smartpqi, SATA": (sas("ATA", "stp", sat=True), "smartpqi", Protocol.SATA),
    "smartpqi, NVMe as ssp": (sas("NVMe", "ssp", sas_address=PORT), "smartpqi", Protocol.NVME),
    "smartpqi, volume": (
        Evidence(channel=1, vendor="HPE", raid_level="RAID-5", sas_address="0x0"),
        "smartpqi",
        Protocol.VOLUME,
    ),
    "megaraid_sas, SAS": (Evidence(channel=0, vendor="SEAGATE"), "megaraid_sas", Protocol.SAS),
    "megaraid_sas, SATA": (
        Evidence(channel=1, vendor="ATA", sat=True),
        "megaraid_sas",
        Protocol.SATA,
    ),
    "megaraid_sas, NVMe": (Evidence(channel=0, vendor="NVMe"), "megaraid_sas", Protocol.NVME),
    "megaraid_sas, volume on the last channel": (
        Evidence(channel=3, vendor="LSI"),
        "megaraid_sas",
        Protocol.VOLUME,
    ),
    "hpsa, volume": (Evidence(vendor="HP", raid_level="RAID 1(+0)"), "hpsa", Protocol.VOLUME),
    "hpsa, drive": (sas("HP", "ssp", raid_level="N/A"), "hpsa", Protocol.SAS),
    "aacraid, container": (
        Evidence(channel=0, vendor="ASR8805", raid_level="RAID5"),
        "aacraid",
        Protocol.VOLUME,
    ),
    "aacraid, JBOD": (
        Evidence(channel=1, vendor="HGST", raid_level="JBOD", sas_designator=True),
        "aacraid",
        Protocol.SAS,
    ),
    "aacraid, SATA JBOD": (
        Evidence(channel=1, vendor="ATA", raid_level="JBOD"),
        "aacraid",
        Protocol.SATA,
    ),
    "aacraid, drive that says nothing": (
        Evidence(channel=1, vendor="HGST", raid_level=""),
        "aacraid",
        Protocol.UNKNOWN,
    ),
    "ipr, volume of SIS-64": (Evidence(channel=2, vendor="IBM"), "ipr", Protocol.VOLUME),
    "ipr, volume of SIS-32": (Evidence(channel=255, vendor="IBM"), "ipr", Protocol.VOLUME),
    "ipr, drive": (Evidence(channel=0, vendor="IBM", sas_designator=True), "ipr", Protocol.SAS),
    "qla2xxx": (Evidence(transport="fc", vendor="DGC", channel=0), "qla2xxx", Protocol.FC),
    "lpfc": (Evidence(transport="fc", vendor="IBM", channel=1), "lpfc", Protocol.FC),
    "iscsi_tcp": (
        Evidence(transport="iscsi", pci=False, vendor="LIO-ORG"),
        "iscsi_tcp",
        Protocol.ISCSI,
    ),
    "qla1280": (Evidence(vendor="SEAGATE", spi=True), "qla1280", Protocol.SPI),
    "aic7xxx": (Evidence(vendor="QUANTUM"), "aic7xxx", Protocol.SPI),
}
CASES |= SHAPES


@pytest.mark.parametrize("name", CASES)
def test_protocol_follows_evidence(name: str) -> None:
    evidence, driver, expected = CASES[name]
    assert classify_protocol(evidence, family_of(driver).protocol) is expected


@pytest.mark.parametrize(
    ("rotation", "rotational", "expected"),
    [
        (0x0001, True, Medium.SSD),
        (7200, False, Medium.HDD),
        (0x0401, None, Medium.HDD),
        (0xFFFE, None, Medium.HDD),
        (0x0000, True, Medium.HDD),
        (0xFFFF, False, Medium.SSD),
        (0x0400, None, Medium.UNKNOWN),
        (None, True, Medium.HDD),
        (None, False, Medium.SSD),
        (None, None, Medium.UNKNOWN),
    ],
)
def test_drive_rotation_overrides_kernel_flag(
    rotation: int | None, rotational: bool | None, expected: Medium
) -> None:
    evidence = Evidence(rotation=rotation, rotational=rotational)
    assert classify_medium(evidence, Protocol.SAS) is expected


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (Evidence(transport="nvme"), Medium.NVME),
        (Evidence(transport="nvme", rotational=False), Medium.NVME),
        (Evidence(transport="nvme", rotational=True), Medium.HDD),
        # Tri-mode: the flag alone is the SCSI layer's default.
        (Evidence(vendor="NVMe", rotational=True), Medium.NVME),
        (Evidence(vendor="NVMe", rotational=True, rotation=1), Medium.NVME),
        (Evidence(vendor="NVMe", rotational=False, rotation=7200), Medium.HDD),
    ],
)
def test_spinning_nvme_drive_is_hdd(evidence: Evidence, expected: Medium) -> None:
    assert classify_medium(evidence, Protocol.NVME) is expected


@pytest.mark.parametrize(
    ("evidence", "level"),
    [
        (Evidence(raid_level="RAID 6"), "6"),  # hpsa
        (Evidence(raid_level="RAID 1(+0)ADM"), "1(+0)ADM"),
        (Evidence(raid_level="RAID-5+1"), "5+1"),  # smartpqi
        (Evidence(raid_level="RAID60"), "60"),  # aacraid
        (Evidence(raid_level="raid1e"), "1e"),  # mpt3sas, by the RAID class
        (Evidence(model="IPR-6   5EC99000"), "6"),
        (Evidence(model="IPR-10  5EC99000"), "10"),
        (Evidence(raid_level="UNKNOWN", model="IPR-6   5EC99000"), None),
        (Evidence(raid_level="RAID-1(Triple)"), "1(Triple)"),
        (Evidence(raid_level="RAID 6 of payroll"), "6"),
        (Evidence(raid_level="RAID 6payroll"), "6"),
        (Evidence(raid_level="Volume"), None),
        (Evidence(model="MR9660-16i"), None),
        (Evidence(model="LOGICAL RAID 6"), None),
    ],
)
def test_raid_level_follows_driver_text(evidence: Evidence, level: str | None) -> None:
    assert find_raid_level(evidence) == level


def test_rotational_virtio_medium_is_unknown() -> None:
    assert classify_medium(Evidence(rotational=True), Protocol.VIRTIO) is Medium.UNKNOWN
    assert classify_medium(Evidence(rotational=False), Protocol.VIRTIO) is Medium.SSD


def test_unknown_driver_is_generic() -> None:
    assert family_of("brand_new", None) is GENERIC
    assert family_of("brand_new", "ahci").name == "ahci"


def test_drivers_have_single_family() -> None:
    drivers = [driver for family in families() for driver in family.drivers]
    assert len(set(drivers)) == len(drivers)


def test_rotation_rate_page() -> None:
    assert parse_rotation_rate(b"\0\xb1\0\x3c\x1c\x20" + bytes(58)) == 7200
    assert parse_rotation_rate(b"\0\xb0\0\x3c\x1c\x20") is None
    assert parse_rotation_rate(b"\0\xb1\0\x3c") is None


def test_serial_number_page() -> None:
    assert parse_serial_number(b"\0\x80\0\x08  SER123junk") == "SER123"
    assert parse_serial_number(b"\0\x80\0\x04    ") is None
    assert parse_serial_number(b"") is None


def test_ncq_depth_page() -> None:
    def page(words: bytes) -> bytes:
        return b"\0\x89\x02\x38" + bytes(206) + words + bytes(358)

    assert parse_ncq_depth(page(b"\x1f\0\0\1")) == 32
    assert parse_ncq_depth(page(b"\x1e\0\0\1")) == 31
    assert parse_ncq_depth(page(b"\x1f\0\0\0")) == 1
    assert parse_ncq_depth(b"\0\x89\x02\x38") is None


def test_sas_port_detected_among_designators() -> None:
    name = b"\x01\x03\0\x08" + bytes(8)
    fc_port = b"\x01\x93\0\x08" + bytes(8)
    sas_unit = b"\x61\x83\0\x08" + bytes(8)
    sas_port = b"\x61\x93\0\x08" + bytes(8)
    assert has_sas_port(_page(name + fc_port + sas_port))
    assert not has_sas_port(_page(name + fc_port + sas_unit))
    assert not has_sas_port(b"\0\x80" + _page(sas_port)[2:])


@given(st.binary(max_size=80))
def test_parsers_survive_any_page(page: bytes) -> None:
    for start in (b"", b"\0\x83\0\x40", b"\0\x80\xff\xff", b"\0\xb1", b"\0\x89"):
        has_sas_port(start + page)
        parse_serial_number(start + page)
        parse_rotation_rate(start + page)
        parse_ncq_depth(start + page)


def _page(designators: bytes) -> bytes:
    return b"\0\x83" + len(designators).to_bytes(2, "big") + designators


# The ids of 2026 in libmultipath/hwtable.c of multipath-tools c2fcdaf1.
SAS_ARRAY_IDS = (
    ("HPE", "MSA 2070 SAS"),
    ("HP", "MSA 2040 SAN"),
    ("SEAGATE", "4005"),
    ("SEAGATE", "5005"),
    ("SEAGATE", "6005"),
)


@pytest.mark.parametrize(("vendor", "model"), SAS_ARRAY_IDS)
def test_sas_array_is_known_by_name(vendor: str, model: str) -> None:
    evidence = Evidence(transport="sas", vendor=vendor, model=model)
    assert classify_storage(evidence, Protocol.SAS) is Storage.ARRAY


@pytest.mark.parametrize("model", ["ST4000NM0023", "XS3840SE70084"])
def test_seagate_drive_is_local(model: str) -> None:
    evidence = Evidence(transport="sas", vendor="SEAGATE", model=model)
    assert classify_storage(evidence, Protocol.SAS) is Storage.LOCAL
