"""A part of a machine: gathered and planned alone, it is what it is within the whole."""

import json
import sys
import tempfile
from pathlib import Path

import pytest

from hbatune.settings.table import list_attributes
from tests.hosts import matrix, traps
from tests.hosts.conftest import ALL
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import run
from tests.hosts.stacks import stacks
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT

MACHINES = {**ALL, "everything": matrix.everything, "one_name": traps.one_name, "stacks": stacks}

SPANNING = {"one_name"}
"""Machines of which a part cannot always be told: ids that two disks share."""

SEVERAL = {"everything", "hostile", "lab", "multipath", "one_name"}
"""Machines with disks that can be looked at without all others, although some share ids."""


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_partial_scan_matches_full_plan(name: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(MACHINES[name](), Path(folder))
        command = ["env", "-C", str(CHECKOUT), sys.executable, "-m", "tests.hosts.parts_compared"]
        printed = run(Path(folder), [*command, *list_attributes()]).decode().split()
    alike, unlike, unknown, alone, differing_parts = (int(count) for count in printed)
    assert unlike == 0
    assert alike > 0 or name in SPANNING
    assert unknown == 0 or name in SPANNING
    assert differing_parts == 0
    assert alone > 0 or name not in SEVERAL


@pytest.mark.parametrize(
    ("name", "disk"),
    [("many", "sdc"), ("lab", "nvme0n1"), ("multipath", "sda"), ("mpt3sas", "sdb")],
)
def test_disk_output_matches_full_scan(name: str, disk: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(build_many_luns(64, 4) if name == "many" else MACHINES[name](), Path(folder))
        command = [
            "env",
            "-C",
            str(CHECKOUT),
            sys.executable,
            "-m",
            "tests.hosts.shown_alone",
            disk,
        ]
        outputs = json.loads(run(Path(folder), command))
    for (text, code, read), (full_text, full_code, full_read) in outputs.values():
        assert (text, code) == (full_text, full_code)
        assert disk in text
        assert read < (full_read if name != "many" else 12)
