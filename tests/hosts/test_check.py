"""What `check` says of described machines with ailments, read from sysfs for real."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hosts.ailing import ailing, shared_line
from tests.hosts.namespace import run
from tests.hosts.tree import Described

Built = Callable[[Described], Path]
Findings = dict[tuple[str, str], dict[str, Any]]

ADAPTER = "0000:01:00.0"
# The exit code stands on a line of its own after the document.
_CHECK = """
import sys
from hbatune.cli import main
print(main(["check", "--json", *sys.argv[1:]]))
"""


def check(built: Built, machine: Described, *arguments: str) -> tuple[int, Findings]:
    """Return the exit code and the findings by id and target."""
    printed = run(built(machine), [sys.executable, "-c", _CHECK, *arguments]).decode()
    document, _, code = printed.rstrip("\n").rpartition("\n")
    findings = json.loads(document)["findings"]
    return int(code), {(each["id"], each["target"]): each for each in findings}


def test_an_ailing_machine(built: Built) -> None:
    code, found = check(built, ailing())
    assert code == 1
    link = found["pcie-link", ADAPTER]
    # The port above, in the switch, is Gen3; the card and the root port could do Gen4.
    assert link["facts"] == {
        "speed": 2.5,
        "width": 8,
        "possible_speed": 8.0,
        "possible_width": 8,
        "port": "0000:02:00.0",
    }
    assert (link["severity"], link["source"]) == ("warning", "D0-10")
    errors = found["pcie-errors", ADAPTER]
    assert errors["severity"] == "warning"
    assert (errors["facts"]["correctable"], errors["facts"]["nonfatal"]) == (7, 1)
    assert (errors["facts"]["root"], errors["facts"]["root_correctable"]) == ("0000:00:01.0", 7)
    assert found["command-timeouts", "sda"]["facts"] == {"timeouts": 16, "done": 4096}
    assert found["command-errors", "sda"]["severity"] == "advice"
    assert found["drive-cache", "sda"]["facts"] == {"cache": "write back"}
    assert found["host-credits", ADAPTER]["facts"]["value"] == 1000
    if os.cpu_count() != 1:
        assert found["msix-few", ADAPTER]["facts"]["vectors"] == 1
        assert "max_msix_vectors=1" in found["msix-few", ADAPTER]["evidence"]
    assert found["adapter-cache", ADAPTER]["facts"]["volumes"] == ["sdd"]


def test_a_target_is_checked_alone(built: Built) -> None:
    _, found = check(built, ailing(), "sdb")
    targets = {target for _, target in found} - {"machine"}
    assert targets <= {"sdb", ADAPTER}
    assert ("pcie-link", ADAPTER) in found


def test_an_adapter_on_a_shared_line(built: Built) -> None:
    code, found = check(built, shared_line())
    assert code == 1
    assert "msix_disable=1" in found["msix-off", ADAPTER]["evidence"]
    assert found["msix-off", ADAPTER]["severity"] == "warning"
    # This described card has a link, and no kernel that counts its errors.
    assert found["pcie-errors-not-counted", ADAPTER]["severity"] == "info"
