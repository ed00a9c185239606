"""The devices that hbatune finds in the class folders are those that libudev finds."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.conftest import ALL
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, gather_in, run
from tests.hosts.tree import Described, Disk, build
from tests.lab.wheel import CHECKOUT

IN_CHECKOUT = ("env", "-C", str(CHECKOUT), sys.executable, "-m")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.mark.parametrize("name", ALL)
def test_described_machine_matches_libudev(name: str, folder: Path) -> None:
    build(ALL[name](), folder / name)
    run(folder / name, [*IN_CHECKOUT, "tests.hosts.enumerated"])


def test_random_trees_match_libudev(folder: Path) -> None:
    build(Described(), folder / "drawn")
    run(folder / "drawn", [*IN_CHECKOUT, "tests.hosts.drawn_trees"], timeout=180)


_FIND = """
import json, os, sys
from hbatune.facts import devices
listdir = os.listdir
def vanishing(path):
    found = listdir(path)
    if path == "/sys/class/block":
        for name in ("sda", "sdb", "sdd"):
            os.unlink(f"{path}/{name}")
        os.unlink(os.path.join(os.path.dirname(path), "scsi_host", "host0"))
        os.rename(os.path.realpath("/sys/class/block/sdc"), "/sys/devices/gone")
    return found
if sys.argv[1] == "vanishing":
    os.listdir = vanishing
found = devices.find_devices()
print(json.dumps([len(found.places), len(found.branches), found.stack.holders("sda")]))
"""


def find(root: Path, how: str = "") -> tuple[int, int, list[str]]:
    """Return how many disks and branches there are, and what stands on sda."""
    disks, branches, holders = json.loads(run(root, [sys.executable, "-c", _FIND, how]))
    return disks, branches, holders


def test_vanishing_devices_are_omitted(built: Callable[[Described], Path]) -> None:
    root = built(build_many_luns(8, 2))
    assert find(root)[:2] == (8, 2)
    assert find(root, "vanishing")[:2] == (4, 1)


def test_huge_tree_is_complete(built: Callable[[Described], Path]) -> None:
    assert find(built(build_many_luns(4096, 16)))[:2] == (4096, 16)


def test_undecodable_name_shows_as_holder(built: Callable[[Described], Path]) -> None:
    """What stands on a disk keeps a probe from writing to it, whatever it is called."""
    root = built(Described(build_many_luns(1, 1).functions, virtual=(Disk("md_x", tags=None),)))
    name = os.fsdecode(b"md_\xff\n")
    upper = root / "sys/devices/virtual/block/md_x"
    (root / "sys/class/block" / name).symlink_to(f"../../devices/virtual/block/{name}")
    (root / "sys/class/block/md_x").unlink()
    (upper / "slaves/sda").symlink_to(root / "sys/class/block/sda")
    upper.rename(upper.with_name(name))
    assert find(root)[2] == [r"md_\udcff\n"]
    words = (*OWN_CONFIGURATION, sys.executable, "-m", "hbatune", "list", "--json")
    [disk] = json.loads(run(root, words))["endpoints"]
    assert disk["holders"] == [r"md_\udcff\n"]
    assert disk["held"]


def test_hard_linked_tree_reads_same(folder: Path) -> None:
    for linked in (False, True):
        build(ALL["lab"](), folder / f"linked-{linked}", linked=linked)
    [copied_machine, linked_machine] = (
        gather_in(folder / f"linked-{linked}", ("queue/nr_requests",)) for linked in (False, True)
    )
    assert copied_machine == linked_machine
    assert (folder / "linked-True/sys/class/block/sda/size").stat().st_nlink > 1
