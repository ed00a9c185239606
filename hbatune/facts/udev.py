"""Read udev's database of disks through libudev.

Properties that hbatune's rules store there are valid for this boot and this appearance of the
device: the database is on a memory file system and forgets a removed device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hbatune.facts.model import SAVED_PREFIX, Endpoint
from hbatune.loader import ShortText

if TYPE_CHECKING:
    import pyudev

# Set once the rules have run for a disk that appeared, to the disk's sequence number.
SEEN_PROPERTY = "HBATUNE_SEEN"
# The settings that the rules' program could not set, each with a colon and a reason, or UNSTARTED.
UNSET_PROPERTY = "HBATUNE_UNSET"
UNSTARTED = "unstarted"
_APPEARED = "USEC_INITIALIZED"
# The number of disks at which searching the entire database for marks is cheaper.
_SEARCH_THRESHOLD = 16


@cache
def load_context() -> pyudev.Context:
    """Return udev's library, loaded once."""
    # pyudev takes only this function from ctypes.util. The original would run ldconfig, a process
    # that may be refused, and import modules that need 1 MiB of the daemon's memory.
    finder: Any = ModuleType("ctypes.util")
    finder.find_library = "lib{}.so.1".format
    sys.modules.setdefault("ctypes.util", finder)
    import pyudev  # most commands need only the names above

    if sys.modules["ctypes.util"] is finder:
        del sys.modules["ctypes.util"]
    return pyudev.Context()


class SavedTexts(Struct, frozen=True):
    """The saved texts, by property, and the µs since boot when udev first saw the device."""

    texts: Mapping[str, str]
    appeared: str


def read_saved_texts(endpoints: Iterable[Endpoint]) -> dict[str, SavedTexts]:
    """Return, by id, the saved values of these endpoints, without endpoints that lack them."""
    context = load_context()
    import pyudev

    marked, saved_by_id = list(endpoints), {}
    if len(marked) >= _SEARCH_THRESHOLD:  # one call of libudev then checks all
        paths = frozenset(find_marked_disks())
        marked = [endpoint for endpoint in marked if endpoint.sysfs in paths]
    for endpoint in marked:
        try:
            properties = pyudev.Devices.from_sys_path(context, endpoint.sysfs).properties
        except pyudev.DeviceNotFoundError:  # removed since it was surveyed
            continue
        # Each access to a property calls udev's library. Most disks have no mark, and without a
        # mark nothing is saved (boot/lines.py: mark_seen).
        texts = {}
        for name in properties if properties.get(SEEN_PROPERTY) else ():
            if name.startswith(SAVED_PREFIX) and (text := properties[name]):
                texts[name.removeprefix(SAVED_PREFIX)] = str(text)
        if texts:
            saved_by_id[endpoint.id] = SavedTexts(texts, str(properties.get(_APPEARED, "")))
    return saved_by_id


class UnsetSetting(Struct, frozen=True):
    """A setting that hbatune's udev rules could not set as a disk appeared.

    ``setting`` is None if udev did not start the rules' program. ``reason`` is a word of
    ``udev/hbatune-write.sh.j2``.
    """

    target: ShortText
    setting: ShortText | None
    reason: ShortText


def read_unset_settings() -> tuple[UnsetSetting, ...]:
    """Return the settings of disks that hbatune's udev rules could not set as the disk appeared."""
    unset = []
    devices = load_context().list_devices(subsystem="block").match_property(UNSET_PROPERTY, "?*")
    for device in devices:
        for word in str(device.properties[UNSET_PROPERTY]).split(","):
            setting, _, reason = word.rpartition(":")
            unset.append(UnsetSetting(device.sys_name, setting or None, reason))
    return tuple(unset)


def find_marked_disks() -> list[str]:
    """Return the sysfs paths of all disks that udev's rules have marked."""
    marked = load_context().list_devices(subsystem="block").match_property(SEEN_PROPERTY, "?*")
    return list(map(attrgetter("sys_path"), marked))
