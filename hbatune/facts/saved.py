"""What udev rules of hbatune's keep of a disk in udev's database: old values, and that it was seen.

The database is on a memory file system and forgets a device that goes, so that what it holds is
of this boot and of this very appearance of the device.
"""

from collections.abc import Iterable, Mapping

import pyudev
from msgspec import Struct

from hbatune.facts.model import SAVED_PREFIX, Endpoint
from hbatune.facts.udev import context

SEEN = "HBATUNE_SEEN"
"""Set once the rules have been through with a disk as it appeared: its sequence number."""
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
            name.removeprefix(SAVED_PREFIX): str(text)
            for name, text in properties.items()
            if name.startswith(SAVED_PREFIX) and text
        }
        if texts:
            found[each.id] = Saved(texts, str(properties.get(_APPEARED, "")))
    return found


def holders() -> list[str]:
    """Return the sysfs paths of all disks of which udev's database still holds anything."""
    disks = context().list_devices(subsystem="block", DEVTYPE="disk")
    return [each.sys_path for each in disks if any(map(_is_ours, each.properties))]


def _is_ours(name: str) -> bool:
    return name == SEEN or name.startswith(SAVED_PREFIX)
