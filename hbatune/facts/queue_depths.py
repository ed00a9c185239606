"""Read what the daemon itself needs of sysfs: queue depths, and the identities of files.

A depth is a field of the SCSI device. Reading its file never waits, even if the disk hangs
(drivers/scsi/scsi_sysfs.c: sdev_show_queue_depth), so no worker is needed.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress

from hbatune.facts.attributes import read_text
from hbatune.facts.families import family_of
from hbatune.facts.family import Family
from hbatune.facts.model import TargetKind

SYSFS = "/sys"
_HOSTS = f"{SYSFS}/class/scsi_host"
_BLOCK = f"{SYSFS}/class/block"
# The maximum number of open files, of the 1024 that a service may have (DefaultLimitNOFILE=).
MAX_OPEN_FILES = 256
# Bytes: more than any depth.
_MAX_BYTES = 64
_CLASSES = {"endpoint": "block", "controller": "nvme", "host": "scsi_host"}
"""The classes of targets in sysfs, by ``TargetKind``."""


def find_inodes(kind: TargetKind, target: str, paths: Iterable[str]) -> list[int]:
    """Return the inode numbers of a target's files: unique (kernfs/dir.c: __kernfs_new_node)."""
    inodes = []
    for path in paths if kind in _CLASSES else ():
        with suppress(OSError):
            inodes.append(os.stat(f"{SYSFS}/class/{_CLASSES[kind]}/{target}/{path}").st_ino)
    return inodes


class DepthFiles:
    """The files of queue depths. Mutable: they stay open, since opening takes most of the time.

    An open file keeps neither a disk nor its driver's module (fs/kernfs/file.c: reading the file of
    a removed device returns ENODEV).
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def read(self, targets: Collection[str]) -> dict[str, int]:
        """Return the depth of each of these disks, by kernel name, without removed disks."""
        for target in self._open.keys() - targets:
            self._close_file(target)
        depths = {}
        for target in targets:
            if (depth := self._read_depth(target)) is not None:
                depths[target] = depth
        return depths

    def _read_depth(self, target: str) -> int | None:
        try:
            if target not in self._open:
                path = f"{_BLOCK}/{target}/device/queue_depth"
                self._open[target] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._open[target], _MAX_BYTES, 0))
        except (OSError, ValueError):
            self._close_file(target)
            return None
        finally:
            if len(self._open) > MAX_OPEN_FILES:
                self._close_file(target)

    def _close_file(self, target: str) -> None:
        descriptor = self._open.pop(target, None)
        if descriptor is not None:
            os.close(descriptor)


def find_host_family(name: str) -> Family:
    """Return the family of a SCSI host (``host0``), or the generic family if it was removed."""
    return family_of(read_text(f"{_HOSTS}/{name}/proc_name").strip())
