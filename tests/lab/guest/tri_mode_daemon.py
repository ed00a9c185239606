"""A daemon on a machine with a 9600, whose depths the profile raises."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.service import QUIET, running
from tests.lab.guest.tri_mode import OWN, Card
from tests.lab.guest.values import put

SITE = '[site]\nexclude = ["vda", "vdb"]\n'
TIMES = 3
"""What somebody sets back is repaired twice and then left: the third repair is the proof."""
_MAJOR = int(os.uname().release.partition(".")[0])


@contextmanager
def guarded_card() -> Iterator[Card]:
    """Yield the card, with a daemon without audits: it repairs upon events and looks at depths."""
    with running(f"{SITE}{QUIET}"), Card() as card:
        yield card


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


def until_right(wanted: dict[str, int]) -> None:
    """Wait for the depths; the harness ends a test that waits too long."""
    while not wanted.items() <= tri_mode.depths().items():
        wait_a_moment()


def nothing_given_up() -> None:
    """Assert that the daemon leaves nothing open."""
    status = hbatune("status", "--json")
    assert status.json["status"]["open"] == [], status.out
