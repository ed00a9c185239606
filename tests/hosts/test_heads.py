"""A local NVMe drive below a head by design is an ordinary drive of its adapter."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts import traps
from tests.hosts.namespace import run
from tests.hosts.tree import Described

Built = Callable[[Described], Path]
MAIN = "import sys; from hbatune.cli import main; main(sys.argv[1:])"


def print_of(root: Path, *words: str) -> str:
    """Return the output of a command on the machine below ``root``."""
    return run(root, [sys.executable, "-c", MAIN, *words]).decode()


@pytest.fixture
def drives(built: Built) -> Path:
    """Two drives with one port each, on a kernel that makes a head of every drive."""
    return built(traps.dual_port_nvme(2, always_on=True))


def test_list_shows_drives_of_adapters(drives: Path) -> None:
    text = print_of(drives, "list")
    assert "2 disks behind 2 adapters" in text
    assert "over several adapters" not in text
    assert "nvme0n1" in text
    assert "nvme0c0n1" not in text
    below_adapter = print_of(drives, "list", "--all").partition("0000:05:00.0")[0]
    assert ["nvme0n1", "nvme0", "nvme"] in [line.split()[:3] for line in below_adapter.splitlines()]


def test_ids_name_head_and_path(drives: Path) -> None:
    names = {line.split()[0] for line in print_of(drives, "list", "--ids").splitlines() if line}
    assert {"nvme0n1", "nvme0c0n1", "nvme1n1", "nvme1c1n1"} <= names


def test_explain_shows_only_rows(drives: Path) -> None:
    text = print_of(drives, "explain", "nvme0n1", "--profile", "oltp")
    assert "nvme0c0n1  nr_requests" in text
    assert "not set" not in text
    text = print_of(drives, "explain", "nvme0n1", "--profile", "throughput")
    assert "nvme0n1    read_ahead_kb" in text


def test_diff_counts_no_disk_without_rule(drives: Path) -> None:
    assert "without a rule" not in print_of(drives, "diff", "--profile", "oltp")


def test_single_path_of_several_ports_stays_a_map(built: Built) -> None:
    text = print_of(built(traps.dual_port_nvme(2)), "list")
    assert "2 paths, 2 maps behind 2 adapters" in text
