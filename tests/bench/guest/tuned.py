"""Debian's tuned, told to set the same values: its one-shot mode, which applies and ends."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.bench.guest.luns import AFTER, directory

NAME = "same-values"
COMMAND = ("tuned", "--profile", NAME)

_MAIN = Path("/etc/tuned/tuned-main.conf")
_PROFILE = Path("/etc/tuned") / NAME / "tuned.conf"


def configure(disks: Sequence[str]) -> None:
    """Write a profile with these values for these disks, and switch the daemon mode off."""
    host = next(part for part in directory(disks[0]).parents if part.name.startswith("host"))
    _PROFILE.parent.mkdir(parents=True)
    _PROFILE.write_text(
        f"[main]\nsummary=the values of oltp\n\n"
        f"[disk]\ndynamic=0\ndevices={','.join(disks)}\nelevator={AFTER['queue/scheduler']}\n\n"
        f"[sysfs]\npriority=10\n"
        f"{host}/target*/*/block/*/queue/nr_requests={AFTER['queue/nr_requests']}\n"
    )
    _MAIN.write_text(_MAIN.read_text().replace("daemon = 1", "daemon = 0"))


def version() -> str:
    """Return Debian's version of it."""
    return subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", "tuned"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
