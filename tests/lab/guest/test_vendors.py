"""What vendors ask for is set on real drivers, and all of it is put back."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.kit import scsi_disks, settle
from tests.lab.guest.values import BLOCK, cat, disks, everything, nvme_queues

KERNELS = ("6.12",)
RULES = Path("/etc/hbatune/rules.d/times.toml")
TIMES = """
[[rule]]
name = "scsi-time"
setting = "timeout"
value = 61
because = "a test"
source = "site"

[[rule]]
name = "nvme-time"
when = { protocol = "nvme" }
setting = "io_timeout"
value = 4294967295
because = "a test"
source = "site"

[[rule]]
name = "turns"
when = { kind = "map", multipath = "nvme" }
setting = "iopolicy"
value = "round-robin"
because = "a test"
source = "site"

[[rule]]
name = "whole-attempts"
when = { transport = "tcp" }
setting = "ctrl_loss_tmo"
value = 601
because = "a test"
source = "site"
"""
NVMET = Path("/sys/kernel/config/nvmet")
APPLY = ("apply", "--profile", "oltp", "--once", "--no-probe", "--json")


@pytest.fixture
def times() -> Iterator[None]:
    """A site's own rules for times and paths."""
    RULES.parent.mkdir(parents=True, exist_ok=True)
    RULES.write_text(TIMES)
    yield
    RULES.unlink()


@pytest.fixture
def array(tmp_path: Path) -> Iterator[str]:
    """An array over NVMe that calls itself one of VAST's, and the name of its controller."""
    subprocess.run(["modprobe", "-a", "nvmet-tcp", "nvme-tcp"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if not NVMET.is_dir():
        subprocess.run(["mount", "-t", "configfs", "none", "/sys/kernel/config"], check=True)
    backing = tmp_path / "array"
    backing.write_bytes(bytes(16 << 20))
    system, port = NVMET / "subsystems/array", NVMET / "ports/1"
    space = system / "namespaces/1"
    for folder in (system, space, port):
        folder.mkdir()
    for file, text in (
        (system / "attr_model", "VASTData"),
        (system / "attr_allow_any_host", "1"),
        (space / "device_path", str(backing)),
        (space / "enable", "1"),
        (port / "addr_trtype", "tcp"),
        (port / "addr_adrfam", "ipv4"),
        (port / "addr_traddr", "127.0.0.1"),
        (port / "addr_trsvcid", "4420"),
    ):
        file.write_text(text)
    link = port / "subsystems/array"
    link.symlink_to(system)
    fabrics = os.open("/dev/nvme-fabrics", os.O_RDWR)
    os.write(fabrics, b"transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=array")
    name = f"nvme{os.read(fabrics, 64).decode().partition('instance=')[2].partition(',')[0]}"
    os.close(fabrics)
    settle()
    yield name
    (Path("/sys/class/nvme") / name / "delete_controller").write_text("1")
    settle()
    link.unlink()
    for folder in (port, space, system):
        folder.rmdir()


def of(controller: str, name: str) -> str:
    return (Path("/sys/class/nvme") / controller / name).read_text().strip()


def head(controller: str) -> str:
    """Return the visible disk above a controller's hidden path."""
    serial = of(controller, "serial")
    [visible_disk] = [
        disk
        for disk in disks()
        if (BLOCK / disk / "../iopolicy").exists() and cat(disk, "../serial") == serial
    ]
    return visible_disk


def test_timeouts_and_iopolicy_round_trip(times: None, array: str) -> None:
    before = everything()
    visible_disk = head(array)
    [drive] = [disk for disk in nvme_queues() if re.fullmatch(r"nvme\d+n\d+", disk)]
    scsi = scsi_disks("megaraid_sas")
    done = hbatune(*APPLY, *scsi, drive, visible_disk, array)
    assert done.code == 0, done.out + done.err
    for disk in scsi:
        assert done.row(disk, "timeout")["outcome"] == "written"
        assert cat(disk, "device/timeout") == "61"
        assert cat(disk, "queue/io_timeout") == "61000", "one value in two units"
    never = done.row(drive, "io_timeout")
    assert (never["value"], never["outcome"]) == (4_294_967_295, "written")
    assert int(cat(drive, "queue/io_timeout")) > 1 << 31
    assert done.row(visible_disk, "iopolicy")["outcome"] == "written"
    assert cat(visible_disk, "../iopolicy") == "round-robin"
    loss = done.row(array, "ctrl_loss_tmo")
    assert (loss["wanted"], loss["value"], loss["outcome"]) == (601, 610, "written")
    assert of(array, "ctrl_loss_tmo") == "610", "as the kernel rounds it"
    assert hbatune("rollback").code == 0
    assert of(array, "ctrl_loss_tmo") == "600"
    assert everything() == before


def test_followed_vendor_advice_is_reverted(array: str) -> None:
    before = everything()
    visible_disk = head(array)
    configure('[site]\nvendors = "advise"\n')
    diff = hbatune("diff", "--profile", "oltp", "--json", visible_disk, array)
    stances = {(item["target"], item["rule"]): item["stance"] for item in diff.json["advice"]}
    assert stances == {(array, "vast-loss"): "open", (visible_disk, "vast-iopolicy"): "open"}
    assert not diff.rows(setting="ctrl_loss_tmo")
    configure('[site]\nvendors = "follow"\n')
    done = hbatune(*APPLY, visible_disk, array)
    assert done.code == 0, done.out + done.err
    assert (of(array, "ctrl_loss_tmo"), cat(visible_disk, "../iopolicy")) == ("off", "round-robin")
    assert hbatune("rollback").code == 0
    configure("")
    assert of(array, "ctrl_loss_tmo") == "600"
    assert everything() == before
