"""Reads what udev keeps of disks in its database, through udev's own library.

Properties that hbatune's rules keep there are of this boot and of this very appearance of the
device: the database is on a memory file system and forgets a device that is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.facts.model import SAVED_PREFIX, Endpoint

if TYPE_CHECKING:
    import pyudev

SEEN = "HBATUNE_SEEN"
"""Set once the rules have run for a disk that appeared, to the disk's sequence number."""
_APPEARED = "USEC_INITIALIZED"
_MANY = 16
"""Disks of which it is cheaper to look through the whole database for marks."""


@cache
def context() -> pyudev.Context:
    """Return udev's library, loaded once.

    pyudev runs ldconfig each time to find it, a process that may be refused. The name is fixed.
    """
    import pyudev  # most commands need no more of udev than the names above
    from pyudev._ctypeslib import utils

    utils.find_library = "lib{}.so.1".format
    return pyudev.Context()


class Saved(Struct, frozen=True):
    """The saved texts, by the property's name without prefix, and when udev first saw the device.

    ``appeared`` is in µs since boot.
    """

    texts: Mapping[str, str]
    appeared: str


def saved(endpoints: Iterable[Endpoint]) -> dict[str, Saved]:
    """Return, by id, the values saved of these endpoints; others are left out."""
    import pyudev

    found = {}
    for each in _marked(list(endpoints)):
        try:
            properties = pyudev.Devices.from_sys_path(context(), each.sysfs).properties
        except pyudev.DeviceNotFoundError:  # removed since it was surveyed
            continue
        # Each look into the properties is a call of udev's library, and most disks have no mark,
        # without which nothing is saved (boot/lines.py: mark_seen).
        if not properties.get(SEEN):
            continue
        names = [name for name in properties if name.startswith(SAVED_PREFIX)]
        texts = {
            name.removeprefix(SAVED_PREFIX): str(text)
            for name in names
            if (text := properties[name])
        }
        if texts:
            found[each.id] = Saved(texts, str(properties.get(_APPEARED, "")))
    return found


def _marked(endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Return the endpoints that may have a mark; of many, one call of udev's library tells."""
    if len(endpoints) < _MANY:
        return endpoints
    paths = frozenset(marked_disks())
    return [endpoint for endpoint in endpoints if endpoint.sysfs in paths]


def marked_disks() -> list[str]:
    """Return the sysfs paths of all disks that udev's rules have marked."""
    marked = context().list_devices(subsystem="block").match_property(SEEN, "?*")
    return [each.sys_path for each in marked]
