"""Boots with and without hbatune, in turns: neither is the slower one."""

import statistics
import subprocess
from pathlib import Path

import pytest

from tests.lab.guest import reboots
from tests.lab.guest.command import hbatune, installed
from tests.lab.guest.service import systemctl
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
PAIRS = 5


def seconds() -> float:
    """Return how long userspace took to multi-user.target, on the kernel's clock."""
    words = ["systemctl", "show", "--value", "multi-user.target"]
    timestamp = subprocess.run(
        [*words, "--property=ActiveEnterTimestampMonotonic"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return int(timestamp) / 1e6


@pytest.mark.deadline(3600)
def test_boot_time_is_unaffected() -> None:
    state = reboots.take_state()
    if not state:
        reboots.boot_as_a_server()
        reboots.reboot(without=[], with_it=[], next="without")
    systemctl("is-system-running", "--wait", check=False)
    state[state["next"]].append(round(seconds(), 2))
    if state["next"] == "without" and len(state["without"]) <= PAIRS:
        assert installed("install", "--profile", "oltp").code == 0
        reboots.reboot(**{**state, "next": "with_it"})
    assert hbatune("uninstall").code == 0
    if len(state["with_it"]) < PAIRS:
        reboots.reboot(**{**state, "next": "without"})
    reboots.boot_as_before()
    without, with_it = state["without"], state["with_it"]
    save_results(
        "seconds from the kernel's start to multi-user.target",
        name="boot_times",
        without=without,
        with_it=with_it,
        medians=[statistics.median(without), statistics.median(with_it)],
    )
    assert Path("/etc/systemd/system/lab.target.d").exists() is False
    assert min(with_it) <= max(without)
    assert min(without) <= statistics.median(with_it) <= max(without)
