"""The coalescing in the firmware of the lab's card, opened by the site and asked for by a profile.

The card itself says what its page holds and how many requests for it have come in.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest.command import Done, configure, hbatune
from tests.lab.guest.main_job import CARD_ALONE
from tests.lab.guest.tri_mode import Card, driver

OWN = (16, 4)
"""The timeout and depth that the emulated firmware has after each reset."""
FIXED, OTHER_VERSION, SILENT = 1, 2, 3
"""What the property `page` of the card makes of its page."""
_NODES = ("/dev/bsg/", "/dev/mpt")
_OPENED = Path("/run/lab/opened")


def host() -> Path:
    """Return the card's SCSI host, by the driver that has it."""
    for directory in Path("/sys/class/scsi_host").iterdir():
        if (directory / "proc_name").read_text().strip() == driver():
            return directory
    raise AssertionError("the card has no host")


def address() -> str:
    """Return the card's address on PCI."""
    return (host() / "device").resolve().parent.name


def ask(card: Card, name: str) -> int:
    """Return a number that the card has."""
    return int(card.say(f"qom-get /machine/peripheral/hba {name}"))


def coalescing(card: Card) -> tuple[int, int]:
    """Return the timeout and the depth in the card's page."""
    return ask(card, "timeout"), ask(card, "depth")


def permission(access: str) -> str:
    """Return what a configuration says to open the card's firmware."""
    return f'[site.adapter."{address()}"]\nfirmware = "{access}"\n'


@contextmanager
def opened(access: str) -> Iterator[None]:
    """Have the site open the card's firmware, to be read or set."""
    configure(f"{CARD_ALONE}{permission(access)}")
    try:
        yield
    finally:
        configure(CARD_ALONE)


@contextmanager
def page(card: Card, kind: int) -> Iterator[None]:
    """Have the card's page be of this kind."""
    card.set("page", kind)
    try:
        yield
    finally:
        card.set("page", 0)


def command(*words: str) -> Done:
    """Run hbatune on the card's host with the profile that switches coalescing off."""
    named = (host().name,) if words[0] != "rollback" else ()
    wanted = () if words[0] == "rollback" else ("--profile", "oltp")
    return hbatune(*words, *wanted, "--json", *named)


def row(done: Done) -> dict[str, object]:
    """Return the row of the coalescing in the firmware."""
    [found] = done.rows(setting="firmware_coalescing")
    return found


def list_opened(*words: str) -> list[str]:
    """Run the command; return the device nodes of firmware that it, or its workers, opened."""
    _OPENED.write_text("")

    def watch() -> None:
        log = os.open(_OPENED, os.O_WRONLY | os.O_APPEND)

        def note(event: str, arguments: tuple[object, ...]) -> None:
            if event == "open" and str(arguments[0]).startswith(_NODES):
                os.write(log, f"{arguments[0]}\n".encode())

        sys.addaudithook(note)

    hbatune(*words, prepare=watch)
    return _OPENED.read_text().split()
