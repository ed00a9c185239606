"""Enumerates the devices with udev. It gives their places; hardly any attribute is read here."""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.attributes import read, word
from hbatune.facts.place import (
    MULTIPATH_UUID,
    Branch,
    Place,
    branch,
    is_head,
    is_virtual,
    name_of,
    place,
)
from hbatune.facts.stack import Stack, hidden_paths, read_slaves
from hbatune.facts.udev import context

_NOT_OURS = {"sr", "fd", "loop", "ram", "zram", "md", "nbd"}
_UUID = "dm/uuid"
_BLOCK = "/sys/class/block"
"""There whenever the kernel has a block layer (block/genhd.c: genhd_device_init)."""


class Devices(Struct, frozen=True):
    """The devices of a machine, by sysfs directory, and how they are stacked, by kernel name.

    ``disks`` are all whole block devices by name; ``places`` those that may be endpoints;
    ``maps`` those that join paths; ``servers`` the branches that end in a SCSI host or an NVMe
    controller, whether or not a disk is on them; ``parallel`` the targets on a parallel bus.
    """

    disks: Mapping[str, str]
    places: Mapping[str, Place]
    maps: Mapping[str, str]
    servers: tuple[Branch, ...]
    parallel: frozenset[str]
    stack: Stack


def find() -> Devices:
    """Enumerate the machine's storage: block devices, the hidden NVMe paths too, and adapters.

    UsageError if sysfs is hidden: a machine without any disk has the class, but an empty one.
    """
    if not os.path.isdir(_BLOCK):
        raise UsageError(
            f"{_BLOCK} is not there, so that no disk can be seen",
            hint="it is hidden in many containers: run hbatune on the host",
        )
    # Not matched by DEVTYPE: for that libudev would open every one of them.
    block = set(_directories("block"))
    partitions = {directory for directory in block if os.path.dirname(directory) in block}
    disks = {name_of(directory): directory for directory in sorted(block - partitions)}
    places = {d: place(d) for name, d in disks.items() if _may_be_endpoint(name, d)}
    heads = {name_of(directory): directory for directory in places if is_head(directory)}
    # Only virtual devices stand on others; the folder of a real disk need not be read.
    slaves = {name: read_slaves(d, disks) for name, d in disks.items() if is_virtual(d)}
    maps = {name: disks[name] for name in slaves if _joins(disks[name])}
    hosts = (name.rpartition("/scsi_host/")[0] for name in _directories("scsi_host"))
    servers = {branch(d) for d in [*hosts, *_directories("nvme")]}
    return Devices(
        disks=disks,
        places={d: found for d, found in places.items() if not is_head(d)},
        maps=heads | maps,
        servers=tuple(sorted(servers, key=lambda server: server.adapter or "")),
        parallel=frozenset(name_of(d) for d in _directories("spi_transport")),
        stack=Stack(slaves, hidden_paths(heads, disks)),
    )


def _directories(subsystem: str) -> Iterator[str]:
    for device in context().list_devices(subsystem=subsystem):
        yield str(device.sys_path)


def _may_be_endpoint(name: str, directory: str) -> bool:
    """Whether the block device has hardware behind it, and is no optical drive and no floppy."""
    return not is_virtual(directory) and name.rstrip("0123456789") not in _NOT_OURS


def _joins(directory: str) -> bool:
    """Whether a block device is a multipath map of device-mapper."""
    uuid = word(read(directory, (_UUID,)), _UUID)
    return uuid.startswith(MULTIPATH_UUID)
