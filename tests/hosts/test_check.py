"""What `check` says of described machines with ailments, read from sysfs for real."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hbatune.facts.health import LOST_IO
from tests.hosts import raid, traps, virtual
from tests.hosts.ailing import ailing, config, shared_line
from tests.hosts.captured import PROCFS, unpack
from tests.hosts.families import MACHINES
from tests.hosts.healthy import healthy
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Cpus, Described, Odd

Built = Callable[[Described], Path]
Findings = dict[tuple[str, str], dict[str, Any]]

ADAPTER = "0000:01:00.0"
# The daemon looked an hour ago, when all counters were 0, which the file leaves out. The exit code
# stands on a line of its own after the document.
_CHECK = """
import os, sys, time
from pathlib import Path
from hbatune.act.paths import Paths
from hbatune.act.marks import save_counted
from hbatune.cli import main
from hbatune.facts.health import ErrorCounters
boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
if not os.geteuid():
    Paths.counters.parent.mkdir(exist_ok=True)
    save_counted(Paths.counters, [ErrorCounters(boot, int(time.time()) - 3600, {})])
print(main(["check", "--json", *sys.argv[1:]]))
"""


def check(built: Built, machine: Described, *arguments: str) -> tuple[int, Findings]:
    """Return the exit code and the findings by id and target, an hour after another check.

    Findings on counters are by id and counter.
    """
    return checked(built(machine), *arguments)


def checked(root: Path, *arguments: str, script: str = _CHECK) -> tuple[int, Findings]:
    """Return what ``check`` says of the machine whose tree is below ``root``."""
    command = [*OWN_CONFIGURATION, sys.executable, "-c", script, *arguments]
    printed = run(root, command).decode()
    document, _, code = printed.rstrip("\n").rpartition("\n")
    findings = json.loads(document)["findings"]
    # An adapter has many counters.
    return int(code), {
        (finding["id"], finding["facts"].get("counter", finding["target"])): finding
        for finding in findings
    }


def test_ailing_machine_has_findings(built: Built) -> None:
    code, findings = check(built, ailing())
    assert code == 1
    link = findings["pcie-link", ADAPTER]
    # The port above, in the switch, is Gen3; the card and the root port could do Gen4.
    assert link["facts"] == {
        "speed": 2.5,
        "width": 8,
        "possible_speed": 8.0,
        "possible_width": 8,
        "port": "0000:02:00.0",
    }
    assert (link["severity"], link["source"]) == ("warning", "D0-10")
    errors = findings["pcie-errors", ADAPTER]
    assert errors["severity"] == "warning"
    assert (errors["facts"]["correctable"], errors["facts"]["nonfatal"]) == (7, 1)
    assert (errors["facts"]["root"], errors["facts"]["root_correctable"]) == ("0000:00:01.0", 7)
    assert findings["command-timeouts", "sda"]["facts"] == {"timeouts": 16, "done": 4096}
    # Of the disk that was sda before nothing is said.
    assert findings["medium-errors", "sda"]["facts"]["count"] == 2
    assert findings["medium-errors", "sda"]["facts"]["kinds"] == ["medium", "hardware"]
    assert findings["medium-errors", "sda"]["severity"] == "critical"
    assert "replace the drive" in findings["medium-errors", "sda"]["advice"]
    assert "resets of the device: 1" in findings["transport-errors", "sdb"]["evidence"]
    assert "offline" in findings["device-state", "sdb"]["evidence"]
    assert "at phy-0:1" in findings["counters-rising", "phy-0:1 invalid_dword_count"]["advice"]
    assert ("counters-rising", "phy-0:0 invalid_dword_count") not in findings
    assert findings["drive-cache", "sda"]["facts"] == {"cache": "write back"}
    assert findings["host-credits", ADAPTER]["facts"]["value"] == 1000
    if os.cpu_count() != 1:
        assert findings["msix-few", ADAPTER]["facts"]["vectors"] == 1
        assert "max_msix_vectors=1" in findings["msix-few", ADAPTER]["evidence"]
    assert findings["adapter-cache", ADAPTER]["facts"]["volumes"] == ["sdd"]


@pytest.mark.parametrize(("level", "is_slow"), [(6, True), (5, False)])
def test_cacheless_raid6_is_warning(built: Built, level: int, *, is_slow: bool) -> None:
    described = raid.ipr(card=("0x034a", "0x033b"))
    host = described.functions[0].hosts[0]
    volume, *drives = host.luns
    host = replace(host, luns=(replace(volume, model=f"IPR-{level}   5EC99000"), *drives))
    _, findings = check(built, Described((replace(described.functions[0], hosts=(host,)),)))
    severities = {
        finding["severity"]: finding["facts"]["raid6"]
        for (id, _), finding in findings.items()
        if id == "adapter-cacheless"
    }
    assert severities == ({"warning": ["sda"]} if is_slow else {"info": []})


def test_nvme_counters_rise(built: Built) -> None:
    described = virtual.nvme()
    controller = described.functions[0].controller
    assert controller is not None
    [namespace] = controller.namespaces
    block = {"diag/command_retries_count": "4", f"diag/{LOST_IO}": "1"}
    counting = replace(
        controller,
        namespaces=(replace(namespace, disk=replace(namespace.disk, block=block)),),
        attributes={"diag/reset_count": "2", "diag/command_error_count": "9"},
    )
    functions = (replace(described.functions[0], controller=counting),)
    code, findings = check(built, replace(described, functions=functions))
    assert code == 1
    rises = {name: found["severity"] for (id, name), found in findings.items() if "rising" in id}
    assert rises == {
        "reset_count": "advice",
        "command_retries_count": "advice",
        LOST_IO: "warning",
    }
    reset = findings["counters-rising", "reset_count"]
    assert (reset["target"], reset["facts"]["now"]) == ("nvme0n1", 2)
    assert "-g nvme0`" in reset["advice"]


def test_reserved_tags_are_not_shared(built: Built) -> None:
    """The tag set has 976 tags, of which the LUNs can use 975: 487 for each."""
    _, findings = check(built, traps.reserved_tags())
    assert findings["host-depth-share", ADAPTER]["facts"]["share"] == 487


def test_single_port_drives_are_named(built: Built) -> None:
    code, findings = check(built, traps.dual_port_nvme())
    finding = findings["map-paths", "machine"]
    assert (code, finding["severity"], finding["source"]) == (1, "advice", "K-map-paths")
    assert finding["facts"]["maps"] == [f"nvme{number}n1" for number in range(10)]


def test_heads_of_all_drives_pass(built: Built) -> None:
    _, findings = check(built, traps.dual_port_nvme(2, always_on=True))
    assert "map-paths" not in {id for id, _ in findings}


@pytest.mark.parametrize(
    ("slaves", "suspended", "found"),
    [
        (("sda", "sdb"), False, []),
        (("sda",), False, ["advice"]),
        ((), False, ["critical"]),
        (("sda", "sdb"), True, ["warning"]),
    ],
)
def test_map_without_redundancy_is_reported(
    built: Built, slaves: tuple[str, ...], suspended: bool, found: list[str]
) -> None:
    described = traps.fc_multipath()
    mapped = replace(described.mapped[0], slaves=slaves, suspended=suspended)
    _, findings = check(built, replace(described, mapped=(mapped,)))
    severities = [finding["severity"] for key, finding in findings.items() if key[0] == "map-paths"]
    assert severities == found


@pytest.mark.parametrize(
    "described",
    [
        traps.zoned("[none] mq-deadline kyber", atomic_write_max_bytes="0"),  # Linux 6.12
        traps.zoned(),
    ],
)
def test_ordered_zones_pass(built: Built, described: Described) -> None:
    assert ("zoned-scheduler", "sda") not in check(built, described)[1]


def test_unordered_zones_are_warned(built: Built) -> None:
    code, findings = check(built, traps.zoned("[none] mq-deadline"))
    finding = findings["zoned-scheduler", "sda"]
    assert (code, finding["severity"], finding["source"]) == (1, "warning", "K-zone-order")
    assert finding["advice"].startswith("set mq-deadline by a rule in /etc/hbatune/rules.d")


def test_target_is_checked_alone(built: Built) -> None:
    _, findings = check(built, ailing(), "sdb")
    targets = {finding["target"] for finding in findings.values()} - {"machine"}
    assert targets <= {"sdb", ADAPTER}
    assert ("pcie-link", ADAPTER) in findings


def test_shared_line_adapter_is_warned(built: Built) -> None:
    code, findings = check(built, shared_line())
    assert code == 1
    assert "msix_disable=1" in findings["msix-off", ADAPTER]["advice"]
    assert findings["msix-off", ADAPTER]["severity"] == "warning"
    # This described card has a link, and no kernel that counts its errors.
    assert findings["pcie-errors-not-counted", ADAPTER]["severity"] == "info"


def test_kernel_option_explains_shared_line(built: Built) -> None:
    with_option = replace(shared_line(), cpus=Cpus(command_line="ro pci=noaer,nomsi quiet"))
    _, findings = check(built, with_option)
    assert "take pci=noaer,nomsi off" in findings["msix-off", ADAPTER]["advice"]
    assert "msix_disable" not in findings["msix-off", ADAPTER]["advice"]


def test_ignored_elevator_option_is_advice(built: Built) -> None:
    with_option = replace(shared_line(), cpus=Cpus(command_line="ro elevator=noop quiet"))
    code, findings = check(built, with_option)
    assert code == 1
    assert findings["elevator-ignored", "machine"]["facts"]["option"] == "elevator=noop"


@pytest.mark.parametrize(
    "otherwise",
    [
        {"attributes": {"config": config(0x01, 0x10)}},  # the card has no such capability
        {"attributes": {}},  # nobody knows
        {"handler": ""},  # its driver sleeps, or polls
    ],
)
def test_card_without_msix_passes(built: Built, otherwise: dict[str, Any]) -> None:
    function = replace(shared_line().functions[0], **otherwise)
    _, findings = check(built, Described((function,)))
    assert ("msix-off", ADAPTER) not in findings


@pytest.mark.parametrize("family", MACHINES)
def test_polled_healthy_host_passes(built: Built, family: str) -> None:
    code, findings = check(built, healthy(family))
    assert {id: finding for id, finding in findings.items() if finding["severity"] != "info"} == {}
    assert {id for id, _ in findings} <= HEALTHY_FINDINGS
    assert code == 0


HEALTHY_FINDINGS = {
    *("adapter-cache", "drive-cache", "no-name", "pcie-errors-not-counted"),
    *("fio-missing", "host-depth-share", "msix-few", "cache-random-writes"),
}
"""What is worth knowing of a machine that is well; nothing of errors, nothing unread."""


@pytest.mark.skipif(not PROCFS.is_file(), reason="no captured hosts beside the checkout")
def test_uncaptured_facts_give_no_findings(tmp_path: Path) -> None:
    """Its polled drives count up to 609 commands without good status, its HBA has no vectors."""
    unpack(PROCFS, tmp_path)
    _, findings = checked(tmp_path)
    assert not {id for id, _ in findings} & {"msix-off", "command-errors", "counters-rising"}


def test_user_gets_root_hint(built: Built) -> None:
    """The log is root's alone, and so nobody knows why commands ended without good status."""
    function = healthy("mpt3sas").functions[0]
    # What stands in for EINVAL in these trees is root's alone, too.
    none = dict.fromkeys(("access_state", "preferred_path"), Odd.NONE)
    luns = (replace(lun, device={**lun.device, **none}) for lun in function.hosts[0].luns)
    host = replace(function.hosts[0], luns=tuple(luns))
    machine = replace(healthy("mpt3sas"), functions=(replace(function, hosts=(host,)),))
    code, findings = checked(built(machine), script=_AS_A_USER + _CHECK)
    finding = findings["command-errors", "sda"]
    assert (code, finding["severity"]) == (0, "info")
    assert "as root" in finding["advice"]


_AS_A_USER = """
import os
import hbatune.cli.commands.check
os.setgid(65534)
os.setuid(65534)
"""
