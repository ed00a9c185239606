"""The LUNs that the benches write to, and the state that each of their rounds begins with."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.lab.guest.kit import SCSI_DEBUG_MODEL, SYS, cat, scsi_disks
from tests.lab.guest.values import scheduler

WRITERS = 16
LUNS = 256
BEFORE = {"queue/scheduler": "none"}
"""What each round begins with; nr_requests is then the size of the tag set."""
AFTER = {"queue/scheduler": "mq-deadline", "queue/nr_requests": "2048"}
"""What a site's rules on top of `oltp` make of these virtual LUNs, in its order."""

UDEV = ("systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udevd.service")


def load(count: int = LUNS) -> list[str]:
    """Make the LUNs and return their disks. udev, slow under emulation, is stopped for good."""
    subprocess.run(["systemctl", "stop", *UDEV], check=True)
    options = (f"max_luns={count}", "dev_size_mb=8")
    subprocess.run(["modprobe", "scsi_debug", *options], check=True)
    disks = scsi_disks(SCSI_DEBUG_MODEL)
    assert len(disks) == count
    return disks


def directory(disk: str) -> Path:
    """Return a disk's own directory in sysfs, without links."""
    return (SYS / "block" / disk).resolve()


def put(disks: Iterable[str], values: dict[str, str], writers: int = WRITERS) -> float:
    """Have the bare writer set these values and return the seconds that it says it took."""
    done = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).with_name("bare_writer.py")), str(writers)),
            *(f"{name}={value}" for name, value in values.items()),
        ],
        input="\n".join(str(directory(disk)) for disk in disks),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def unlike(disks: Iterable[str], values: dict[str, str]) -> list[str]:
    """Return the disks that do not have exactly these values."""
    return [
        disk for disk in disks if any(_now(disk, name) != value for name, value in values.items())
    ]


def _now(disk: str, name: str) -> str:
    return scheduler(disk) if name == "queue/scheduler" else cat(f"block/{disk}/{name}")
