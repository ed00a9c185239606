"""Ten thousand events and five hundred repairs: nothing grows."""

import os
import subprocess
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import settle
from tests.lab.guest.service import (
    Journal,
    daemon,
    only_announced,
    resident,
    running,
)
from tests.lab.guest.values import put
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
EVENTS, REPAIRS, LUNS = 10_000, 500, 32
CONFIG = "[daemon]\naudit_seconds = 1\n"
GROWTH = 1.05
"""How many times its memory after a tenth of all it may take at the end."""
LUN = {"max_luns": LUNS, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}


def footprint() -> dict[str, int]:
    """Return what the daemon has: KiB of memory, descriptors, children."""
    pid = daemon()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {
        "rss_kib": resident(pid),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "children": len(children),
    }


def announce(disks: list[str], count: int) -> None:
    """Have udev announce these disks so many times in all."""
    words = [f"--sysname-match={disk}" for disk in disks]
    with only_announced():
        for _ in range(-(-count // len(disks))):
            subprocess.run(["udevadm", "trigger", "--action=add", *words], check=True)
            settle()


@pytest.mark.deadline(14_400)
def test_daemon_resources_stay_constant(scsi_debug: Callable[..., list[str]]) -> None:
    disks = scsi_debug(**LUN)
    with running(CONFIG), Journal() as journal:
        announce(disks, EVENTS // 10)
        journal.reload()
        first = footprint()
        announce(disks, EVENTS - EVENTS // 10)
        journal.reload()
        after_events = footprint()
        for number, disk in zip(range(REPAIRS), cycle(disks), strict=False):
            put(disk, "queue/nr_requests", "100")
            journal.until_set(disk, "nr_requests")
            if number % LUNS == LUNS - 1:
                journal.reload()  # or it would step aside
        last = footprint()
        status = hbatune("status", "--json").json["status"]
    save_results(
        "the daemon's footprint over events and repairs",
        name="endures",
        events=EVENTS,
        repairs=REPAIRS,
        first=first,
        after_events=after_events,
        last=last,
        overruns=status["overruns"],
        passes=status["passes"],
    )
    assert last["rss_kib"] <= GROWTH * first["rss_kib"]
    assert last["descriptors"] <= first["descriptors"] + 1
    assert last["children"] <= 1
    assert status["overruns"] == 0
