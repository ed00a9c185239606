"""udev's events: their source, the passes that they cause, and the kernel's resets behind them.

An event does not prove that a disk is new: udev can announce all disks again on request. The pass
therefore checks the disk itself. A plain ``change`` causes no pass: udev generates one each time a
writer closes a disk.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Mapping

from msgspec import Struct

from hbatune.facts import queue_depths, routes, udev
from hbatune.settings.table import Cause

SUBSYSTEMS = (("block", "disk"), ("nvme", None), ("pci", None), ("scsi", "scsi_device"))
"""Subsystems, each with a device type if it has several. The kernel drops all other events."""

_STORAGE_CLASSES = ("01", "0C04")
"""The first digits of PCI classes: mass storage controllers and Fibre Channel."""
_WAS_RESET = "POWER_ON_RESET_OCCURRED"
"""The ``SDEV_UA`` of a SCSI device whose first command after a reset reported the reset
(drivers/scsi/scsi_lib.c: scsi_evt_emit)."""
_PATH_EVENT = "PATH_"
"""The prefix of ``DM_ACTION`` if a path failed or returned (drivers/md/dm-uevent.c)."""


class DeviceEvent(Struct, frozen=True):
    """The device to check, and why the kernel has reset its values, or None if it has not."""

    name: str
    cause: Cause | None = None
    whole: bool = False  # whether the event requires a full scan
    unmarked: bool = False  # hbatune's udev rules have not run for this disk


def interpret_event(
    action: str | None, subsystem: str | None, name: str, properties: Mapping[str, str]
) -> DeviceEvent | None:
    """Return the meaning of a udev event, or None if it requires no action.

    These events are relevant:

    - a disk appears,
    - a map is activated or gets another table,
    - an NVMe controller is reconnected (drivers/nvme/host/core.c: nvme_start_ctrl),
    - an adapter gets its driver,
    - a SCSI device was reset. Its entire host is then checked, since the other devices of a reset
      controller report the reset only at their next command.
    """
    # Neither a partition, nor a loop, ram or zram disk.
    is_virtual = routes.is_virtual(properties.get("DEVPATH", ""))
    is_disk = properties.get("DEVTYPE") == "disk" and not is_virtual
    match subsystem, action:
        case "block", "add" if is_disk or _is_activated_map(properties):
            return DeviceEvent(name, unmarked=not properties.get(udev.SEEN_PROPERTY))
        case "block", "change" if _is_activated_map(properties):
            # A path that fails or returns changes neither the map's table nor its values.
            of_a_path = properties.get("DM_ACTION", "").startswith(_PATH_EVENT)
            return DeviceEvent(name, None if of_a_path else Cause.LOADED)
        case "nvme", "change" if properties.get("NVME_EVENT") == "connected":
            return DeviceEvent(name, Cause.CONNECTED)
        # drivers/pci/pci-driver.c: pci_uevent omits leading zeros of the six digits.
        case "pci", "bind" if properties.get("PCI_CLASS", "").zfill(6).startswith(_STORAGE_CLASSES):
            return DeviceEvent(name, Cause.BOUND)
        case "scsi", "change" if properties.get("SDEV_UA") == _WAS_RESET:
            return DeviceEvent(f"host{name.partition(':')[0]}", Cause.RESET)
    return None


class UdevMonitor:
    """Listens to udev with a buffer of ``buffer`` bytes. Readable if events wait.

    Events arrive after udev has processed them, so its rules have been applied.
    """

    def __init__(self, buffer: int) -> None:
        context = udev.load_context()
        import pyudev  # only the daemon listens: commands share this module's values

        self._monitor = pyudev.Monitor.from_netlink(context)
        for subsystem, device_type in SUBSYSTEMS:
            self._monitor.filter_by(subsystem, device_type)
        # SO_RCVBUFFORCE. Without CAP_NET_ADMIN the kernel's default limit stays.
        with contextlib.suppress(OSError):
            self._monitor.set_receive_buffer_size(buffer)
        self._monitor.start()
        # A duplicate: closing a Python socket closes its descriptor, and this one is pyudev's.
        self._socket = socket.socket(fileno=os.dup(self._monitor.fileno()))

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return int(self._monitor.fileno())

    def take(self) -> tuple[tuple[DeviceEvent, ...], bool]:
        """Take all waiting events, each once; return them, and whether others were lost."""
        events: dict[DeviceEvent, None] = {}
        overrun = False
        while True:
            try:
                device = self._monitor.poll(0)
            except OSError as error:
                # pyudev polls before it reads, and raises without an errno.
                pending_error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                # netlink(7): the kernel dropped the events that did not fit, and reports it once.
                if errno.ENOBUFS not in (error.errno, pending_error):
                    raise
                overrun = True
                continue
            if device is None:
                return tuple(events), overrun
            name, properties = device.sys_name, device.properties
            event = interpret_event(device.action, device.subsystem, name, properties)
            if event is not None and _resets_settings(event):
                events[event] = None


def _resets_settings(event: DeviceEvent) -> bool:
    """Return whether a reset event resets a setting: with most drivers it does not."""
    return event.cause is not Cause.RESET or bool(queue_depths.find_host_family(event.name).resets)


def _is_activated_map(properties: Mapping[str, str]) -> bool:
    is_activated = properties.get("DM_ACTIVATION") == "1"
    return is_activated and properties.get("DM_UUID", "").startswith(routes.MULTIPATH_UUID)
