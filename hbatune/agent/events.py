"""Which of udev's events mean that something is to be tuned. Pure.

A plain ``change`` never does: udev makes one up each time that a writer closes a disk, and tuning
upon it would undo what an administrator has just set.
"""

from collections.abc import Mapping

from hbatune.facts.place import MULTIPATH_UUID, is_virtual

_STORAGE = 0x01
"""PCI base class of mass storage controllers."""
_FIBRE_CHANNEL = 0x0C04


def tuned_upon(
    action: str | None, subsystem: str | None, name: str, properties: Mapping[str, str]
) -> str | None:
    """Return the name of what is to be tuned upon an event, None where it is nothing of ours.

    A disk that appears, a map that is activated or gets another table, an NVMe controller that is
    connected again (drivers/nvme/host/core.c: nvme_start_ctrl), an adapter that gets its driver.
    """
    match subsystem, action:
        case "block", "add" if _is_disk(properties):
            return name
        case "block", "add" | "change" if _is_activated_map(properties):
            return name
        case "nvme", "change" if properties.get("NVME_EVENT") == "connected":
            return name
        case "pci", "bind" if _serves_storage(properties.get("PCI_CLASS", "")):
            return name
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
