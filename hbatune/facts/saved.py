"""What udev rules of hbatune's saved of a disk before they wrote to it, in udev's database.

The database is on a memory file system and forgets a device that goes, so that what it holds is
of this boot and of this very appearance of the device.
"""

from collections.abc import Iterable, Mapping

import pyudev
from msgspec import Struct

from hbatune.facts.model import Endpoint
from hbatune.facts.udev import context

PREFIX = "HBATUNE_WAS_"
_APPEARED = "USEC_INITIALIZED"


class Saved(Struct, frozen=True):
    """Texts by what follows the prefix, and when udev first saw the device (µs since boot)."""

    texts: Mapping[str, str]
    appeared: str


def saved(endpoints: Iterable[Endpoint]) -> dict[str, Saved]:
    """Return by id what was saved of these endpoints, where anything was."""
    found = {}
    for each in endpoints:
        try:
            properties = pyudev.Devices.from_sys_path(context(), each.sysfs).properties
        except pyudev.DeviceNotFoundError:
            continue
        texts = {
            name.removeprefix(PREFIX): str(text)
            for name, text in properties.items()
            if name.startswith(PREFIX) and text
        }
        if texts:
            found[each.id] = Saved(texts, str(properties.get(_APPEARED, "")))
    return found


def holders() -> list[str]:
    """Return the sysfs paths of all disks of which udev's database still holds anything."""
    disks = context().list_devices(subsystem="block", DEVTYPE="disk")
    return [
        each.sys_path for each in disks if any(name.startswith(PREFIX) for name in each.properties)
    ]
