"""Which of udev's events mean that something is to be looked at, and what the kernel resets by it.

Pure. An event does not say that a disk is new: udev can be asked to announce all of them again,
and the pass asks the disk itself. A plain ``change`` is nothing: udev makes one up each time that
a writer closes a disk.
"""

from collections.abc import Mapping

from msgspec import Struct

from hbatune.facts.place import MULTIPATH_UUID, is_virtual
from hbatune.settings.table import Cause

_STORAGE = 0x01
"""PCI base class of mass storage controllers."""
_FIBRE_CHANNEL = 0x0C04
_PATH_EVENT = "PATH_"
"""How ``DM_ACTION`` begins where a path failed or came back (drivers/md/dm-uevent.c)."""


class Event(Struct, frozen=True):
    """What is to be looked at, and what the kernel has reset values by, None where by nothing."""

    name: str
    cause: Cause | None = None


def heard(
    action: str | None, subsystem: str | None, name: str, properties: Mapping[str, str]
) -> Event | None:
    """Return what an event of udev's means, None where it is nothing of ours.

    A disk that is announced, a map that is activated or gets another table, an NVMe controller that
    is connected again (drivers/nvme/host/core.c: nvme_start_ctrl), an adapter that gets its driver.
    """
    match subsystem, action:
        case "block", "add" if _is_disk(properties) or _is_activated_map(properties):
            return Event(name)
        case "block", "change" if _is_activated_map(properties):
            of_a_path = properties.get("DM_ACTION", "").startswith(_PATH_EVENT)
            return Event(name, None if of_a_path else Cause.LOADED)
        case "nvme", "change" if properties.get("NVME_EVENT") == "connected":
            return Event(name, Cause.CONNECTED)
        case "pci", "bind" if _serves_storage(properties.get("PCI_CLASS", "")):
            return Event(name, Cause.BOUND)
    return None


def _is_disk(properties: Mapping[str, str]) -> bool:
    """Whether it is a whole disk with something behind it: no loop, ram or zram."""
    whole = properties.get("DEVTYPE") == "disk"
    return whole and not is_virtual(properties.get("DEVPATH", ""))


def _is_activated_map(properties: Mapping[str, str]) -> bool:
    activated = properties.get("DM_ACTIVATION") == "1"
    return activated and properties.get("DM_UUID", "").startswith(MULTIPATH_UUID)


def _serves_storage(text: str) -> bool:
    try:
        number = int(text, 16)
    except ValueError:
        return False
    return number >> 16 == _STORAGE or number >> 8 == _FIBRE_CHANNEL
