"""New is what the kernel numbers anew, and not what udev announces once more."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from hbatune.act.paths import Paths
from tests.lab.guest import appear
from tests.lab.guest.boot import RULES, database, missing_program
from tests.lab.guest.command import hbatune
from tests.lab.guest.daemon_host import by_profile, reload_until_reported
from tests.lab.guest.kit import (
    SCSI_DEBUG,
    add_host,
    coldplug,
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
    running,
    systemctl,
    without_rules,
)
from tests.lab.guest.values import cat, put

pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}
LEFT_ALONE = f'{QUIET}drift = "ignore"\n'
Load = Callable[..., list[str]]


def wait_for_scan(journal: Journal) -> None:
    """Wait until the daemon has handled all earlier events."""
    journal.reload()


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    """hbatune installed with its daemon."""
    with running(LEFT_ALONE):
        yield
    assert not Paths.udev_writer.exists(), "an uninstallation removes it"
    assert not RULES.exists()


@pytest.fixture(scope="module")
def machine_without_daemon(machine: None) -> None:
    """The same with its daemon stopped, for all later tests."""
    systemctl("stop", UNIT)


def test_daemon_preserves_administrator_value(machine: None, scsi_debug: Load) -> None:
    [disk] = scsi_debug(**LUN)
    with without_rules(), Journal() as journal:
        wait_for_scan(journal)
        assert by_profile(disk)
        put(disk, "queue/nr_requests", "100")
        coldplug()
        wait_for_scan(journal)
        assert cat(disk, "queue/nr_requests") == "100"
        systemctl("restart", UNIT)
        assert cat(disk, "queue/nr_requests") == "100", "another daemon knows it, too"
        again = appear.again(appear.Rescan())
        journal.until_set(again, "nr_requests")
        assert by_profile(again), "it is another one to the kernel"


def test_rules_preserve_administrator_value(machine_without_daemon: None, scsi_debug: Load) -> None:
    """The rules have never been through with the earlier disk."""
    with without_rules():
        [earlier] = scsi_debug(**LUN)
    assert hbatune("apply", "--no-probe", earlier).code == 0
    later = add_host()
    assert database(later)["HBATUNE_SEEN"] == cat(later, "diskseq")
    for disk in (earlier, later):
        assert by_profile(disk)
        put(disk, "queue/nr_requests", "100")
        announce(disk)
    coldplug()
    assert [cat(disk, "queue/nr_requests") for disk in (earlier, later)] == ["100", "100"]
    (SCSI_DEBUG / "add_host").write_text("-1")
    settle()
    assert by_profile(appear.again(appear.Rescan()))


def test_missing_program_is_recorded(machine_without_daemon: None) -> None:
    words = [f"{name}={value}" for name, value in LUN.items()]
    with missing_program():
        try:
            with udev_paused():
                subprocess.run(["modprobe", "scsi_debug", *words], check=True)
                while not (disks := scsi_disks("scsi_debug")):
                    wait_a_moment()
                put(disks[0], "device/state", "offline\n")  # udev itself writes to a running disk
            assert database(disks[0])["HBATUNE_UNSET"] == "unstarted"
        finally:
            subprocess.run(["modprobe", "--remove", "scsi_debug"], check=True)


def test_table_reload_preserves_administrator_value(
    machine: None, joined: tuple[str, list[str]]
) -> None:
    """It resets the map's limits, and those are put right; nr_requests it leaves."""
    name, _ = joined
    systemctl("start", UNIT)
    appear.SITE.parent.mkdir(parents=True, exist_ok=True)
    appear.SITE.write_text(appear.ON_MAPS)
    try:
        with Journal() as journal:
            assert hbatune("apply", "--no-probe").code == 0
            journal.until_reloaded()
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
