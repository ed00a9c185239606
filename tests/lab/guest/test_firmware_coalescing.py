"""Interrupt coalescing in the firmware of a 9600, through its real driver: read, set, put back."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.firmware import (
    FIXED,
    OTHER_VERSION,
    OWN,
    ask,
    coalescing,
    command,
    host,
    list_opened,
    opened,
    page,
    permission,
    row,
)
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.main_job import CARD_ALONE
from tests.lab.guest.service import QUIET, running
from tests.lab.guest.tri_mode import Card, busy, disks

KERNELS = ("6.12",)
TOPOLOGY = "tri-mode"


@pytest.fixture(autouse=True)
def card() -> Iterator[Card]:
    configure(CARD_ALONE)
    with Card() as card:
        yield card
    configure("")


def operational() -> bool:
    return (host() / "adp_state").read_text().strip() == "1"


def test_firmware_stays_closed_without_permission(card: Card) -> None:
    before = ask(card, "page_requests")
    for word in ("diff", "apply"):
        more = ("--no-probe", "--once") if word == "apply" else ()
        assert list_opened(word, "--profile", "oltp", *more, host().name) == []
    closed = row(command("diff"))
    assert (closed["state"], closed["current"]) == ("absent", None)
    assert 'firmware = "read"' in str(closed["limit"])
    assert ask(card, "page_requests") == before


def test_page_is_read_once_in_a_boot(card: Card) -> None:
    before = ask(card, "page_requests")
    with opened("read"):
        first = row(command("diff"))
        assert ask(card, "page_requests") == before + 2, "the header and the page"
        second = row(command("diff"))
        assert ask(card, "page_requests") == before + 2
    assert first["current"] == second["current"] == "4/16"
    assert second["state"] == "fixed"
    assert "min ago" in str(second["limit"])


def test_coalescing_is_set_and_restored(card: Card) -> None:
    with opened("set"):
        before = ask(card, "page_requests")
        applied = row(command("apply", "--no-probe", "--once"))
        assert (applied["current"], applied["value"], applied["outcome"]) == (
            *("4/16", "1/0"),
            "written",
        )
        # For the plan the header and page, for the write both again, the write, the page again.
        assert ask(card, "page_requests") == before + 6
        assert coalescing(card) == (0, 1)
        assert row(command("diff"))["state"] == "ok"
        assert ask(card, "page_requests") == before + 6
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err
        assert coalescing(card) == OWN


def test_rollback_after_reset_writes_nothing(card: Card) -> None:
    with opened("set"):
        command("apply", "--no-probe", "--once")
        assert coalescing(card) == (0, 1)
        with busy(*disks()):
            card.fail()
            while coalescing(card) != OWN:
                wait_a_moment()
            while not operational():
                wait_a_moment()
        before = ask(card, "page_requests")
        back = command("rollback")
        assert back.code == 0, back.out + back.err
        assert row(back)["outcome"] == "kept"
        assert ask(card, "page_requests") == before + 2
    assert coalescing(card) == OWN


def test_adapter_in_reset_gets_no_request(card: Card) -> None:
    with opened("set"):
        before = ask(card, "page_requests")
        card.fail()
        while operational():
            wait_a_moment()
        refused = row(command("apply", "--no-probe", "--once"))
        assert refused["state"] == "unreadable", refused
        assert ask(card, "page_requests") == before
        while not operational():
            wait_a_moment()
        assert row(command("apply", "--no-probe", "--once"))["outcome"] == "written"
        assert hbatune("rollback").code == 0


@pytest.mark.deadline(600)
def test_daemon_sends_no_request(card: Card) -> None:
    before = ask(card, "page_requests")
    with running(f"{CARD_ALONE}{permission('set')}{QUIET}"):
        words = ("systemctl", "show", "--property=DeviceAllow", "hbatune.service")
        shown = subprocess.run(words, capture_output=True, text=True, check=True)
        assert "char-bsg" in shown.stdout, "for a rollback when it stops"
    assert ask(card, "page_requests") == before
    assert coalescing(card) == OWN


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
