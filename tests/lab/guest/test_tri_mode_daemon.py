"""A 9600 that resets itself, changes its mind, is full, or gets another drive: the daemon sees."""

import os
from collections.abc import Iterator

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import settle
from tests.lab.guest.service import QUICK, QUIET, Journal, restarted, running
from tests.lab.guest.tri_mode import OWN, Card, busy
from tests.lab.guest.values import disks

KERNELS = ("6.12",)
TOPOLOGY = "tri-mode"
TIMES = 5
"""More often than what somebody sets back is repaired before it is left."""
SAS = "vendor=SEAGATE,product=XS960SE70084,rotation_rate=1"


@pytest.fixture(scope="module")
def daemon() -> Iterator[None]:
    """A daemon without audits: what is repaired is repaired upon an event, or a look at depths."""
    with running(f'[site]\nexclude = ["vda", "vdb"]\n{QUIET}'):
        yield


@pytest.fixture
def card(daemon: None) -> Iterator[Card]:
    with Card() as tri_mode_card:
        yield tri_mode_card


@pytest.fixture
def wanted(daemon: None) -> dict[str, int]:
    """The depths that the profile raises."""
    raised = {disk: depth for disk, depth in tri_mode.depths().items() if depth != OWN}
    assert len(raised) == 4
    return raised


def until_right(wanted: dict[str, int]) -> None:
    """Wait for the depths; the harness ends a test that waits too long."""
    while not wanted.items() <= tri_mode.depths().items():
        os.sched_yield()


def nothing_given_up() -> None:
    status = hbatune("status", "--json")
    assert status.json["status"]["open"] == [], status.out


@pytest.mark.deadline(600)
def test_repeated_resets_are_repaired(card: Card, wanted: dict[str, int]) -> None:
    with Journal() as journal, busy(*wanted):
        for _ in range(TIMES):
            card.fail()
            journal.until_all_set(wanted, "queue_depth")
            until_right(wanted)
    nothing_given_up()


@pytest.mark.deadline(600)
def test_silent_firmware_updates_are_repaired(card: Card, wanted: dict[str, int]) -> None:
    with Journal() as journal, busy(*wanted):
        for _ in range(TIMES):
            card.inform()
            journal.until_all_set(wanted, "queue_depth")
            until_right(wanted)
    nothing_given_up()


def test_hotplug_tunes_and_forgets_drive(card: Card, wanted: dict[str, int]) -> None:
    before = set(disks())
    card.plug(7, f"{SAS},serial=HOT7")
    while not (new := set(disks()) - before):
        os.sched_yield()
    settle()
    until_right(dict.fromkeys(new, 64))
    card.pull(7)
    while set(disks()) != before:
        os.sched_yield()
    with Journal() as journal:
        card.inform()
        journal.until_all_set(wanted, "queue_depth")
    nothing_given_up()


@pytest.mark.deadline(600)
def test_full_drive_follows_driver_ramp(card: Card, wanted: dict[str, int]) -> None:
    disk = tri_mode.of("SEAGATE")[0]
    with restarted(f'[site]\nexclude = ["vda", "vdb"]\n{QUICK}'), Journal() as journal:
        card.set("full_at", 8)
        try:
            with busy(disk, rate=""):
                entry = journal.until_set(disk, "queue_depth")
        finally:
            card.set("full_at", 0)
        assert "the device was full at depth" in entry["MESSAGE"]
        assert "keeps the device from being full" in entry["MESSAGE"]
        assert OWN != tri_mode.depths()[disk] < wanted[disk], "it is not fought"
        [change] = hbatune("status", "--json").json["status"]["open"]
        assert (change["target"], change["handled"]) == (disk, "ramping")
        assert hbatune("apply", "--no-probe", disk).code == 0
        assert tri_mode.depths()[disk] == wanted[disk]
