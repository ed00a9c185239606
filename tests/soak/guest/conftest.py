"""The fixtures and the guard of the lab's guest tests."""

from tests.lab.guest.conftest import scsi_debug, virtual_disks_wanted

__all__ = ["scsi_debug", "virtual_disks_wanted"]
