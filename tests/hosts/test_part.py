"""A part of a machine: gathered and planned alone, it is what it is within the whole."""

import json
import sys
import tempfile
from pathlib import Path

import pytest

from hbatune.settings.table import list_attributes
from tests.hosts import matrix, traps
from tests.hosts.conftest import ALL
from tests.hosts.machines import many
from tests.hosts.namespace import run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT

MACHINES = {**ALL, "everything": matrix.everything, "one_name": traps.one_name}

SPANNING = {"one_name"}
"""Machines of which a part cannot always be told: ids that two disks share."""

SEVERAL = {"everything", "hostile", "lab", "multipath", "one_name"}
"""Machines with disks that can be looked at without all others, although some share ids."""


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_partial_scan_matches_full_plan(name: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(MACHINES[name](), Path(folder))
        command = ["env", "-C", str(CHECKOUT), sys.executable, "-m", "tests.hosts.parts_compared"]
        found = run(Path(folder), [*command, *list_attributes()]).decode().split()
    alike, unlike, unknown, alone, other = (int(each) for each in found)
    assert unlike == 0
    assert alike > 0 or name in SPANNING
    assert unknown == 0 or name in SPANNING
    assert other == 0
    assert alone > 0 or name not in SEVERAL


@pytest.mark.parametrize(
    ("name", "disk"),
    [("many", "sdc"), ("lab", "nvme0n1"), ("multipath", "sda"), ("mpt3sas", "sdb")],
)
def test_disk_output_matches_full_scan(name: str, disk: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(many(64, 4) if name == "many" else MACHINES[name](), Path(folder))
        command = [
            "env",
            "-C",
            str(CHECKOUT),
            sys.executable,
            "-m",
            "tests.hosts.shown_alone",
            disk,
        ]
        found = json.loads(run(Path(folder), command))
    for (said, code, read), (whole_said, whole_code, whole_read) in found.values():
        assert (said, code) == (whole_said, whole_code)
        assert disk in said
        assert read < (whole_read if name != "many" else 12)
