"""Reads udev's links, and the properties that hbatune's rules keep in udev's database.

The database is on a memory file system and forgets a device that is removed, so its contents are
of this boot and of this very appearance of the device.
"""

import os
from collections.abc import Iterable, Mapping
from functools import cache

import pyudev
from msgspec import Struct

from hbatune.facts.model import SAVED_PREFIX, Endpoint

SEEN = "HBATUNE_SEEN"
"""Set once the rules have run for a disk that appeared, to the disk's sequence number."""
_APPEARED = "USEC_INITIALIZED"

_DEV = "/dev/"
_BLOCK = "/sys/class/block"


@cache
def context() -> pyudev.Context:
    """Return udev's library, loaded once: pyudev runs ldconfig each time that it looks for it."""
    return pyudev.Context()


class Saved(Struct, frozen=True):
    """The saved texts, by the property's name without prefix, and when udev first saw the device.

    ``appeared`` is in µs since boot.
    """

    texts: Mapping[str, str]
    appeared: str


def saved(endpoints: Iterable[Endpoint]) -> dict[str, Saved]:
    """Return, by id, the values saved of these endpoints; others are left out."""
    found = {}
    for each in endpoints:
        try:
            properties = pyudev.Devices.from_sys_path(context(), each.sysfs).properties
        except pyudev.DeviceNotFoundError:  # removed since it was surveyed
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
    """Return the sysfs paths of all disks with properties of hbatune in udev's database."""
    disks = context().list_devices(subsystem="block", DEVTYPE="disk")
    return [each.sys_path for each in disks if any(map(_is_ours, each.properties))]


def _is_ours(name: str) -> bool:
    return name == SEEN or name.startswith(SAVED_PREFIX)


def is_link(name: str) -> bool:
    """Whether a name is the path of a link below ``/dev`` and no kernel name, by its form."""
    return name.startswith(_DEV) and "/" in name.removeprefix(_DEV)


def followed(name: str) -> str:
    """Return the kernel name of the disk that a link below ``/dev`` leads to.

    A link to a partition means the disk that it is on. Any other name, and a link that does not
    exist (now), is returned as it is.
    """
    if not name.startswith(_DEV) or not os.path.islink(name):
        return name
    node = os.path.realpath(name)
    # A link out of /dev, or a dangling one, names no disk: the caller reports the name.
    if not node.startswith(_DEV) or not os.path.exists(node):
        return name
    kernel = node.removeprefix(_DEV).replace("/", "!")
    directory = os.path.realpath(f"{_BLOCK}/{kernel}")
    if os.path.exists(f"{directory}/partition"):  # block/partitions/core.c: part_partition_show
        return os.path.basename(os.path.dirname(directory))
    return kernel
