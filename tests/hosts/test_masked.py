"""A container that hides sysfs is told from a machine without disks."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts import interrupts
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Build = Callable[[Described], Path]

_MAIN = "import sys; from hbatune.cli import main; sys.exit(main())"


def ran(root: Path, words: str, before: str = "") -> tuple[int, str]:
    """Run a command on the machine, and return its exit code and its messages."""
    script = f'{before}"$@" {words} 2>/run/said >/dev/null; printf "%s\\n" "$?"; cat /run/said'
    printed = run(root, [*OWN_CONFIGURATION, "sh", "-c", script, "sh", sys.executable, "-c", _MAIN])
    code, _, messages = printed.decode().partition("\n")
    return int(code), messages


@pytest.mark.parametrize("words", ["list", "diff --profile oltp", "apply --profile oltp"])
def test_hidden_sys_class_exits_2(built: Build, words: str) -> None:
    root = built(interrupts.two_nodes())
    code, messages = ran(root, words, "mount -t tmpfs tmpfs /sys/class\n")
    assert code == 2
    assert messages.startswith("hbatune: /sys/class/block is missing")
    assert "run hbatune on the host" in messages


def test_machine_without_disks_exits_0(built: Build) -> None:
    root = built(Described())
    assert ran(root, "diff --profile oltp")[0] == 0
