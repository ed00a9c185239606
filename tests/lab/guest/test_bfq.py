"""bfq that a distribution's udev rule has set: replaced, unless a unit needs its weights."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import everything, put, scheduler

KERNELS = ("6.12",)
pytestmark = pytest.mark.usefixtures("rolled_back")
_RULES = Path("/usr/lib/udev/rules.d/60-io-scheduler.rules")
_RULE = 'SUBSYSTEM=="block", KERNEL=="sd*", ATTR{queue/scheduler}="bfq"\n'


@pytest.fixture
def disk() -> Iterator[str]:
    """Return a disk on bfq, as the distribution's rule says."""
    [disk] = scsi_disks("sym53c8xx")
    original = scheduler(disk)
    put(disk, "queue/scheduler", "bfq")
    _RULES.write_text(_RULE)
    yield disk
    _RULES.unlink()
    put(disk, "queue/scheduler", original)


def test_unused_bfq_is_replaced_and_restored(disk: str) -> None:
    before = everything()
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    row = done.row(disk, "scheduler")
    assert row["outcome"] == "written", done.out + done.err
    assert f"replaces the choice of {_RULES}" in row["limit"]
    assert scheduler(disk) == "mq-deadline"
    assert hbatune("rollback").code == 0
    assert everything() == before


def test_weights_of_unit_keep_bfq(disk: str) -> None:
    unit = ("systemd-run", "--unit=weighted", "--property=IOWeight=200", "sleep", "infinity")
    subprocess.run(unit, check=True, capture_output=True)
    try:
        assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
        assert scheduler(disk) == "bfq"
    finally:
        subprocess.run(["systemctl", "stop", "weighted"], check=True)
