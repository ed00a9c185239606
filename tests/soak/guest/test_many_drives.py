"""224 drives on one 9600: found, set, kept after a reset, put back; and what looking costs."""

import os
import time
from pathlib import Path

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.lab.guest.service import QUIET, Journal, daemon, let_be, running
from tests.lab.guest.tri_mode import OWN, Card
from tests.lab.guest.values import everything
from tests.soak.guest.results import save_results

KERNELS = ("6.12",)
TOPOLOGY = "many-drives"
DRIVES = 224
IDLE_SECONDS = 300


def spent(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.deadline(7200)
def test_224_drives_apply_and_revert() -> None:
    before = everything()
    assert len(tri_mode.disks()) == DRIVES
    began = time.monotonic()
    with running(QUIET):
        installed = time.monotonic() - began
        wanted = {disk: depth for disk, depth in tri_mode.depths().items() if depth != OWN}
        assert len(wanted) > DRIVES // 2
        pid = daemon()
        used, since = spent(pid), time.monotonic()
        let_be(IDLE_SECONDS)
        idle = (spent(pid) - used) / (time.monotonic() - since)
        with Card() as card, Journal() as journal:
            card.inform()
            began = time.monotonic()
            journal.until_all_set(wanted, "queue_depth")
            repaired = time.monotonic() - began
        assert wanted.items() <= tri_mode.depths().items()
        assert hbatune("status", "--json").json["status"]["open"] == []
    assert everything() == before
    save_results(
        "an eHBA 9600 with 224 drives: seconds to install, and until every depth is right again "
        "after the firmware's word about all of them; the daemon's share of a CPU while nothing "
        "happens, of which the looks at depths are a part; emulated CPUs",
        name="many_drives",
        drives=DRIVES,
        raised=len(wanted),
        install_seconds=round(installed, 1),
        repair_seconds=round(repaired, 1),
        idle_share=round(idle, 5),
    )
