"""irqbalance beside hbatune, under I/O: it moves what was placed, unless it asks our script."""

import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.irqbalance import Placed, irqbalance, read_affinities
from tests.lab.guest.kit import reading, scsi_disks

KERNELS = ("6.12",)
TOPOLOGY = "probed"
SCRIPT = Path("/var/lib/hbatune/irqbalance-policy")
PATIENCE = 60.0
"""Seconds in which irqbalance, asked to look every second, is to have moved something."""

FAMILIES = ("vmw_pvscsi", "megaraid_sas")  # with one free vector each


def seconds_until_moved(pid: int, placed: Placed, limit: float) -> float:
    """Return how long it took irqbalance to move one of the interrupts, at most ``limit``."""
    begun = time.monotonic()
    watch = os.pidfd_open(pid)
    try:
        while time.monotonic() - begun < limit and read_affinities(placed) == placed:
            ended, _, _ = select.select([watch], [], [], 0.5)
            assert not ended
    finally:
        os.close(watch)
    return time.monotonic() - begun


@pytest.fixture
def busy() -> Iterator[None]:
    """Have the disks behind the free vectors read all the time."""
    with reading([disk for family in FAMILIES for disk in scsi_disks(family)]):
        yield


@pytest.fixture
def placed() -> Iterator[Placed]:
    """The interrupts that an apply has placed, and where."""
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    assert done.code == 0, done.err
    rows = done.rows(setting="irq_affinity")
    yield {row["target"]: row["value"] for row in rows if row["state"] in ("ok", "drift")}
    hbatune("rollback")


def test_policy_script_stops_irqbalance_moves(busy: None, placed: Placed) -> None:
    with irqbalance("--interval=1") as deaf:
        took = seconds_until_moved(deaf, placed, PATIENCE)
        assert read_affinities(placed) != placed, (
            "the control run: without the script it does move them"
        )
        again = hbatune("apply", "--no-probe")
        assert f"--policyscript={SCRIPT}" in again.err
    assert hbatune("apply", "--no-probe").code == 0
    assert read_affinities(placed) == placed
    with irqbalance("--interval=1", f"--policyscript={SCRIPT}") as pid:
        seconds_until_moved(pid, placed, 3 * took + 5)
        assert read_affinities(placed) == placed
        assert "--policyscript" not in hbatune("apply", "--no-probe").err
    back = hbatune("rollback")
    assert back.code == 0, back.out
    assert not SCRIPT.exists()
