"""What hbatune makes of the machine of each family, and of each trap."""

from collections.abc import Callable

import pytest

from hbatune.facts.families import families
from hbatune.facts.model import Kind, Medium, Protocol
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Row, State
from hbatune.policy.profile import AtLeast, Effect, Exactly
from hbatune.text.limit_text import describe_limit
from tests.hosts.conftest import NAMED, Surveyed
from tests.hosts.families import MACHINES, describe
from tests.hosts.wished_profiles import wishes

Survey = Callable[[str], Surveyed]

SAS, SATA, NVME, VOLUME = Protocol.SAS, Protocol.SATA, Protocol.NVME, Protocol.VOLUME
SSD, HDD = Medium.SSD, Medium.HDD

PRODUCTS = {
    "mpi3mr": ("Broadcom eHBA 9600-24i", "05-50111-01 (D0)"),
    "mpi3mr_flat": ("Broadcom eHBA 9600-24i", "05-50111-01 (D0)"),
    "mpi3mr_megaraid": ("Broadcom SAS4116 (9600 series)", None),
    "mpt3sas": ("HBA 9400-16i", None),
    "mpt3sas_9300": ("Broadcom SAS3008", None),
    "mpt2sas": ("Broadcom SAS2008", None),
    "megaraid_sas": ("MegaRAID Aero", None),
    "smartpqi": ("SmartRAID 3154-8i", None),
    "hpsa": ("HP Smart Array P440ar", None),
    "aacraid": ("ASR8805", None),
    "ipr": ("IBM 57CE SAS RAID", "57CE (D4)"),
    "ipr_gen1": ("IBM 57B4 SAS RAID", "57B4 (D4)"),
    "ipr_57b5": ("IBM 57B5 SAS RAID", "57B5 (D4)"),
    "ipr_57c4": ("IBM 57C4 SAS RAID", "57C4 (D4)"),
    "qla2xxx": ("QLE2742", None),
    "lpfc": ("LPe32002-M2", None),
    "lpfc_lp10000": ("LP10000", "Emulex LP10000 (D2)"),
    "qla1280": ("QLogic QLA1040", "QLogic QLA1040 (D1)"),
    "aic7xxx": ("Adaptec AHA-2940U/UW", "Adaptec 2940UW (D1)"),
    "sym53c8xx": ("Symbios 53C875", "Symbios SYM8751SP (D1)"),
    "nvme": ("SAMSUNG MZWLJ3T8", None),
    "virtio_scsi": ("virtio SCSI", None),
    "virtio_blk": ("virtio block device", None),
    "vmw_pvscsi": ("VMware PVSCSI", None),
    "mptsas": ("SAS3081E", None),
    "iscsi_tcp": (None, None),
    "ahci": (None, None),
    "scsi_debug": (None, None),
    "stranger": (None, None),
    "mptspi": ("LSI22320", None),
    "arcmsr": ("ARC-1883", None),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_adapter_reports_product_and_document(surveyed: Survey, name: str) -> None:
    adapter = surveyed(name).adapter
    assert (adapter.product, adapter.document) == PRODUCTS[name]


@pytest.mark.parametrize("name", MACHINES)
def test_driver_determines_family(surveyed: Survey, name: str) -> None:
    described = surveyed(name)
    assert [adapter.family for adapter in described.machine.adapters] == [name]
    assert {endpoint.family for endpoint in described.machine.endpoints} == {name}


VERSIONS = {
    "mpi3mr": ("8.5.1.0.00000-00001", "8.2.0.3.0"),
    "smartpqi": ("3.53-0", "2.1.18-045"),
    "hpsa": ("7.20", "3.4.20-200"),
    "aacraid": ("7.18-0[33556]", "1.2.1[50983]-custom"),
    "ipr": ("13512900", "2.6.4"),
    "qla2xxx": ("9.08.02 (d0d5)", "10.02.07.900-k"),
    "lpfc": (
        "14.2.455.11, sli-4:2:c",
        "Emulex LightPulse Fibre Channel SCSI driver 14.2.0.6",
    ),
    "nvme": ("8.0.2", "1.0"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_adapter_reports_versions(surveyed: Survey, name: str) -> None:
    adapter = surveyed(name).adapter
    assert (adapter.firmware, adapter.driver_version) == VERSIONS[name]


SPOKEN = {
    "mpi3mr": {
        "sda": (SAS, SSD),
        "sdb": (SAS, HDD),
        "sdc": (SATA, SSD),
        "sdd": (NVME, Medium.NVME),
    },
    "mpi3mr_flat": {
        "sda": (SAS, SSD),
        "sdb": (SATA, SSD),
        "sdc": (NVME, Medium.NVME),
        "sdd": (VOLUME, SSD),
        "sde": (Protocol.UNKNOWN, SSD),
    },
    "mpi3mr_megaraid": {"sda": (VOLUME, SSD)},
    "mpt3sas": {
        "sda": (SAS, SSD),
        "sdb": (SATA, SSD),
        "sdc": (NVME, Medium.NVME),
        "sdd": (VOLUME, HDD),
    },
    "megaraid_sas": {
        "sda": (VOLUME, SSD),
        "sdb": (SATA, SSD),
        "sdc": (NVME, Medium.NVME),
        "sdd": (SAS, HDD),
        "sde": (SAS, SSD),
    },
    "smartpqi": {
        "sda": (SAS, SSD),
        "sdb": (SATA, SSD),
        "sdc": (NVME, Medium.NVME),
        "sdd": (VOLUME, SSD),
    },
    "hpsa": {"sda": (VOLUME, SSD), "sdb": (SAS, HDD)},
    "aacraid": {"sda": (VOLUME, SSD), "sdb": (SATA, SSD), "sdc": (SAS, SSD)},
    "ipr": {"sda": (VOLUME, HDD), "sdb": (SAS, SSD), "sdc": (SATA, SSD)},
    "fc_multipath": {
        "sda": (Protocol.FC, SSD),
        "sdb": (Protocol.FC, SSD),
        "dm-0": (Protocol.FC, SSD),
    },
    "iscsi_tcp": {"sda": (Protocol.ISCSI, SSD)},
    "mptspi": {"sda": (Protocol.SPI, HDD)},
    "arcmsr": {"sda": (VOLUME, SSD)},
    "libsas": {"sda": (SAS, SSD), "sdb": (SATA, SSD)},
    "hv_storvsc": {"sda": (Protocol.VIRTUAL, SSD)},
    "xen_blkfront": {"xvda": (Protocol.VIRTUAL, SSD)},
    "ibmvscsi": {"sda": (Protocol.VIRTUAL, SSD)},
    "vmware_lsi": {"sda": (Protocol.VIRTUAL, SSD)},
    "vmware_sata": {"sda": (Protocol.VIRTUAL, SSD)},
    "vsan_iscsi": {"sda": (Protocol.ISCSI, SSD)},
    "perc_h755n": {"sda": (NVME, Medium.NVME), "sdb": (SAS, SSD), "sdc": (VOLUME, SSD)},
    "bridges": {"sda": (Protocol.UNKNOWN, SSD), "sdb": (Protocol.UNKNOWN, SSD)},
    "areca_passthrough": {"sda": (Protocol.UNKNOWN, SSD)},
    "stranger": {"sda": (Protocol.UNKNOWN, SSD)},
}


@pytest.mark.parametrize("name", SPOKEN)
def test_endpoints_are_classified(surveyed: Survey, name: str) -> None:
    endpoints = surveyed(name).endpoints
    assert {
        disk: (endpoint.protocol, endpoint.medium) for disk, endpoint in endpoints.items()
    } == SPOKEN[name]
    tri_mode = [disk for disk, endpoint in endpoints.items() if endpoint.tri_mode]
    assert tri_mode == [disk for disk, (spoken, _) in SPOKEN[name].items() if spoken is NVME]


RAID_LEVELS = {
    "mpt3sas": {"sda": None, "sdb": None, "sdc": None, "sdd": "10"},
    "smartpqi": {"sda": None, "sdb": None, "sdc": None, "sdd": "5"},
    "hpsa": {"sda": "1(+0)", "sdb": None},
    "aacraid": {"sda": "5", "sdb": None, "sdc": None},
    "ipr": {"sda": "5", "sdb": None, "sdc": None},
    "arcmsr": {"sda": None},
    "mpi3mr_megaraid": {"sda": None},
}


@pytest.mark.parametrize("name", RAID_LEVELS)
def test_volumes_report_raid_level(surveyed: Survey, name: str) -> None:
    endpoints = surveyed(name).endpoints
    assert {disk: endpoint.raid_level for disk, endpoint in endpoints.items()} == RAID_LEVELS[name]


WHERE = {
    "mpt3sas": {"sda": "local", "sdb": "local", "sdc": "local", "sdd": "local"},
    "qla2xxx": {"sda": "array", "sdb": "array"},
    "iscsi_tcp": {"sda": "array"},
    "vsan_iscsi": {"sda": "array"},
    "msa_sas": {"sda": "array", "sdb": "array"},
    "nvme": {"nvme0n1": "local"},
    "nvme_fabric": {"nvme0c0n1": "fabric", "nvme0n1": "fabric"},
    "nvme_cloud": {"nvme0n1": "virtual", "nvme1n1": "local"},
    "virtio_scsi": {"sda": "virtual"},
    "vmware_lsi": {"sda": "virtual"},
}


@pytest.mark.parametrize("name", WHERE)
def test_endpoints_report_storage(surveyed: Survey, name: str) -> None:
    endpoints = surveyed(name).endpoints
    assert {disk: str(endpoint.storage) for disk, endpoint in endpoints.items()} == WHERE[name]


def test_depth_caps_follow_drivers(surveyed: Survey) -> None:
    caps = {
        name: surveyed(name).endpoints["sda"].depth_cap for name in ("mptspi", "arcmsr", "ibmvscsi")
    }
    assert caps == {"mptspi": 64, "arcmsr": 128, "ibmvscsi": 64}
    assert surveyed("libsas").endpoints["sdb"].depth_cap == 31


def planned(described: Surveyed, effect: Effect) -> dict[str, Row]:
    rows = make_plan(described.machine, wishes("queue_depth", effect)).rows
    return {row.target: row for row in rows}


def test_harmful_depth_is_fixed(surveyed: Survey) -> None:
    rows = planned(surveyed("aacraid"), Exactly(100))
    assert (rows["sda"].state, rows["sda"].value) == (State.DRIFT, 100)
    for disk in ("sdb", "sdc"):
        assert rows[disk].state is State.FIXED
        assert "one command" in describe_limit(rows[disk].limit)
    rows = planned(surveyed("ipr"), Exactly(64))
    assert {disk: row.state for disk, row in rows.items()} == {
        "sda": State.DRIFT,
        "sdb": State.DRIFT,
        "sdc": State.FIXED,
    }


def test_throttled_megaraid_is_fixed(surveyed: Survey) -> None:
    throttled, healthy = surveyed("megaraid_throttled"), surveyed("megaraid_sas")
    for row in planned(throttled, Exactly(128)).values():
        assert row.state is State.FIXED
        assert "16 commands" in describe_limit(row.limit)
    assert {row.value for row in planned(healthy, Exactly(128)).values()} == {128}


def test_only_pre_sas35_clamps_sata(surveyed: Survey) -> None:
    old, new = surveyed("mpt3sas_9300").endpoints, surveyed("mpt3sas").endpoints
    assert (old["sda"].depth_cap, old["sdb"].depth_cap) == (32, 4096)
    assert (new["sdb"].depth_cap, new["sda"].depth_cap) == (4096, 4096)


def test_container_depth_cap_is_256(surveyed: Survey) -> None:
    assert surveyed("aacraid").endpoints["sda"].depth_cap == 256


@pytest.mark.parametrize("name", ["smartpqi", "qla1280", "aic7xxx", "sym53c8xx"])
def test_read_only_depth_is_fixed(surveyed: Survey, name: str) -> None:
    rows = planned(surveyed(name), AtLeast(5000))
    assert {row.state for row in rows.values()} == {State.FIXED}
    options = {"aic7xxx": "aic7xxx", "sym53c8xx": "cmd_per_lun"}
    reason = f"; its module's option {options[name]} sets it" if name in options else ""
    assert all(
        describe_limit(row.limit).startswith(f"read-only in this driver{reason}")
        for row in rows.values()
    )
    assert all(("option" in describe_limit(row.limit)) is bool(reason) for row in rows.values())


def test_missing_and_slow_links_show(surveyed: Survey) -> None:
    assert surveyed("lpfc_lp10000").adapter.link is None
    link = surveyed("ipr_gen1").adapter.link
    assert link is not None
    assert (link.speed, link.max_speed) == (2.5, 8.0)


def test_mixed_map_has_both_adapters(surveyed: Survey) -> None:
    described = surveyed("fc_multipath")
    assert {adapter.family for adapter in described.machine.adapters} == {"qla2xxx", "lpfc"}
    paths = [endpoint for endpoint in described.machine.endpoints if endpoint.kind is Kind.PATH]
    assert [path.family for path in paths] == ["qla2xxx", "lpfc"]


def test_families_have_machines_with_reasons() -> None:
    for family in families():
        describe(family.name)
    assert set(MACHINES) <= {family.name for family in families()}
    assert all(build.__doc__ for build in NAMED.values())
