"""A disk that udev knows from the initramfs is set once, at the coldplug of the root's udev."""

import subprocess
from pathlib import Path

import pytest

from tests.lab.guest import initramfs, reboots
from tests.lab.guest.boot import database
from tests.lab.guest.command import hbatune, installed
from tests.lab.guest.daemon_host import by_profile
from tests.lab.guest.kit import coldplug
from tests.lab.guest.service import UNIT, is_active, systemctl
from tests.lab.guest.values import BLOCK, cat, put

KERNELS = ("newest",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")


@pytest.mark.deadline(900)
def test_initramfs_disk_tuned_once() -> None:
    """Its driver is loaded and udev knows the disk before the root's own udev begins."""
    state = reboots.take_state()
    if not state:
        hbatune("uninstall")
        initramfs.install("scsi_debug", "max_luns=1", "num_tgts=1", "max_queue=192")
        done = installed("install", "--profile", "oltp")
        assert done.code == 0, done.out + done.err
        systemctl("disable", UNIT)
        reboots.reboot(stage="installed")
    try:
        *properties, requests = initramfs.read_disk_properties()
        assert any(line.startswith("USEC_INITIALIZED=") for line in properties), "udev has seen it"
        assert not any(line.startswith("HBATUNE") for line in properties)
        assert requests != "2048"
        [disk] = [path.name for path in BLOCK.glob("sd*") if _is_debug(path)]
        assert not is_active()
        assert by_profile(disk), "at the coldplug behind the initramfs"
        assert database(disk)["HBATUNE_SEEN"] == cat(disk, "diskseq")
        assert database(disk)["HBATUNE_WAS_NR_REQUESTS"] == requests
        put(disk, "queue/nr_requests", "100")
        coldplug()
        assert cat(disk, "queue/nr_requests") == "100", "and never again"
    finally:
        initramfs.remove()
        assert hbatune("uninstall").code == 0
        subprocess.run(["modprobe", "--remove", "scsi_debug"], check=False)


def _is_debug(disk: Path) -> bool:
    return (disk / "device/model").read_text().strip() == "scsi_debug"
