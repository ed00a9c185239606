"""The ways in which a disk comes back with the kernel's own values."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyudev

from tests.lab.guest.kit import SCSI_DEBUG, add_host, scsi_disks, settle, wait_a_moment
from tests.lab.guest.values import BLOCK, cat, disks, nvme_queues, put, scheduler

SITE = Path("/etc/hbatune/rules.d/maps.toml")
ON_MAPS = """
[[rule]]
name = "maps-read-ahead"
when = { kind = "map" }
setting = "read_ahead_kb"
value = 512
because = "a test"
source = "site"
"""
_ON_NVME = Path("/etc/hbatune/rules.d/nvme.toml")
_SHORTER = (
    ON_MAPS.replace("maps-", "nvme-")
    .replace('kind = "map"', 'protocol = "nvme"')
    .replace("512", "64")
)
_NVME = re.compile(r"nvme\d+$")


class Way(Protocol):
    """``spoil`` is before, ``happen`` the cause; the event that ``heralds`` it names the disk."""

    def spoil(self) -> None: ...
    def happen(self) -> None: ...
    def heralds(self, device: pyudev.Device) -> bool: ...
    def right(self, name: str) -> bool: ...


class _Added:
    """A disk that is new to the kernel."""

    def heralds(self, device: pyudev.Device) -> bool:
        """Whether this is the event of a disk."""
        return (device.action, device.device_type) == ("add", "disk")

    def right(self, name: str) -> bool:
        """Whether the disk has the scheduler that it is to have."""
        return scheduler(name) == "mq-deadline"


class Rescan(_Added):
    """A LUN that was deleted is found again."""

    def spoil(self) -> None:
        """Delete it."""
        [disk] = scsi_disks("scsi_debug")
        host = (BLOCK / disk / "device").resolve().name.partition(":")[0]
        self._scan = Path(f"/sys/class/scsi_host/host{host}/scan")
        put(disk, "device/delete", "1")

    def happen(self) -> None:
        """Have its host look for it."""
        self._scan.write_text("- - -")


class Bound(_Added):
    """An adapter gets its driver again."""

    def __init__(self) -> None:
        disk = next(name for name in disks() if "virtio" in str((BLOCK / name).resolve()))
        parents = (BLOCK / disk).resolve().parents
        self._adapter = next(parent for parent in parents if parent.name.startswith("virtio"))
        self._driver = (self._adapter / "driver").resolve()

    def spoil(self) -> None:
        """Take the driver away."""
        (self._driver / "unbind").write_text(self._adapter.name)

    def happen(self) -> None:
        """Give it back."""
        (self._driver / "bind").write_text(self._adapter.name)


class Reset:
    """An NVMe controller is reset, upon which the kernel sets its disk's read-ahead anew."""

    def __init__(self) -> None:
        self.disk = nvme_queues()[0]
        parents = (BLOCK / self.disk).resolve().parents
        self._controller = next(parent for parent in parents if _NVME.match(parent.name))

    def spoil(self) -> None:
        """Leave it: the reset does it."""

    def happen(self) -> None:
        """Reset the controller."""
        (self._controller / "reset_controller").write_text("1")

    def heralds(self, device: pyudev.Device) -> bool:
        """Whether this is the event of a controller that is connected again."""
        return bool(device.get("NVME_EVENT") == "connected")

    def right(self, name: str) -> bool:
        """Whether the disk has the site's read-ahead; the event names its controller."""
        return cat(self.disk, "queue/read_ahead_kb") == "64"


class Reloaded:
    """A map gets its table anew, whose read-ahead somebody chose."""

    def __init__(self, name: str) -> None:
        self._map = name

    def spoil(self) -> None:
        """Set the read-ahead."""
        put(self._map, "queue/read_ahead_kb", "64")

    def happen(self) -> None:
        """Load it once more. `multipath -r` of Debian 13 returned with the table as it was."""
        name = cat(self._map, "dm/name")
        table = subprocess.run(["dmsetup", "table", name], check=True, capture_output=True).stdout
        subprocess.run(["dmsetup", "reload", name], input=table, check=True)
        subprocess.run(["dmsetup", "resume", name], check=True)

    def heralds(self, device: pyudev.Device) -> bool:
        """Whether this is the event of a table that is in use."""
        return (device.sys_name, device.get("DM_ACTIVATION")) == (self._map, "1")

    def right(self, name: str) -> bool:
        """Whether the map has the read-ahead that the site's rule wants."""
        return cat(self._map, "queue/read_ahead_kb") == "512"


def again(way: Way) -> str:
    """Have it happen once; return whose event it was, as soon as a listener hears of it."""
    monitor = pyudev.Monitor.from_netlink(pyudev.Context())
    way.spoil()
    settle()
    monitor.start()
    way.happen()
    while not way.heralds(device := monitor.poll()):
        pass
    return str(device.sys_name)


def wait_until_right(way: Way, name: str) -> None:
    """Wait until a value is right: multipathd may load a table once more by itself."""
    while not way.right(name):
        wait_a_moment()  # the harness ends a test that takes too long


@contextmanager
def less_read_ahead(protocol: str = "nvme") -> Iterator[None]:
    """Have a rule of the site's want less read-ahead than the kernel gives at a reset or rescan."""
    _ON_NVME.parent.mkdir(parents=True, exist_ok=True)
    _ON_NVME.write_text(_SHORTER.replace('"nvme"', f'"{protocol}"'))
    try:
        yield
    finally:
        _ON_NVME.unlink()


@contextmanager
def two_hosts() -> Iterator[None]:
    """Give scsi_debug, loaded with vpd_use_hostno=0, a second host: the same LUN once more.

    A rule of the site's wants another read-ahead of maps as long.
    """
    SITE.parent.mkdir(parents=True, exist_ok=True)
    SITE.write_text(ON_MAPS)
    add_host()
    try:
        yield
    finally:
        SITE.unlink()
        (SCSI_DEBUG / "add_host").write_text("-1")
        settle()
