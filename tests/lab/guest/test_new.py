"""New is what the kernel numbers anew, and not what udev announces once more."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.guest import appear, initramfs, reboots
from tests.lab.guest.boot import RULES, SITE_RULES, database, installed_for
from tests.lab.guest.command import hbatune, installed
from tests.lab.guest.daemon_host import reload_until_reported
from tests.lab.guest.kit import (
    SCSI_DEBUG,
    scsi_disks,
    settle,
    udev_paused,
    wait_a_moment,
)
from tests.lab.guest.service import (
    QUIET,
    UNIT,
    Journal,
    announce,
    is_active,
    running,
    systemctl,
    without_rules,
)
from tests.lab.guest.values import BLOCK, cat, put, scheduler

KERNELS = ("newest",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}
LEFT_ALONE = f'{QUIET}drift = "ignore"\n'
Load = Callable[..., list[str]]


def tuned(disk: str) -> bool:
    """Whether the disk is as the profile oltp says."""
    return (scheduler(disk), cat(disk, "queue/nr_requests")) == ("mq-deadline", "2048")


def coldplug() -> None:
    """Have udev announce every adapter and disk, as an administrator may at any time.

    The coldplug of a boot has all other devices, too (``test_initramfs_disk_tuned_once``).
    """
    subsystems = [f"--subsystem-match={name}" for name in ("pci", "scsi*", "nvme*", "block")]
    subprocess.run(["udevadm", "trigger", "--action=add", *subsystems], check=True)
    settle()


def wait_for_scan(journal: Journal) -> None:
    """Wait until the daemon has handled all earlier events."""
    journal.reload()


def test_daemon_preserves_administrator_value(scsi_debug: Load) -> None:
    [disk] = scsi_debug(**LUN)
    with running(LEFT_ALONE), without_rules(), Journal() as journal:
        assert tuned(disk)
        put(disk, "queue/nr_requests", "100")
        coldplug()
        wait_for_scan(journal)
        assert cat(disk, "queue/nr_requests") == "100"
        systemctl("restart", UNIT)
        assert cat(disk, "queue/nr_requests") == "100", "another daemon knows it, too"
        again = appear.again(appear.Rescan())
        journal.until_set(again, "nr_requests")
        assert tuned(again), "it is another one to the kernel"


def test_rules_preserve_administrator_value(scsi_debug: Load) -> None:
    """The rules have never been through with the earlier disk."""
    [earlier] = scsi_debug(**LUN)
    with installed_for("oltp") as done:
        assert done.code == 0, done.out + done.err
        assert hbatune("apply", "--no-probe").code == 0
        (SCSI_DEBUG / "add_host").write_text("1")
        while len(disks := scsi_disks("scsi_debug")) < 2:
            wait_a_moment()
        settle()
        [later] = {*disks} - {earlier}
        assert database(later)["HBATUNE_SEEN"] == cat(later, "diskseq")
        for disk in disks:
            assert tuned(disk)
            put(disk, "queue/nr_requests", "100")
            announce(disk)
        coldplug()
        assert [cat(disk, "queue/nr_requests") for disk in disks] == ["100", "100"]
        (SCSI_DEBUG / "add_host").write_text("-1")
        settle()
        assert tuned(appear.again(appear.Rescan()))


def test_table_reload_preserves_administrator_value(joined: tuple[str, list[str]]) -> None:
    """It resets the map's limits, and those are put right; nr_requests it leaves."""
    name, _ = joined
    appear.SITE.parent.mkdir(parents=True, exist_ok=True)
    appear.SITE.write_text(appear.ON_MAPS)
    try:
        with running(LEFT_ALONE), Journal() as journal:
            put(name, "queue/nr_requests", "64")
            reloaded = appear.Reloaded(name)
            appear.again(reloaded)
            wait_for_scan(journal)
            appear.wait_until_right(reloaded, name)
            assert cat(name, "queue/nr_requests") == "64"
            with without_rules():
                reload_until_reported(reloaded, name, journal)
            assert cat(name, "queue/nr_requests") == "64"
    finally:
        appear.SITE.unlink()


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
        assert tuned(disk), "at the coldplug behind the initramfs"
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


def test_missing_program_is_recorded() -> None:
    with installed_for("oltp") as done:
        assert done.code == 0, done.out + done.err
        program = Path("/etc/udev/hbatune-write.sh")
        text = program.read_text()
        program.unlink()
        words = [f"{name}={value}" for name, value in LUN.items()]
        try:
            with udev_paused():
                subprocess.run(["modprobe", "scsi_debug", *words], check=True)
                while not (disks := scsi_disks("scsi_debug")):
                    wait_a_moment()
                put(disks[0], "device/state", "offline\n")  # udev itself writes to a running disk
            assert database(disks[0])["HBATUNE_UNSET"] == "unstarted"
        finally:
            subprocess.run(["modprobe", "--remove", "scsi_debug"], check=True)
            program.write_text(text)
    assert not program.exists(), "an uninstallation removes it"
    assert not RULES.exists()
    assert not SITE_RULES.exists()
