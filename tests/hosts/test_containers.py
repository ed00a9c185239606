"""Whole commands where /sys is read-only or not there, as in containers and images."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act.journal_format import seal_document
from tests.hosts import hbas, interrupts
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described
from tests.lab.wheel import CHECKOUT

Build = Callable[[Described], Path]
COMMAND = (sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())")
READ_ONLY = "mount -o remount,bind,ro /sys || exit 77"


def ran(root: Path, *steps: str) -> list[str]:
    """Return the lines that a shell prints on the machine; ``"$@"`` in it is hbatune."""
    script = "exec 2>&1\n" + "\n".join(steps)
    words = (*OWN_CONFIGURATION, "sh", "-c", script, "sh", *COMMAND)
    return run(root, words).decode().splitlines()


@pytest.mark.parametrize(
    "command",
    ["apply --profile oltp", "apply --profile oltp --no-probe --once", "install --profile oltp"],
)
def test_read_only_sys_refuses_changes(built: Build, command: str) -> None:
    output = ran(
        built(hbas.mpt3sas()),
        READ_ONLY,
        f'"$@" {command}; echo $?',
        "find /etc /var/lib/hbatune -type f -not -name ld.so.cache 2>/dev/null; true",
    )
    assert output == [
        "hbatune: /sys is mounted read-only, so no setting can be written; nothing was changed",
        "         many containers mount it so: run a privileged one with the host's /sys",
        "2",
    ]


def test_uninstall_empties_mounted_directories(built: Build) -> None:
    directories = ("/run/hbatune", "/var/lib/hbatune")
    output = ran(
        built(interrupts.two_nodes()),
        *(f"mkdir -p {path}; mount -t tmpfs -o mode=711 tmpfs {path}" for path in directories),
        '"$@" apply --profile oltp --no-probe --once irq50 >/dev/null',
        '"$@" uninstall >/dev/null; echo $?',
        f"find {' '.join(directories)}; cat /proc/irq/50/smp_affinity_list",
    )
    assert output == ["0", *directories, "5"]


HIDE = {
    place: f"mount -t tmpfs -o mode=755 tmpfs {place} || exit 77" for place in ("/sys", "/proc")
}
JOURNAL = "/var/lib/hbatune/journal.json"
EARLIER = seal_document(
    b'{"boot_id":"another","schema":"hbatune.journal/1","entries":[{"id":"a","target":"sda",'
    b'"adapter":null,"setting":"nomerges","before":0,"value":1}]}',
    1,
).decode()
"""A journal of another boot."""
PRERM = CHECKOUT / "debian/prerm"


def purged(root: Path, *steps: str) -> list[str]:
    """Run the script that dpkg runs first, with hbatune and py3clean in its PATH."""
    return ran(
        root,
        "mkdir /run/bin; PATH=/run/bin:$PATH",
        """printf '#!/bin/sh\\nexec "%s" -c "%s" "$@"\\n' "$1" "$3" >/run/bin/hbatune""",
        "printf '#!/bin/sh\\n' >/run/bin/py3clean; chmod +x /run/bin/*",
        *steps,
        f"sh {shlex.quote(str(PRERM))} remove; echo $?",
    )


@pytest.mark.parametrize("hidden", [("/sys",), ("/sys", "/proc")])
def test_untouched_image_uninstalls_without_sys(built: Build, hidden: tuple[str, ...]) -> None:
    output = purged(built(hbas.mpt3sas()), *(HIDE[place] for place in hidden))
    assert output == [
        "No service, udev rule or state of hbatune remains here; the package stays.",
        "0",
    ]


def test_earlier_boot_journal_allows_removal(built: Build) -> None:
    output = purged(
        built(hbas.mpt3sas()),
        "mkdir -p /var/lib/hbatune",
        f"printf '%s' '{EARLIER}' >{JOURNAL}",
        "rm -r /run/hbatune",
        HIDE["/sys"],
    )
    assert output[-1] == "0", output


@pytest.mark.parametrize("lost", ["", f"rm {JOURNAL}", HIDE["/proc"]], ids=["none", "file", "boot"])
def test_changed_machine_keeps_package(built: Build, lost: str) -> None:
    output = purged(
        built(hbas.mpt3sas()),
        '"$@" apply --profile oltp --no-probe >/dev/null',
        lost,
        HIDE["/sys"],
    )
    assert output[-1] == "1", output
    assert any("the package stays" in line for line in output)
