"""A daemon on a machine with a 9600: what the card and its driver do is seen and repaired.

The firmware is updated, the card resets itself, a drive is plugged in, or its queue is full.
"""

import os
from collections.abc import Iterable, Iterator

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import settle, wait_a_moment
from tests.lab.guest.service import QUICK, QUIET, Journal, restarted, running
from tests.lab.guest.tri_mode import OWN, Card, busy
from tests.lab.guest.values import disks, put

KERNELS = ("6.1", "newest")
TOPOLOGY = "tri-mode"
SAS = "vendor=SEAGATE,product=XS960SE70084,rotation_rate=1"
SITE = '[site]\nexclude = ["vda", "vdb"]\n'
TIMES = 3
"""The daemon repairs a value twice if another tool sets it back, and then leaves it. A third repair
shows that it distinguishes the driver's resets."""
_MAJOR = int(os.uname().release.partition(".")[0])


@pytest.fixture(scope="module")
def card() -> Iterator[Card]:
    """The card, with a daemon that makes no audits: it handles events, and looks at depths."""
    with running(f"{SITE}{QUIET}"), Card() as tri_mode_card:
        yield tri_mode_card


def find_raised() -> dict[str, int]:
    """Return the depths that the profile raises."""
    raised = {disk: depth for disk, depth in tri_mode.depths().items() if depth != OWN}
    assert len(raised) == 4
    return raised


def update_firmware(card: Card, disks: Iterable[str]) -> None:
    """Have the depths reset without an event, as the driver does when the firmware reports changes.

    Linux 7's driver takes that report for a line of a log and resets nothing
    (drivers/scsi/mpi3mr/mpi3mr_os.c: mpi3mr_os_handle_events). The test writes the depths there.
    """
    card.inform()
    if _MAJOR >= 7:
        for disk in disks:
            put(disk, "device/queue_depth", str(OWN))


def wait_for_depths(wanted: dict[str, int]) -> None:
    """Wait for the depths; the harness ends a test that waits too long."""
    while not wanted.items() <= tri_mode.depths().items():
        wait_a_moment()


def assert_nothing_is_open() -> None:
    """Assert that the daemon leaves nothing open."""
    status = hbatune("status", "--json")
    assert status.json["status"]["open"] == [], status.out


@pytest.mark.deadline(600)
def test_silent_firmware_updates_are_repaired(card: Card) -> None:
    wanted = find_raised()
    with Journal() as journal, busy(*wanted):
        for _ in range(TIMES):
            update_firmware(card, wanted)
            journal.until_all_set(wanted, "queue_depth")
            wait_for_depths(wanted)
    assert_nothing_is_open()


def test_hotplug_tunes_and_forgets_drive(card: Card) -> None:
    wanted, before = find_raised(), set(disks())
    card.plug(7, f"{SAS},serial=HOT7")
    while not (new := set(disks()) - before):
        wait_a_moment()
    settle()
    wait_for_depths(dict.fromkeys(new, 64))
    card.pull(7)
    while set(disks()) != before:
        wait_a_moment()
    with Journal() as journal:
        update_firmware(card, wanted)
        journal.until_all_set(wanted, "queue_depth")
    assert_nothing_is_open()


@pytest.mark.deadline(600)
def test_repeated_resets_are_repaired(card: Card) -> None:
    wanted = find_raised()
    with Journal() as journal, busy(*wanted):
        for _ in range(TIMES):
            card.fail()
            journal.until_all_set(wanted, "queue_depth")
            wait_for_depths(wanted)
    assert_nothing_is_open()


@pytest.mark.deadline(600)
def test_full_drive_follows_driver_ramp(card: Card) -> None:
    wanted = find_raised()
    disk = tri_mode.of("SEAGATE")[0]
    with restarted(f"{SITE}{QUICK}"), Journal() as journal:
        card.set("full_at", 8)
        try:
            with busy(disk, rate=""):
                entry = journal.until_set(disk, "queue_depth")
        finally:
            card.set("full_at", 0)
        assert "the device's queue was full at depth" in entry["MESSAGE"]
        assert "prevents this" in entry["MESSAGE"]
        assert OWN != tri_mode.depths()[disk] < wanted[disk], "it is not fought"
        [change] = hbatune("status", "--json").json["status"]["open"]
        assert (change["target"], change["handled"]) == (disk, "ramping")
        assert hbatune("apply", "--no-probe", disk).code == 0
        assert tri_mode.depths()[disk] == wanted[disk]
