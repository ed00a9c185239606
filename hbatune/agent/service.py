"""The daemon's messages to systemd: notifications, the watchdog, and entries of the journal.

Both interfaces are documented datagrams: sd_notify(3), and the native journal protocol, see
https://systemd.io/JOURNAL_NATIVE_PROTOCOL. The Python bindings of systemd send the same data.
However, they need 2 MiB of the daemon's memory and block without limit if the receiver hangs.
"""

import math
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

_JOURNAL = "/run/systemd/journal/socket"
_SEND_S = 5.0
"""Seconds to wait for the receiver if its queue is full."""


class ServiceManager:
    """The program that started the daemon: the shell of a person, unless it is ``Systemd``."""

    watchdog: float = math.inf
    """Seconds within which the daemon must notify it, or infinity if there is no watchdog."""

    def notify(self, state: str) -> None:
        """Send a state in the format of sd_notify(3). A person reads the messages instead."""

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Write a journal entry with a priority of syslog(3). A person sees its message."""
        print(message, flush=True)


class Systemd(ServiceManager):
    """systemd, which listens on the socket ``address`` (sd_notify(3))."""

    def __init__(self, address: str, journal: str = _JOURNAL) -> None:
        # The kernel's name of an abstract socket begins with a null byte (unix(7)).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._journal = journal
        usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
        # The variables may be inherited from another service's process (sd_watchdog_enabled(3)).
        if usec.isdecimal() and pid in (None, str(os.getpid())):
            self.watchdog = int(usec) / 1_000_000

    def notify(self, state: str) -> None:
        """Send a state as described in sd_notify(3). A state that is not accepted is lost."""
        with suppress(OSError):
            _send_datagram(self._address, state.encode(errors="backslashreplace"))

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Write a journal entry."""
        entry = {"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "hbatune"}
        data = b""
        for name, value in {**entry, **fields}.items():
            # With its length, since a value may contain lines.
            text = value.encode(errors="backslashreplace")
            data += b"%s\n%s%s\n" % (name.encode(), len(text).to_bytes(8, "little"), text)
        try:
            _send_datagram(self._journal, data)
        except OSError:
            # The daemon continues without a journal. `systemctl status` still shows the message.
            self.notify(f"STATUS={message}")


def _send_datagram(address: str, data: bytes) -> None:
    """Send a datagram. Raises OSError, also if the receiver does not accept it in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SEND_S)
        sender.sendto(data, address)


def detect_manager() -> ServiceManager:
    """Return the program that started this process."""
    address = os.environ.get("NOTIFY_SOCKET")
    return Systemd(address) if address else ServiceManager()
