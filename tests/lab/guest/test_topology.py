"""The lab shows what it promises: each adapter behind its real driver, with its disks."""

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.guest.kit import SYS, cat, disks, scsi_disks


@pytest.mark.parametrize(
    ("driver", "functions"),
    [
        ("megaraid_sas", 1),
        ("mptsas", 1),
        ("sym53c8xx", 1),
        ("nvme", 3),
        ("vmw_pvscsi", 1),
        ("ahci", 1),
    ],
)
def test_pci_driver_serves_functions(driver: str, functions: int) -> None:
    bound = [path for path in (SYS / "bus/pci/drivers" / driver).iterdir() if ":" in path.name]
    assert len(bound) == functions


def test_virtio_scsi_has_two_queues() -> None:
    (disk,) = scsi_disks("virtio_scsi")
    assert sorted(path.name for path in (SYS / "block" / disk / "mq").iterdir()) == ["0", "1"]


def test_scsi_hosts_serve_disks() -> None:
    drivers = ["megaraid_sas", "mptsas", "sym53c8xx", "vmw_pvscsi", "virtio_scsi", "ahci"]
    disk_counts = Counter({driver: len(scsi_disks(driver)) for driver in drivers})
    assert disk_counts == {
        "megaraid_sas": 2,
        "mptsas": 2,
        "sym53c8xx": 1,
        "vmw_pvscsi": 1,
        "virtio_scsi": 1,
        "ahci": 1,
    }


def test_megaraid_has_ssd_and_hdd() -> None:
    media = {
        (cat(f"block/{disk}/device/vendor").strip(), cat(f"block/{disk}/queue/rotational"))
        for disk in scsi_disks("megaraid_sas")
    }
    assert media == {("ATA", "0"), ("SEAGATE", "1")}


def test_mptsas_has_ssd_and_hdd() -> None:
    assert len(list((SYS / "class/sas_end_device").iterdir())) == 2
    assert {cat(f"block/{disk}/queue/rotational") for disk in scsi_disks("mptsas")} == {"0", "1"}


def test_shared_namespace_has_two_paths() -> None:
    hidden = [disk for disk in disks() if cat(f"block/{disk}/hidden") == "1"]
    heads = [disk for disk in disks() if (SYS / "block" / disk).resolve().match("*/nvme-subsys*/*")]
    assert len(hidden) == 2
    assert len(heads) == 1
    assert heads[0] in {path.replace("c0", "").replace("c1", "") for path in hidden}


def test_lone_nvme_has_pcie_link() -> None:
    speeds = [
        path.read_text().strip()
        for path in SYS.glob("class/nvme/*/device/current_link_speed")
        if "GT/s" in path.read_text()
    ]
    assert speeds


def test_reads_return_data(tmp_path: Path) -> None:
    for disk in [disk for disk in disks() if disk.startswith(("sd", "nvme"))]:
        if cat(f"block/{disk}/hidden") == "0":
            with Path("/dev", disk).open("rb") as device:
                device.seek(4 << 20)
                assert any(device.read(4096)), disk


def test_scsi_debug_makes_requested_disks(scsi_debug: Callable[..., list[str]]) -> None:
    before = set(disks())
    created_disks = scsi_debug(max_luns=4, dev_size_mb=8)
    assert len(created_disks) == 4
    assert set(disks()) - before == set(created_disks)


@pytest.mark.parametrize("program", ["fio", "nvme", "lsscsi", "multipath", "strace", "bpftrace"])
def test_guest_has_program(program: str) -> None:
    assert subprocess.run(["which", program], check=False).returncode == 0


@pytest.mark.parametrize("unit", ["tuned", "irqbalance", "multipathd"])
def test_competing_units_are_inactive(unit: str) -> None:
    state = subprocess.run(
        ["systemctl", "is-active", unit], capture_output=True, text=True, check=False
    )
    assert state.stdout.strip() == "inactive"


def test_hbatune_is_installed() -> None:
    version = subprocess.run(["hbatune", "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("hbatune ")
