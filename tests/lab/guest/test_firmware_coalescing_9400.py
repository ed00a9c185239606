"""Interrupt coalescing in the firmware of a 9400, through its real driver: read, set, put back."""

import os
from collections.abc import Iterator

import pytest

from hbatune import mpi
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.firmware import (
    FIXED,
    OTHER_VERSION,
    OWN,
    SILENT,
    ask,
    coalescing,
    command,
    host,
    list_opened,
    opened,
    page,
    row,
)
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.main_job import CARD_ALONE
from tests.lab.guest.tri_mode import Card, busy, disks

KERNELS = ("6.12",)
TOPOLOGY = "hba-9400"


@pytest.fixture(autouse=True)
def card() -> Iterator[Card]:
    configure(CARD_ALONE)
    with Card() as card:
        yield card
    configure("")


def resets() -> int:
    """How often the driver has reset the card."""
    return int((host() / "ioc_reset_count").read_text())


def test_firmware_stays_closed_without_permission(card: Card) -> None:
    before = ask(card, "page_requests")
    assert list_opened("diff", "--profile", "oltp", host().name) == []
    assert row(command("diff"))["state"] == "absent"
    assert ask(card, "page_requests") == before


def test_coalescing_is_read_set_and_restored(card: Card) -> None:
    with opened("set"):
        before = ask(card, "page_requests")
        assert row(command("diff"))["current"] == "4/16"
        assert ask(card, "page_requests") == before + 2, "the header and the page"
        applied = row(command("apply", "--no-probe", "--once"))
        assert (applied["value"], applied["outcome"]) == ("4/16 off", "written")
        assert (coalescing(card), ask(card, "flags")) == (OWN, 0)
        assert row(command("diff"))["state"] == "ok"
        assert ask(card, "page_requests") == before + 8
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err
    assert (coalescing(card), ask(card, "flags")) == (OWN, 1)


def test_rollback_after_reset_writes_nothing(card: Card) -> None:
    with opened("set"):
        command("apply", "--no-probe", "--once")
        assert ask(card, "flags") == 0
        count = resets()
        with busy(*disks()):
            card.fail()
            while resets() == count:
                wait_a_moment()
        before = ask(card, "page_requests")
        assert row(command("rollback"))["outcome"] == "kept"
        assert ask(card, "page_requests") == before + 2
    assert ask(card, "flags") == 1


def test_driver_refuses_during_reset(card: Card) -> None:
    count, before = resets(), ask(card, "page_requests")
    sysfs, log = str(host()), os.open("/dev/kmsg", os.O_RDONLY)
    os.lseek(log, 0, os.SEEK_END)
    card.fail()
    # Before that, the driver would wait for the firmware; it takes 50 ms at least.
    while b"sending diag reset" not in os.read(log, 8192):
        pass
    with pytest.raises(BlockingIOError):  # EAGAIN
        mpi.read_page(sysfs)
    os.close(log)
    assert ask(card, "page_requests") == before
    while resets() == count:
        wait_a_moment()


@pytest.mark.parametrize(
    ("kind", "state", "limit"),
    [(FIXED, "fixed", "cannot be changed"), (OTHER_VERSION, "unreadable", "unknown page")],
)
def test_unsuitable_page_is_not_written(card: Card, kind: int, state: str, limit: str) -> None:
    with opened("set"), page(card, kind):
        refused = row(command("apply", "--no-probe", "--once"))
        assert (refused["state"], refused["outcome"]) == (state, None)
        assert limit in str(refused["limit"])
    assert coalescing(card) == OWN


def test_silent_firmware_is_asked_once(card: Card) -> None:
    """The driver resets the card after 15 s; hbatune gives up after 10, and does not try again."""
    count = resets()
    with opened("set"):
        with page(card, SILENT):
            before = ask(card, "page_requests")
            assert row(command("apply", "--no-probe", "--once"))["state"] == "unreadable"
            assert row(command("diff"))["state"] == "unreadable"
            while resets() == count:
                wait_a_moment()
            assert row(command("diff"))["state"] == "unreadable"
            assert ask(card, "page_requests") == before + 1
        assert row(command("apply", "--no-probe", "--once"))["outcome"] == "written"
        assert hbatune("rollback").code == 0
    assert ask(card, "flags") == 1
