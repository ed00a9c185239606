"""What `oltp` plans on every described machine: the table of the documents' advice, row by row.

Each row is (scheduler, nr_requests, queue_depth) as planned, None where there is no row at all
because the profile leaves it, ``EXCLUDED`` where the endpoint is, ``FIXED`` where nobody sets it.
"""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Machine, Missing, Reason
from hbatune.plan.make import make_plan
from hbatune.plan.module_options import plan_options
from hbatune.plan.rows import Row, State
from hbatune.policy.library import Library, list_profiles, load_profile
from hbatune.policy.profile import Profile
from hbatune.shipped import find_shipped
from tests.hosts.conftest import NAMED, Surveyed

Survey = Callable[[str], Surveyed]
Cell = str | int | None

EXCLUDED, FIXED = "excluded", "fixed"
LEFT = (None, None, None)


def local(depth: Cell = None) -> tuple[Cell, Cell, Cell]:
    """Return what a local disk gets: mq-deadline, 2048, and the depth."""
    return ("mq-deadline", 2048, depth)


def nvme(tags: int, depth: Cell = None) -> tuple[Cell, Cell, Cell]:
    """Return what NVMe gets: none, its tag set, and the depth."""
    return ("none", tags, depth)


OLTP: dict[str, dict[str, tuple[Cell, Cell, Cell]]] = {
    # NVMe, native
    "nvme": {"nvme0n1": nvme(1023)},
    # NVMe, native, over two controllers: the hidden paths have the queues
    "nvme_shared": {"nvme1c1n1": nvme(1023), "nvme1c2n1": nvme(1023), "nvme1n1": LEFT},
    # SAS SSD, SAS HDD, SATA and NVMe behind a tri-mode HBA; deeper than 32 and 64 stays
    "mpi3mr": {"sda": local(64), "sdb": local(), "sdc": local(32), "sdd": nvme(8000, 128)},
    "mpi3mr_flat": {
        "sda": local(64),
        "sdb": local(32),
        "sdc": nvme(8000, 128),
        "sdd": local(),
        "sde": LEFT,
    },
    "mpi3mr_megaraid": {"sda": local()},
    "mpt3sas": {"sda": local(254), "sdb": local(32), "sdc": nvme(9000, 128), "sdd": local()},
    "mpt3sas_9300": {"sda": local(32), "sdb": local(254)},
    "lowered_depths": {disk: local("excluded") for disk in ("sda", "sdb", "sdc")},
    "mpt2sas": {"sda": local()},
    "mptsas": {"sda": local()},
    "ahci": {"sda": local(31)},
    "ahci_noncq": {"sda": local(FIXED)},
    # RAID volumes: as the driver has it; drives beside them by what they are
    "megaraid_sas": {
        "sda": local(),
        "sdb": local(32),
        "sdc": nvme(975, 128),
        "sdd": local(),
        "sde": local(256),
    },
    "megaraid_throttled": {
        "sda": local(),
        "sdb": local(32),
        "sdc": nvme(975, FIXED),
        "sdd": local(),
        "sde": local(256),
    },
    "smartpqi": {
        "sda": local(FIXED),
        "sdb": local(FIXED),
        "sdc": nvme(1000, FIXED),
        "sdd": local(),
    },
    "hpsa": {"sda": local(), "sdb": local()},
    "aacraid": {"sda": local(), "sdb": local(), "sdc": local()},
    # ipr: D4-1 by the generation of the slot, and nothing for SATA
    "ipr": {"sda": local(16), "sdb": local(16), "sdc": local()},
    "ipr_gen1": {"sda": local(64), "sdb": local(64), "sdc": local()},
    "ipr_57b5": {"sda": local(64), "sdb": local(64), "sdc": local()},
    "ipr_57c4": {"sda": local(64), "sdb": local(64), "sdc": local()},
    # fabrics and maps: as they are
    "qla2xxx": {"sda": LEFT, "sdb": LEFT},
    "lpfc": {"sda": LEFT},
    "lpfc_lp10000": {"sda": LEFT},
    "iscsi_tcp": {"sda": LEFT},
    "fc_arrays": {"sda": LEFT, "sdb": LEFT, "sdc": LEFT},
    "fc_multipath": {"sda": LEFT, "sdb": LEFT, "dm-0": LEFT},
    # paths of one map are alike: as deep as both adapters go
    "mixed_multipath": {"sda": (None, None, 48), "sdb": (None, None, 48), "dm-0": LEFT},
    # parallel SCSI: read-only depths
    "qla1280": {"sda": local(31)},
    "aic7xxx": {"sda": local(8)},
    "sym53c8xx": {"sda": local(16)},
    # virtual disks: as they are
    "virtio_scsi": {"sda": LEFT},
    "virtio_blk": {"vda": LEFT},
    "vmw_pvscsi": {"sda": LEFT},
    "scsi_debug": {"sdk": LEFT},
    "mptspi": {"sda": local(64)},
    "arcmsr": {"sda": local()},
    "libsas": {"sda": local(250), "sdb": local(31)},
    "hv_storvsc": {"sda": LEFT},
    "xen_blkfront": {"xvda": LEFT},
    "ibmvscsi": {"sda": LEFT},
    # what looks like something else
    "vmware_lsi": {"sda": LEFT},
    "vmware_sata": {"sda": LEFT},
    "msa_sas": {"sda": LEFT, "sdb": LEFT},
    "serial_file": {"sda": local(256), "sdb": local(256)},
    "reserved_tags": {"sda": nvme(976, 128), "sdb": local(488)},
    "perc_h755n": {"sda": nvme(975, 128), "sdb": local(256), "sdc": local()},
    "nvme_fabric": {"nvme0c0n1": LEFT, "nvme0n1": LEFT},
    "nvme_hdd": {"nvme0n1": nvme(1023), "nvme1n1": local()},
    "nvme_cloud": {"nvme0n1": LEFT, "nvme1n1": nvme(1023)},
    "vsan_iscsi": {"sda": LEFT},
    "bridges": {"sda": LEFT, "sdb": LEFT},
    "areca_passthrough": {"sda": LEFT},
    # zoned and unknown: hands off; no rule is for what is unknown
    "zoned": {"sda": (EXCLUDED, EXCLUDED, None)},
    "stranger": {"sda": LEFT},
}


@pytest.fixture(scope="module")
def oltp(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    site: Path = tmp_path_factory.mktemp("etc")
    return load_profile("oltp", Library(find_shipped("rules"), site=site))


@pytest.mark.parametrize("name", NAMED)
def test_oltp_matches_table(surveyed: Survey, oltp: Profile, name: str) -> None:
    machine = surveyed(name).machine
    cells = {
        (row.target, row.setting): row.value
        if row.state in (State.OK, State.DRIFT)
        else str(row.state)
        for row in make_plan(machine, oltp).rows
    }
    assert name in OLTP, f"add the values that oltp gives to the disks of {name} to OLTP"
    settings = ("scheduler", "nr_requests", "queue_depth")
    values_by_target = {
        endpoint.target: tuple(cells.get((endpoint.target, setting)) for setting in settings)
        for endpoint in machine.endpoints
    }
    assert values_by_target == OLTP[name]


@pytest.mark.parametrize("name", NAMED)
def test_oltp_lowers_no_depth(surveyed: Survey, oltp: Profile, name: str) -> None:
    for row in make_plan(surveyed(name).machine, oltp).rows:
        if row.setting == "queue_depth" and isinstance(row.value, int):
            assert isinstance(row.current, int)
            assert row.value >= row.current


@pytest.mark.parametrize("name", NAMED)
def test_no_row_is_ok_without_value(surveyed: Survey, profiles: list[Profile], name: str) -> None:
    machine = surveyed(name).machine
    for profile in profiles:
        rows = [row for row in plan_all(machine, profile) if row.state is State.OK]
        assert [row for row in rows if row.current is None] == []
        unread_rows = plan_all(make_blind(machine), profile)
        assert [row for row in unread_rows if row.state is State.OK] == []


def plan_all(machine: Machine, profile: Profile) -> list[Row]:
    """Return the rows of settings and of module options."""
    options = plan_options(machine, profile, {})
    return [*make_plan(machine, profile).rows, *(planned.row for planned in options)]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> list[Profile]:
    """All shipped profiles, and so all shipped rules."""
    library = Library(find_shipped("rules"), site=tmp_path_factory.mktemp("etc"))
    return [load_profile(listed.name, library) for listed in list_profiles(library)]


def make_blind(machine: Machine) -> Machine:
    """Return the machine without the value of any attribute, option or interrupt."""
    unread = Missing(Reason.UNREADABLE, errno.EIO)
    endpoints = tuple(
        replace(endpoint, attributes=dict.fromkeys(endpoint.attributes, unread))
        for endpoint in machine.endpoints
    )
    controls = tuple(
        replace(control, attributes=dict.fromkeys(control.attributes, unread))
        for control in machine.controls
    )
    modules = tuple(
        replace(module, parameters=dict.fromkeys(module.parameters, unread))
        for module in machine.modules
    )
    return replace(machine, endpoints=endpoints, controls=controls, modules=modules, vectors=())
