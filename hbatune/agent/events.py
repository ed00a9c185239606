"""Which of udev's events mean that something is to be tuned. Pure.

A plain ``change`` never does: udev makes one up each time that a writer closes a disk, and tuning
upon it would undo what an administrator has just set.
"""

from collections.abc import Mapping

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
        case "block", "add" if properties.get("DEVTYPE") == "disk":
            return name
        case "block", "change" if properties.get("DM_ACTIVATION") == "1":
            return name
        case "nvme", "change" if properties.get("NVME_EVENT") == "connected":
            return name
        case "pci", "bind" if _serves_storage(properties.get("PCI_CLASS", "")):
            return name
    return None


def _serves_storage(text: str) -> bool:
    try:
        number = int(text, 16)
    except ValueError:
        return False
    return number >> 16 == _STORAGE or number >> 8 == _FIBRE_CHANNEL
