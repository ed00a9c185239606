"""udev's events as they come: the one place where the daemon hears of devices."""

import contextlib
import errno
import os
import socket
from functools import partial

import pyudev
from msgspec import Struct

from hbatune.agent.events import Event, heard
from hbatune.facts.udev import context

SUBSYSTEMS = ("block", "nvme", "pci")


class Heard(Struct, frozen=True):
    """What was heard since the last time, nothing twice, and whether events were lost."""

    events: tuple[Event, ...]
    overrun: bool


class Listener:
    """Listens to udev with room for ``buffer`` bytes of events; readable when there are some.

    They come after udev has done with them, so that its own rules have been applied.
    """

    def __init__(self, buffer: int) -> None:
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

    def hear(self) -> Heard:
        """Take all events that wait."""
        events: dict[Event, None] = {}
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
                return Heard(tuple(events), overrun)
            event = heard(device.action, device.subsystem, device.sys_name, device.properties)
            if event is not None:
                events[event] = None

    def _pending_error(self) -> int:
        """Take the socket's error: pyudev, which polls before it reads, raises without a number."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
