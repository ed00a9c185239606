"""Over real reboots: tuned at the first login, and as it was before once hbatune is gone."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.lab.guest import reboots
from tests.lab.guest.command import hbatune, installed
from tests.lab.guest.service import is_active, systemctl
from tests.lab.guest.values import BLOCK, cat, everything, scheduler

KERNELS = ("6.1",)
_NUMBERED = re.compile(r"(host|target|ata|nvme-subsys|nvme|port-|end_device-)\d+(c\d+)?")
_ADDRESS = re.compile(r"\b\d+:(\d+:\d+:\d+)\b")


def place(disk: str) -> str:
    """Return where a disk hangs: its name is another one after each boot."""
    path = str((BLOCK / disk).resolve())
    found = _ADDRESS.sub(r"\1", _NUMBERED.sub(r"\1", path))
    return found if disk.startswith("nvme") else found.rpartition("/")[0]


def by_place() -> dict[str, str]:
    """Return every value of every disk that may be set, by where the disk hangs."""
    found = {}
    for name, text in everything().items():
        disk, _, attribute = name.partition("/")
        found[f"{place(disk)} {attribute}"] = text
    return found


def files() -> list[str]:
    """Return every path that has to do with hbatune and is not hbatune itself."""
    found = []
    for top in ("/etc", "/usr/lib/systemd", "/usr/lib/udev", "/var", "/run"):
        paths = (str(path) for path in Path(top).rglob("*hbatune*"))
        found += [path for path in paths if not path.startswith(("/run/udev", "/run/log"))]
    return sorted(found)


def udev_database() -> str:
    """Return all that udev keeps of all devices."""
    words = ["udevadm", "info", "--export-db"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.deadline(900)
def test_reboot_tunes_and_uninstall_restores() -> None:
    kept = reboots.kept()
    match kept.get("stage"):
        case None:
            hbatune("uninstall")  # the active profile and the history that other tests left
            before, there = by_place(), files()
            reboots.boot_as_a_server()
            done = installed("install", "--profile", "oltp")
            assert done.code == 0, done.out + done.err
            reboots.reboot(stage="installed", before=before, there=there)
        case "installed":
            systemctl("is-system-running", "--wait", check=False)
            look_at_a_tuned_machine()
            done = hbatune("uninstall")
            assert done.code == 0, done.out + done.err
            assert by_place() == kept["before"]
            assert "HBATUNE" not in udev_database()
            reboots.reboot(**{**kept, "stage": "gone"})
        case "gone":
            systemctl("is-system-running", "--wait", check=False)
            reboots.boot_as_before()
            assert by_place() == kept["before"]
            assert files() == kept["there"]


def look_at_a_tuned_machine() -> None:
    """Everything is as the profile says, by cat; and no boot waited for it."""
    assert is_active()
    planned = hbatune("diff", "--json")
    assert planned.code == 0, planned.out
    rows = [row for row in planned.json["rows"] if row["state"] == "ok"]
    assert {row["setting"] for row in rows} >= {"scheduler", "nr_requests"}
    for row in rows:
        if row["setting"] == "scheduler":
            assert scheduler(row["target"]) == row["value"]
        elif row["setting"] == "nr_requests":
            assert cat(row["target"], "queue/nr_requests") == str(row["value"])
    chain = ["systemd-analyze", "critical-chain", "--no-pager", "multi-user.target"]
    said = subprocess.run(chain, capture_output=True, text=True, check=True).stdout
    assert "multi-user.target" in said
    assert "hbatune" not in said
