"""udev's events: their source, which of them call for a pass, and what the kernel resets with them.

An event does not prove that a disk is new: udev can be asked to announce all disks again, so the
pass looks at the disk itself. A plain ``change`` calls for nothing: udev makes one up each time
that a writer closes a disk.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from hbatune.facts.queue_depths import family_of_host
from hbatune.facts.routes import MULTIPATH_UUID, is_virtual
from hbatune.facts.udev import SEEN, context
from hbatune.settings.table import Cause

HEARD = (("block", "disk"), ("nvme", None), ("pci", None), ("scsi", "scsi_device"))
"""Subsystems, and the type of device where it has several: the kernel drops all other events."""

_STORAGE = 0x01
"""PCI base class of mass storage controllers."""
_FIBRE_CHANNEL = 0x0C04
_WAS_RESET = "POWER_ON_RESET_OCCURRED"
"""The ``SDEV_UA`` of a SCSI device whose first command after a reset said so
(drivers/scsi/scsi_lib.c: scsi_evt_emit)."""
_PATH_EVENT = "PATH_"
"""How ``DM_ACTION`` begins where a path failed or came back (drivers/md/dm-uevent.c)."""


class DeviceEvent(Struct, frozen=True):
    """The device to look at, and why the kernel has reset its values, None where it has not.

    ``whole`` is whether everything is to be looked at with it. ``unmarked`` is a disk that
    hbatune's udev rules have not run for: nothing of it is saved in udev's database.
    """

    name: str
    cause: Cause | None = None
    whole: bool = False
    unmarked: bool = False


def relevant_event(
    action: str | None, subsystem: str | None, name: str, properties: Mapping[str, str]
) -> DeviceEvent | None:
    """Return the meaning of a udev event, None where it calls for nothing.

    Relevant are a disk that appears, a map that is activated or gets another table, an NVMe
    controller that is connected again (drivers/nvme/host/core.c: nvme_start_ctrl), an adapter that
    gets its driver, and a SCSI device that was reset: its whole host is then looked at, since the
    other devices of a controller that was reset say so no sooner than at their next command.
    """
    match subsystem, action:
        case "block", "add" if _is_disk(properties) or _is_activated_map(properties):
            return DeviceEvent(name, unmarked=not properties.get(SEEN))
        case "block", "change" if _is_activated_map(properties):
            # A path that fails or returns leaves the map's table, and with it the map's values, as
            # they are.
            of_a_path = properties.get("DM_ACTION", "").startswith(_PATH_EVENT)
            return DeviceEvent(name, None if of_a_path else Cause.LOADED)
        case "nvme", "change" if properties.get("NVME_EVENT") == "connected":
            return DeviceEvent(name, Cause.CONNECTED)
        case "pci", "bind" if _serves_storage(properties.get("PCI_CLASS", "")):
            return DeviceEvent(name, Cause.BOUND)
        case "scsi", "change" if properties.get("SDEV_UA") == _WAS_RESET:
            return DeviceEvent(f"host{name.partition(':')[0]}", Cause.RESET)
    return None


class EventBatch(Struct, frozen=True):
    """The events since the last call, without duplicates, and whether others were lost."""

    events: tuple[DeviceEvent, ...]
    overrun: bool


class UdevMonitor:
    """Listens to udev with room for ``buffer`` bytes of events; readable when there are some.

    Events come after udev has processed them, so that its own rules have been applied.
    """

    def __init__(self, buffer: int) -> None:
        import pyudev  # only the daemon listens: commands share this module's values

        self._monitor = pyudev.Monitor.from_netlink(context())
        for subsystem, device_type in HEARD:
            self._monitor.filter_by(subsystem, device_type)
        # SO_RCVBUFFORCE; without CAP_NET_ADMIN the kernel's own limit stays.
        with contextlib.suppress(OSError):
            self._monitor.set_receive_buffer_size(buffer)
        self._monitor.start()
        # A duplicate: closing a Python socket closes its descriptor, and this one is pyudev's.
        self._socket = socket.socket(fileno=os.dup(self._monitor.fileno()))

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return int(self._monitor.fileno())

    def take(self) -> EventBatch:
        """Take all waiting events."""
        events: dict[DeviceEvent, None] = {}
        overrun = False
        receive = partial(self._monitor.poll, 0)
        while True:
            try:
                device = receive()
            except OSError as error:
                # netlink(7): the kernel dropped the events that did not fit, and reports it once.
                if errno.ENOBUFS not in (error.errno, self._pending_error()):
                    raise
                overrun = True
                continue
            if device is None:
                return EventBatch(tuple(events), overrun)
            event = relevant_event(
                device.action, device.subsystem, device.sys_name, device.properties
            )
            if event is not None and _resets_settings(event):
                events[event] = None

    def _pending_error(self) -> int:
        """Take the socket's error: pyudev polls before it reads, and raises without its number."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _resets_settings(event: DeviceEvent) -> bool:
    """Whether an event resets a setting, if it is a reset: with most drivers none does."""
    return event.cause is not Cause.RESET or bool(family_of_host(event.name).resets)


def _is_disk(properties: Mapping[str, str]) -> bool:
    """Whether it is a whole disk on real storage: no loop, ram or zram."""
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
