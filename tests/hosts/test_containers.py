"""Whole commands where /sys is read-only or not there, as in containers and images."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts import hbas
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Build = Callable[[Described], Path]
COMMAND = (sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())")
READ_ONLY = "mount -o remount,bind,ro /sys || exit 77"
NO_SYS = "mount -t tmpfs -o ro tmpfs /sys || exit 77"


def ran(root: Path, *steps: str) -> list[str]:
    """Return the lines that a shell prints on the machine; ``"$@"`` in it is hbatune."""
    script = "exec 2>&1\n" + "\n".join(steps)
    words = (*OWN_CONFIGURATION, "sh", "-c", script, "sh", *COMMAND)
    return run(root, words).decode().splitlines()


@pytest.mark.parametrize(
    "command",
    ["apply --profile oltp", "apply --profile oltp --no-probe --once", "install --profile oltp"],
)
def test_a_read_only_sys_refuses_before_anything_changes(built: Build, command: str) -> None:
    said = ran(
        built(hbas.mpt3sas()),
        READ_ONLY,
        f'"$@" {command}; echo $?',
        "find /etc /var/lib/hbatune -type f -not -name ld.so.cache 2>/dev/null; true",
    )
    assert said == [
        "hbatune: /sys is mounted read-only, so no setting can be written; nothing was changed",
        "         many containers mount it so: run hbatune on the host",
        "2",
    ]
