"""Disks whose names are fillers, and disks without a PCI function: their ids and the advice."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hbatune.cli import main
from hbatune.facts.model import Endpoint, Storage
from tests.hosts import raid
from tests.hosts.machines import SERIAL_PAGE
from tests.hosts.namespace import gather_in
from tests.hosts.parts import flat
from tests.hosts.test_snapshot import recorded
from tests.hosts.tree import Controller, Described, Disk, Namespace

Built = Callable[[Described], Path]
Capture = Any

ZEROS, MAKERS_ZEROS = "naa.0000000000000000", "naa.5000c50000000000"
MMC, DASD = "platform/soc/mmc0/mmc0:0001", "css0/0.0.0015/0.0.3200"
APPLE = "platform/soc/393cc0000.nvme"


def filler_names() -> Described:
    """Drives whose world-wide names are zeros, in full or after the maker's number; made up."""
    function = raid.megaraid_sas().functions[0]
    first = flat("0:1:3:0", Disk("sda"), "SEAGATE", "256")
    luns = (
        replace(first, wwid=ZEROS),
        replace(first, address="0:1:4:0", disk=Disk("sdb"), wwid=ZEROS),
        replace(
            first,
            address="0:1:5:0",
            disk=Disk("sdc"),
            wwid=MAKERS_ZEROS,
            device={**first.device, "vpd_pg80": SERIAL_PAGE},
        ),
    )
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=luns),)),))


def no_functions() -> Described:
    """An eMMC, a DASD and the NVMe drive of an Apple machine.

    The files are those of drivers/mmc/core/mmc.c, drivers/s390/block/dasd_devmap.c and
    drivers/nvme/host/apple.c. Their values are made up.
    """
    drive = Controller(
        "nvme0",
        (Namespace(Disk("nvme0n1", scheduler="[none] mq-deadline", tags=64)),),
        "APPLE SSD AP0512Z",
        transport="apple-nvme",
    )
    return Described(
        elsewhere=((MMC, Disk("mmcblk0")), (DASD, Disk("dasda"))),
        device_files={
            MMC: {"name": "DG4064", "serial": "0x1c3f0a2b"},
            DASD: {"uid": "IBM.750000000DXF71.3200.40"},
        },
        platform=((APPLE, drive),),
    )


def gather(built: Built, machine: Described) -> dict[str, Endpoint]:
    return {endpoint.target: endpoint for endpoint in gather_in(built(machine)).endpoints}


def find_checks(folder: Path, target: str) -> set[str]:
    findings = json.loads((folder / "check.json").read_text())["findings"]
    return {finding["id"] for finding in findings if finding["target"] == target}


def test_fillers_are_no_names(built: Built, tmp_path: Path) -> None:
    machine = filler_names()
    ids = {name: disk.id.partition("@")[0] for name, disk in gather(built, machine).items()}
    assert ids == dict.fromkeys(("sda", "sdb"), "SEAGATE-MODEL") | {"sdc": "SEAGATE-MODEL-SER123"}


def test_kernels_serial_is_last_resort(built: Built) -> None:
    """Since Linux 7.2 a SCSI device has `serial`, which it reads from page 80h."""
    function = raid.megaraid_sas().functions[0]
    first = replace(flat("0:1:3:0", Disk("sda"), "SEAGATE", "256"), wwid=ZEROS)
    files = {**first.device, "serial": "SER456"}
    luns = (
        replace(first, device=files),
        replace(
            first,
            address="0:1:4:0",
            disk=Disk("sdb"),
            device={**files, "vpd_pg80": SERIAL_PAGE},
        ),
        replace(first, address="0:1:5:0", disk=Disk("sdc"), wwid="naa.5000c50012345678"),
    )
    host = replace(function.hosts[0], luns=luns)
    disks = gather(built, Described((replace(function, hosts=(host,)),)))
    assert {name: disk.id.partition("@")[0] for name, disk in disks.items()} == {
        "sda": "SEAGATE-MODEL-SER456",
        "sdb": "SEAGATE-MODEL-SER123",
        "sdc": "naa.5000c50012345678",
    }


def test_zero_names_give_no_multipath_advice(built: Built, tmp_path: Path) -> None:
    recorded(built, filler_names(), tmp_path)
    for target in ("sda", "sdb"):
        assert "no-name" in find_checks(tmp_path, target)
        assert "same-name" not in find_checks(tmp_path, target)
    assert "no-name" not in find_checks(tmp_path, "sdc")


def test_disks_without_adapter_have_serials(built: Built, tmp_path: Path, capsys: Capture) -> None:
    recorded(built, no_functions(), tmp_path)
    for target in ("mmcblk0", "dasda"):
        assert find_checks(tmp_path, target).isdisjoint({"no-name", "same-name"})
    assert main(["list", "--snapshot", str(tmp_path / "host.snapshot")]) == 0
    text = capsys.readouterr().out
    assert "over several adapters" not in text
    assert text.index("nvme0n1") < text.index("without an adapter") < text.index("dasda")


def test_names_of_cards_and_dasds(built: Built) -> None:
    disks = gather(built, no_functions())
    assert disks["mmcblk0"].id == "DG4064-0x1c3f0a2b@mmc0:0001"
    assert disks["mmcblk0"].model == "DG4064"
    assert disks["dasda"].id == "IBM.750000000DXF71.3200.40@0.0.3200"


def test_apple_nvme_is_local(built: Built) -> None:
    disk = gather(built, no_functions())["nvme0n1"]
    assert disk.storage is Storage.LOCAL
    assert disk.adapter == "nvme0"
