"""A 9600 whose firmware is updated, or that gets another drive: the daemon sees it."""

from collections.abc import Iterator

import pytest

from tests.lab.guest.kit import settle, wait_a_moment
from tests.lab.guest.service import Journal
from tests.lab.guest.tri_mode import Card, busy
from tests.lab.guest.tri_mode_daemon import (
    TIMES,
    find_raised,
    guarded_card,
    nothing_given_up,
    until_right,
    update_firmware,
)
from tests.lab.guest.values import disks

TOPOLOGY = "tri-mode"
SAS = "vendor=SEAGATE,product=XS960SE70084,rotation_rate=1"


@pytest.fixture(scope="module")
def card() -> Iterator[Card]:
    with guarded_card() as tri_mode_card:
        yield tri_mode_card


@pytest.mark.deadline(600)
def test_silent_firmware_updates_are_repaired(card: Card) -> None:
    wanted = find_raised()
    with Journal() as journal, busy(*wanted):
        for _ in range(TIMES):
            update_firmware(card, wanted)
            journal.until_all_set(wanted, "queue_depth")
            until_right(wanted)
    nothing_given_up()


def test_hotplug_tunes_and_forgets_drive(card: Card) -> None:
    wanted, before = find_raised(), set(disks())
    card.plug(7, f"{SAS},serial=HOT7")
    while not (new := set(disks()) - before):
        wait_a_moment()
    settle()
    until_right(dict.fromkeys(new, 64))
    card.pull(7)
    while set(disks()) != before:
        wait_a_moment()
    with Journal() as journal:
        update_firmware(card, wanted)
        journal.until_all_set(wanted, "queue_depth")
    nothing_given_up()
