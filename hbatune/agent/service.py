"""The daemon's messages to systemd: notifications, the watchdog, and entries of the journal.

Both interfaces are documented datagrams: sd_notify(3), and the native journal protocol
(https://systemd.io/JOURNAL_NATIVE_PROTOCOL). systemd's Python bindings send the same, but take
2 MiB of the daemon's memory, and they block without limit if the receiver hangs.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

_JOURNAL = "/run/systemd/journal/socket"
_SEND_S = 5.0
"""Seconds for the receiver to take a datagram if its queue is full."""


class ServiceManager(Protocol):
    """The program that started the daemon."""

    watchdog: float | None
    """Seconds within which it must hear from the daemon; None where there is no watchdog."""

    def notify(self, state: str) -> None:
        """Say something, in the words of sd_notify(3)."""

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Write an entry of the journal; priorities are those of syslog(3)."""


class Systemd:
    """systemd, which listens on the socket ``address`` (sd_notify(3))."""

    def __init__(self, address: str, journal: str = _JOURNAL) -> None:
        # The kernel's name of an abstract socket begins with a null byte (unix(7)).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._journal = journal
        self.watchdog = _watchdog()

    def notify(self, state: str) -> None:
        """Send a state as described in sd_notify(3). A message that is not taken is lost."""
        with suppress(OSError):
            _send(self._address, state.encode())

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Write an entry of the journal."""
        entry = {"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "hbatune"}
        data = b"".join(_field(name, value) for name, value in {**entry, **fields}.items())
        try:
            _send(self._journal, data)
        except OSError:
            # Without a journal the daemon goes on; `systemctl status` still shows the message.
            self.notify(f"STATUS={message}")


class Terminal:
    """A person who started the daemon on a terminal."""

    watchdog: float | None = None

    def notify(self, state: str) -> None:
        """Do nothing: a person sees the messages."""

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Print the entry."""
        print(message, flush=True)


def _field(name: str, value: str) -> bytes:
    """Return a field in the journal's format: with its length, since a value may have lines."""
    data = value.encode(errors="surrogateescape")
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)


def _send(address: str, data: bytes) -> None:
    """Send a datagram. Raises OSError, also if the receiver does not take it in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SEND_S)
        sender.sendto(data, address)


def service() -> ServiceManager:
    """Return the program that has started this process."""
    address = os.environ.get("NOTIFY_SOCKET")
    return Systemd(address) if address else Terminal()


def _watchdog() -> float | None:
    """Return the watchdog's time in seconds (sd_watchdog_enabled(3))."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    # The variables may be inherited from another service's process.
    if not usec.isdecimal() or (pid is not None and pid != str(os.getpid())):
        return None
    return int(usec) / 1_000_000
