"""A 9600 that resets itself or is full: the daemon sees what the driver has done by itself."""

from collections.abc import Iterator

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.lab.guest.service import QUICK, Journal, restarted
from tests.lab.guest.tri_mode import OWN, Card, busy
from tests.lab.guest.tri_mode_daemon import (
    SITE,
    TIMES,
    find_raised,
    guarded_card,
    nothing_given_up,
    until_right,
)

KERNELS = ("newest",)
TOPOLOGY = "tri-mode"


@pytest.fixture(scope="module")
def card() -> Iterator[Card]:
    with guarded_card() as tri_mode_card:
        yield tri_mode_card


@pytest.mark.deadline(600)
def test_repeated_resets_are_repaired(card: Card) -> None:
    wanted = find_raised()
    with Journal() as journal, busy(*wanted):
        for _ in range(TIMES):
            card.fail()
            journal.until_all_set(wanted, "queue_depth")
            until_right(wanted)
    nothing_given_up()


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
