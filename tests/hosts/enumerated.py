"""Run in a namespace: the same devices by hbatune and by libudev, the referee.

``python -m tests.hosts.enumerated`` compares the tree that stands in for /sys.
"""

from pathlib import Path

import msgspec
import pyudev

from hbatune.facts import devices

CLASSES = ("block", "scsi_host", "nvme", "spi_transport")
SYS = Path("/sys")


def by_udev(name: str) -> list[str]:
    """Return the directories of a class's devices as libudev finds them."""
    return sorted(device.sys_path for device in pyudev.Context().list_devices(subsystem=name))


def compare() -> None:
    """Fail where a class, or what is made of all of them, is not the same either way."""
    for name in CLASSES:
        assert devices.list_directories(name) == by_udev(name), name
    assert encoded() == encoded(by_udev), "the devices are not the same byte for byte"


def encoded(source=devices.list_directories) -> bytes:  # type: ignore[no-untyped-def]
    """Return all that is known of the devices, found by this source, in bytes."""
    devices.list_directories = source
    enumerated_devices = devices.find_devices()
    return msgspec.json.encode(
        {
            **{
                name: getattr(enumerated_devices, name)
                for name in ("disks", "places", "maps", "branches")
            },
            "below": enumerated_devices.stack.below,
            "holders": {
                name: enumerated_devices.stack.holders(name) for name in enumerated_devices.disks
            },
        }
    )


if __name__ == "__main__":
    compare()
