"""udev's events: which of them call for a pass, what the kernel resets by them, and their source.

An event does not say that a disk is new: udev can be asked to announce all of them again,
and the pass asks the disk itself. A plain ``change`` calls for nothing: udev makes one up each time
that a writer closes a disk.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from hbatune.facts.place import MULTIPATH_UUID, is_virtual
from hbatune.settings.table import Cause

SUBSYSTEMS = ("block", "nvme", "pci")

_STORAGE = 0x01
"""PCI base class of mass storage controllers."""
_FIBRE_CHANNEL = 0x0C04
_PATH_EVENT = "PATH_"
"""How ``DM_ACTION`` begins where a path failed or came back (drivers/md/dm-uevent.c)."""


class DeviceEvent(Struct, frozen=True):
    """What has to be looked at, and what the kernel has reset values by, None where by nothing."""

    name: str
    cause: Cause | None = None


def relevant_event(
    action: str | None, subsystem: str | None, name: str, properties: Mapping[str, str]
) -> DeviceEvent | None:
    """Return what an event of udev's means, None where it calls for nothing.

    A disk that is announced, a map that is activated or gets another table, an NVMe controller that
    is connected again (drivers/nvme/host/core.c: nvme_start_ctrl), an adapter that gets its driver.
    """
    match subsystem, action:
        case "block", "add" if _is_disk(properties) or _is_activated_map(properties):
            return DeviceEvent(name)
        case "block", "change" if _is_activated_map(properties):
            of_a_path = properties.get("DM_ACTION", "").startswith(_PATH_EVENT)
            return DeviceEvent(name, None if of_a_path else Cause.LOADED)
        case "nvme", "change" if properties.get("NVME_EVENT") == "connected":
            return DeviceEvent(name, Cause.CONNECTED)
        case "pci", "bind" if _serves_storage(properties.get("PCI_CLASS", "")):
            return DeviceEvent(name, Cause.BOUND)
    return None


class EventBatch(Struct, frozen=True):
    """What has come since the last time, nothing twice, and whether events were lost."""

    events: tuple[DeviceEvent, ...]
    overrun: bool


class UdevMonitor:
    """Listens to udev with room for ``buffer`` bytes of events; readable when there are some.

    They come after udev has done with them, so that its own rules have been applied.
    """

    def __init__(self, buffer: int) -> None:
        import pyudev  # only the daemon listens: commands share this module's values

        from hbatune.facts.udev import context

        self._monitor = pyudev.Monitor.from_netlink(context())
        for subsystem in SUBSYSTEMS:
            self._monitor.filter_by(subsystem)
        # SO_RCVBUFFORCE; without CAP_NET_ADMIN the kernel's own limit stays.
        with contextlib.suppress(OSError):
            self._monitor.set_receive_buffer_size(buffer)
        self._monitor.start()
        self._socket = socket.socket(fileno=os.dup(self._monitor.fileno()))

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return int(self._monitor.fileno())

    def take(self) -> EventBatch:
        """Take all events that wait."""
        events: dict[DeviceEvent, None] = {}
        overrun = False
        receive = partial(self._monitor.poll, 0)
        while True:
            try:
                device = receive()
            except OSError as error:
                # netlink(7): the kernel dropped what did not fit, and says so once.
                if errno.ENOBUFS not in (error.errno, self._pending_error()):
                    raise
                overrun = True
                continue
            if device is None:
                return EventBatch(tuple(events), overrun)
            event = relevant_event(
                device.action, device.subsystem, device.sys_name, device.properties
            )
            if event is not None:
                events[event] = None

    def _pending_error(self) -> int:
        """Take the socket's error: pyudev, which polls before it reads, raises without a number."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


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
