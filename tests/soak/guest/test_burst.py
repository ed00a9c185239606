"""A thousand events at once: none is lost, and nothing grows."""

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import loaded_scsi_debug, settle
from tests.lab.guest.service import (
    QUIET,
    Journal,
    daemon,
    only_announced,
    resident,
    restarted,
    running,
    without_rules,
)
from tests.lab.guest.values import cat, put
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
LUNS, EVENTS = 32, 1_000
GROWTH = 1.05
LUN = {"max_luns": LUNS, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}
TOO_SMALL = f"{QUIET}buffer_mib = 0.01\n"


def burst(disks: list[str]) -> None:
    """Change a value of each disk, and have udev announce them a thousand times in all."""
    for disk in disks:
        put(disk, "queue/nr_requests", "100")
    words = [f"--sysname-match={disk}" for disk in disks]
    with only_announced():
        for _ in range(-(-EVENTS // len(disks))):
            subprocess.run(["udevadm", "trigger", "--action=add", *words], check=True)
        settle()


def after(disks: list[str], happen: Callable[[Journal], None]) -> dict[str, int]:
    """Return what the daemon's memory was and is, in KiB, and how often it lost events."""
    before = resident(daemon())
    with Journal() as journal:
        happen(journal)
        journal.until_all_set(disks, "nr_requests")
    assert {cat(disk, "queue/nr_requests") for disk in disks} == {"2048"}
    overruns = hbatune("status", "--json").json["status"]["overruns"]
    return {"rss_kib_before": before, "rss_kib": resident(daemon()), "overruns": overruns}


@pytest.mark.deadline(3600)
def test_thousand_events_lose_none() -> None:
    with loaded_scsi_debug(**LUN) as disks, running(QUIET), without_rules():

        def stopped_meanwhile(journal: Journal) -> None:
            os.kill(daemon(), signal.SIGSTOP)
            burst(disks)
            os.kill(daemon(), signal.SIGCONT)
            journal.until_said("udev events were lost")

        heard = after(disks, lambda journal: burst(disks))
        with restarted(TOO_SMALL, unit="WatchdogSec=1200"):
            too_small = after(disks, stopped_meanwhile)
    save_results(
        "a burst of events: as it is, and with a buffer too small for it",
        name="burst",
        events=EVENTS,
        luns=LUNS,
        heard=heard,
        too_small=too_small,
    )
    assert heard["overruns"] == 0
    assert too_small["overruns"] >= 1
    assert all(
        measurement["rss_kib"] <= GROWTH * measurement["rss_kib_before"]
        for measurement in (heard, too_small)
    )
