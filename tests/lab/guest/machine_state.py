"""The values and files of a guest, and the look at a tuned one."""

import re
import subprocess
from pathlib import Path

from tests.lab.guest.command import hbatune
from tests.lab.guest.service import is_active
from tests.lab.guest.values import BLOCK, cat, everything, scheduler

_NUMBERED = re.compile(r"(host|target|ata|nvme-subsys|nvme|port-|end_device-)\d+(c\d+)?")


_ADDRESS = re.compile(r"\b\d+:(\d+:\d+:\d+)\b")


def place(disk: str) -> str:
    """Return where a disk hangs: its name is another one after each boot."""
    path = str((BLOCK / disk).resolve())
    location = _ADDRESS.sub(r"\1", _NUMBERED.sub(r"\1", path))
    return location if disk.startswith("nvme") else location.rpartition("/")[0]


def by_place() -> dict[str, str]:
    """Return every value of every disk that may be set, by where the disk hangs."""
    values = {}
    for name, text in everything().items():
        disk, _, attribute = name.partition("/")
        values[f"{place(disk)} {attribute}"] = text
    return values


def list_files() -> list[str]:
    """Return every path that has to do with hbatune and is not hbatune itself."""
    files = []
    for top in ("/etc", "/usr/lib/systemd", "/usr/lib/udev", "/var", "/run"):
        paths = (str(path) for path in Path(top).rglob("*hbatune*"))
        files += [path for path in paths if not path.startswith(("/run/udev", "/run/log"))]
    return sorted(files)


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
    output = subprocess.run(chain, capture_output=True, text=True, check=True).stdout
    assert "multi-user.target" in output
    assert "hbatune" not in output


_LOOKED_AT = ("/etc", "/usr/lib/systemd", "/usr/lib/udev", "/var/lib", "/run/systemd/system")


_OTHERS = ("/etc/mtab", "/var/lib/systemd", "/var/lib/dbus")


def measure_files() -> dict[str, int]:
    """Every path where hbatune may leave something, with its size."""
    sizes = {}
    for top in _LOOKED_AT:
        for path in Path(top).rglob("*"):
            if not str(path).startswith(_OTHERS):
                sizes[str(path)] = path.lstat().st_size if not path.is_dir() else 0
    return sizes
