"""Fixtures of the benches that run in the guest."""

import platform
import subprocess
from collections.abc import Callable

import pytest

from tests.lab.guest.conftest import scsi_debug, virtual_disks_wanted
from tests.lab.guest.kit import settle

__all__ = ["full_lun", "scsi_debug", "series", "virtual_disks_wanted"]


@pytest.fixture(scope="session")
def series() -> str:
    """The kernel's series, such as ``6.12``."""
    return ".".join(platform.release().split(".")[:2])


@pytest.fixture
def full_lun(scsi_debug: Callable[..., list[str]]) -> str:
    """Return a LUN with a fixed time for each I/O, full as a disk in use.

    On an empty disk, an apply reads 64 blocks, one after the other.
    """
    from tests.lab.guest.known import SERVICE_NS  # the host reads this file, too

    [disk] = scsi_debug(max_luns=1, max_queue=192, delay=0, ndelay=SERVICE_NS)
    words = ["dd", "if=/dev/urandom", f"of=/dev/{disk}", "bs=1M", "oflag=direct"]
    subprocess.run(words, check=False, stderr=subprocess.DEVNULL)  # it ends at the disk's end
    settle()  # udev reads a written disk, and a busy disk is not compared
    return disk
