"""No disk is left untouched in silence: each command says what is not known, and what it saw."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import lookalikes, raid, traps
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Built = Callable[[Described], Path]

_RUN = "import sys; from hbatune.cli import main; main(sys.argv[1:])"

UNKNOWN = {
    "areca_passthrough": (
        lookalikes.areca_passthrough,
        {"sda": ["driver arcmsr", "channel 0", "vendor SEAGATE", "model MODEL"]},
    ),
    "bridges": (
        lookalikes.bridges,
        {
            "sda": ["driver mlx5_core", "transport srp", "channel 0", "vendor ATA"],
            "sdb": ["driver firewire_ohci", "transport firewire", "channel 0", "vendor ATA"],
        },
    ),
    "stranger": (traps.stranger, {"sda": ["driver mvumi", "channel 0", "vendor ACME"]}),
}


def run_command(root: Path, *words: str) -> str:
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _RUN, *words]
    # `diff` has no drift to report there, and exits 0 like the others.
    return run(root, command).decode()


@pytest.mark.parametrize("name", UNKNOWN)
def test_commands_report_unknown_disks(built: Built, name: str) -> None:
    described, disks = UNKNOWN[name]
    root = built(described())
    profile = ("--profile", "oltp")
    for words in (("list",), ("diff", *profile), ("apply", "--dry-run", *profile)):
        messages = [
            line
            for line in run_command(root, *words).splitlines()
            if "skipped: unknown device" in line
        ]
        for disk, evidence in disks.items():
            [line] = [message for message in messages if message.startswith(f"{disk}:")]
            assert ", ".join(evidence) in line
    for disk, evidence in disks.items():
        explained = run_command(root, "explain", disk, *profile)
        assert f"{disk}: skipped: unknown device ({', '.join(evidence)}" in explained


@pytest.mark.parametrize("name", UNKNOWN)
def test_documents_report_unknown_disks(built: Built, name: str) -> None:
    described, disks = UNKNOWN[name]
    root = built(described())

    def document(*words: str) -> Any:
        return json.loads(run_command(root, *words, "--json"))

    plan = document("diff", "--profile", "oltp")
    left_alone = {disk_entry["target"]: disk_entry for disk_entry in plan["left_alone"]}
    assert left_alone.keys() == disks.keys()
    listed = {endpoint["target"]: endpoint for endpoint in document("list")["endpoints"]}
    for disk, evidence in disks.items():
        assert left_alone[disk]["reason"] == "unknown device"
        assert left_alone[disk]["evidence"][: len(evidence)] == evidence
        assert listed[disk]["evidence"] == left_alone[disk]["evidence"]
        [bare] = document("explain", disk, "--profile", "oltp")["without_rules"]
        assert (bare["reason"], bare["evidence"]) == (
            "unknown device",
            left_alone[disk]["evidence"],
        )


def test_unusable_disks_are_only_in_full_list(built: Built) -> None:
    hidden = {"sde", "sdw", "sdz", "mtdblock0"}
    root = built(lookalikes.management_controller())
    text = run_command(root, "list")
    words = set(text.split())
    assert not words & {*hidden, "host18"}
    assert {"sdf", "sdx", "sdy", "host17"} <= words
    assert "Not shown: 3 removable or flash media and 1 disk without capacity." in text
    assert hidden <= set(run_command(root, "list", "--all").split())
    assert "mtdblock0" in run_command(root, "list", "mtdblock0")
    disks = {
        disk["target"]: disk
        for disk in json.loads(run_command(root, "list", "--json"))["endpoints"]
    }
    assert disks.keys() >= hidden
    assert (disks["sdw"]["removable"], disks["sdy"]["removable"]) == (True, False)
    plan = json.loads(run_command(root, "diff", "--profile", "oltp", "--json"))
    assert not hidden & {row["target"] for row in plan["rows"] if row["state"] != "excluded"}


def test_switch_ports_are_no_adapters(built: Built) -> None:
    root = built(traps.pcie_switch())
    listed = json.loads(run_command(root, "list", "--json"))
    assert [adapter["target"] for adapter in listed["adapters"]] == ["0000:01:00.0"]
    assert {disk["target"] for disk in listed["endpoints"]} == {"sda", "sdb", "sdc", "sdd"}


_RULE = '''
from pathlib import Path
folder = Path("/etc/hbatune/rules.d")
folder.mkdir(parents=True)
(folder / "zones.toml").write_text("""[[rule]]
name = "zones"
when.model = "ST1200MM0088"
setting = "scheduler"
value = "%s"
because = "zones are written in order"
source = "site"
""")
'''


LINUX_6_1 = traps.zoned("[none] mq-deadline")
LINUX_6_12 = traps.zoned("none [mq-deadline] kyber", atomic_write_max_bytes="0")


@pytest.mark.parametrize(
    ("described", "wanted", "state"),
    [
        (LINUX_6_1, "mq-deadline", "drift"),
        (LINUX_6_1, "none", "excluded"),
        (LINUX_6_12, "none", "drift"),
    ],
)
def test_local_rule_sets_safe_zoned_scheduler(
    built: Built, described: Described, wanted: str, state: str
) -> None:
    root = built(described)
    words = ("diff", "--profile", "oltp", "--json")
    [scheduler, requests, _] = json.loads(run_command(root, *words))["rows"]
    assert (scheduler["state"], requests["state"]) == ("excluded", "excluded")
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _RULE % wanted + _RUN, *words]
    [scheduler, requests, _] = json.loads(run(root, command).decode())["rows"]
    value = wanted if state == "drift" else None
    assert (scheduler["state"], scheduler["value"]) == (state, value)
    assert requests["state"] == "excluded"


def test_identified_disk_is_not_reported(built: Built) -> None:
    root = built(lookalikes.msa_sas())
    listed = run_command(root, "list")
    assert "skipped: unknown device" not in listed
    assert "sas ssd, array" in listed
    assert json.loads(run_command(root, "diff", "--profile", "oltp", "--json"))["left_alone"] == []


@pytest.mark.parametrize(
    ("described", "text"), [(raid.ipr(), "RAID 5 volume"), (raid.hpsa(), "RAID 1(+0) volume ssd")]
)
def test_volume_shows_only_reported_medium(built: Built, described: Described, text: str) -> None:
    lines = run_command(built(described), "list", "sda").splitlines()
    [volume] = [line.split("  ") for line in lines if line.startswith("sda ")]
    assert text in [cell.strip() for cell in volume]
