"""Queue depths that drivers put back without an event, read as cheaply as can be.

The file of a depth is a field of the SCSI device's and waits for nothing, whatever a disk does
(drivers/scsi/scsi_sysfs.c: sdev_show_queue_depth): it is read without a worker.
"""

import os
from collections.abc import Iterable

from hbatune.facts.families import family_of
from hbatune.facts.family import Family

_HOSTS = "/sys/class/scsi_host"
_BLOCK = "/sys/class/block"
_ROOM = 64
"""Bytes: more than any depth and any driver's name takes."""


def queue_depths(targets: Iterable[str]) -> dict[str, int]:
    """Return the depth of each of these disks, by kernel name; those that are gone are left out."""
    return {target: depth for target in targets if (depth := _depth(target)) is not None}


def family_of_host(name: str) -> Family:
    """Return the family of a SCSI host (``host0``), the generic one where it is gone."""
    return family_of(_read(f"{_HOSTS}/{name}/proc_name").decode("ascii", "replace").strip())


def _depth(target: str) -> int | None:
    try:
        return int(_read(f"{_BLOCK}/{target}/device/queue_depth"))
    except ValueError:
        return None


def _read(path: str) -> bytes:
    """Return the beginning of a file, nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _ROOM)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
