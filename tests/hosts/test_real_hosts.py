"""No false word about machines with the facts of real ones, in list, diff, explain and check."""

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.real_hosts import MACHINES
from tests.hosts.tree import Described

_RUN = """
import contextlib, io, json, sys
from hbatune.cli import main
told = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(words)
    told.append(out.getvalue())
json.dump(told, sys.stdout)
"""
PROFILE = ("--profile", "oltp")

ROOM = ("nr_requests", 2048)
SORTED = ("scheduler", "mq-deadline")


@dataclass(frozen=True)
class Said:
    """What is true of a machine.

    ``disks`` are protocol, medium and storage of each, ``changes`` the disks by setting and value,
    ``fixed`` and ``excluded`` those that nobody can change or that somebody has decided.
    ``findings`` are ids, without ``fio-missing``.
    """

    disks: dict[str, str]
    changes: dict[tuple[str, object], str] = field(default_factory=dict)
    left_alone: str = ""
    fixed: dict[str, str] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)


DESKTOP = {"nvme0n1": "nvme nvme local", "sda": "sata ssd local", "sdb": "sata hdd local"}


def _nvme(adapter: str) -> dict[str, str]:
    """What is worth knowing of a consumer's drive behind a slot whose errors are not counted."""
    return {
        "pcie-errors-not-counted": adapter,
        "single-path": "nvme0n1",
        "drive-cache": "nvme0n1",
    }


_LUN = "fc ssd array"
EXPECTED_FINDINGS = {
    # That kernel offered SATA drives no mq-deadline, and nothing else is planned in its place.
    "fedora_27": Said(
        DESKTOP,
        {ROOM: "sda sdb"},
        fixed={"scheduler": "sda sdb"},
        findings=_nvme("0000:01:00.0"),
    ),
    # smartd's polls are no errors: 9078 of them are not worth a word. A virtual disk is left.
    "fedora_41": Said(
        {**DESKTOP, "sdc": "virtual ssd virtual"},
        {ROOM: "sda sdb"},
        excluded={"scheduler": "sda sdb"},  # bfq, and this tree has no rule of the distribution
        findings=_nvme("0000:05:00.0"),
    ),
    "guest": Said(
        {"vda": "virtio unknown virtual"},
        findings={"no-name": "vda", "drive-cache": "vda"},
    ),
    # The paths of a map keep what they have, and an empty card reader is no disk.
    "multipath_of_scsi_debug": Said(
        {
            "nvme0n1": "nvme nvme local",
            **dict.fromkeys(("sdb", "sdc", "sdd", "sde", "dm-3"), "virtual ssd virtual"),
        },
        findings=_nvme("0000:04:00.0"),
    ),
    "perc_6i": Said(
        {"sda": "volume hdd local"},
        {ROOM: "sda"},
        findings={"adapter-cache": "0000:03:00.0"},
    ),
    "ryzen": Said(
        {"sda": "sata ssd local", "sdb": "sata hdd local", "sdc": "sata ssd local"},
        {ROOM: "sda sdb sdc"},
        findings={"pcie-errors-not-counted": "0000:01:00.1"},
    ),
    "thinkpad": Said(
        {"sda": "sata unknown local", "sdb": "unknown unknown local"},
        {ROOM: "sda"},
        left_alone="sdb",
        fixed={"scheduler": "sda"},
        excluded={"queue_depth": "sda"},
        findings={"no-name": "sda sdb"},
    ),
    # All disks are paths to an array: how deep they queue is for those who know it.
    "zfcp": Said(
        dict.fromkeys([*(f"sd{letter}" for letter in "abcdefghijklmnop"), "dm-0", "dm-1"], _LUN)
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_real_host_answers_are_true(built: Callable[[Described], Path], name: str) -> None:
    root = built(MACHINES[name]())

    def run_commands(*commands: tuple[str, ...]) -> list[str]:
        command = [*OWN_CONFIGURATION, sys.executable, "-c", _RUN, json.dumps(commands)]
        texts: list[str] = json.loads(run(root, command))
        return texts

    commands = (("list",), ("diff", *PROFILE), ("check", *PROFILE))
    documents = run_commands(*((*words, "--json") for words in commands))
    listed, plan, checked = map(json.loads, documents)
    disks = {
        endpoint["target"]: f"{endpoint['protocol']} {endpoint['medium']} {endpoint['storage']}"
        for endpoint in listed["endpoints"]
    }
    rows: dict[str, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in plan["rows"]:
        key = (row["setting"], row["value"]) if row["state"] == "drift" else row["setting"]
        rows[row["state"]][key].append(row["target"])
    findings = defaultdict(list)
    for finding in checked["findings"]:
        if finding["target"] != "machine":
            findings[finding["id"]].append(finding["target"])
    findings_summary = Said(
        disks,
        _joined(rows["drift"]),
        " ".join(entry["target"] for entry in plan["left_alone"]),
        _joined(rows["fixed"]),
        _joined(rows["excluded"]),
        _joined(findings),
    )
    assert findings_summary == EXPECTED_FINDINGS[name]
    explained = run_commands(*(("explain", disk, *PROFILE) for disk in disks))
    for disk, text in zip(disks, explained, strict=True):
        assert disk in text


def _joined(targets_by_key: dict[Any, list[str]]) -> dict[Any, str]:
    return {key: " ".join(sorted(targets)) for key, targets in targets_by_key.items()}
