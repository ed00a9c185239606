"""The daemon's words to systemd: notifications, the watchdog, and entries of the journal."""

import os
import sys
from collections.abc import Mapping
from typing import Protocol

from hbatune.errors import UsageError

SYSTEM_PYTHON = "/usr/bin/python3"
"""The Python that the distribution's packages, python3-systemd among them, are for."""
_PYTHON_S = 30.0
"""Seconds for its answer."""
_ASKED = "import sys, systemd.daemon, systemd.journal; print('%d.%d' % sys.version_info[:2])"


class Service(Protocol):
    """The program that started the daemon."""

    watchdog: float | None
    """Seconds within which it must hear from the daemon; None where there is no watchdog."""

    def notify(self, state: str) -> None:
        """Say something, in the words of sd_notify(3)."""

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Write an entry of the journal; priorities are those of syslog(3)."""


class Systemd:
    """systemd, through its own Python bindings."""

    def __init__(self) -> None:
        require()
        from systemd import daemon, journal  # type: ignore[attr-defined,unused-ignore]

        self._notify, self._send = daemon.notify, journal.send
        self.watchdog = _watchdog()

    def notify(self, state: str) -> None:
        """Say something, in the words of sd_notify(3)."""
        self._notify(state)

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Write an entry of the journal."""
        try:
            self._send(message, PRIORITY=str(priority), **fields)
        except OSError:
            # Without a journal the daemon goes on; `systemctl status` still shows the message.
            self._notify(f"STATUS={message}")


class Terminal:
    """A person who started the daemon on a terminal."""

    watchdog: float | None = None

    def notify(self, state: str) -> None:
        """Do nothing: a person sees the messages."""

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        """Print the entry."""
        print(message, flush=True)


def require() -> None:
    """Raise ``UsageError`` where systemd's Python bindings are not installed."""
    try:
        # The checkout has a folder of this name, which type checkers take for the package.
        from systemd import daemon, journal  # type: ignore[attr-defined,unused-ignore]  # noqa: F401
    except ImportError as error:
        raise _missing(_version_with_bindings()) from error


def _missing(system: str | None) -> UsageError:
    """Return the error for bindings that this Python does not see.

    ``system`` is the version of the distribution's Python where that one has them, else None.
    """
    if system is None:
        return UsageError(
            "the Python bindings of systemd are missing, which the daemon needs",
            hint="install the package python3-systemd",
        )
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if own != system:
        return UsageError(
            f"python3-systemd is installed for Python {system}, and hbatune runs with {own}",
            hint=f"install hbatune for {SYSTEM_PYTHON} (docs/install.md)",
        )
    import shlex  # not for a daemon that starts, whose memory counts

    return UsageError(
        f"python3-systemd is installed, but hbatune's virtual environment, {sys.prefix}, does not "
        "see the system's packages",
        hint=f"`{SYSTEM_PYTHON} -m venv --system-site-packages {shlex.quote(sys.prefix)}` lets it "
        "see them; what is installed in it stays",
    )


def _version_with_bindings() -> str | None:
    """Return the version of the distribution's Python, None where it has no bindings either."""
    from hbatune import children  # not for `hbatune status`, which has this module as well

    try:
        done = children.run([SYSTEM_PYTHON, "-I", "-c", _ASKED], _PYTHON_S)
    except OSError:
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def service() -> Service:
    """Return the starter of this process; UsageError where it is systemd and its bindings lack."""
    return Systemd() if "NOTIFY_SOCKET" in os.environ else Terminal()


def _watchdog() -> float | None:
    """Return the watchdog's time in seconds (sd_watchdog_enabled(3))."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    # The variables may be inherited from another service's process.
    if not usec.isdecimal() or (pid is not None and pid != str(os.getpid())):
        return None
    return int(usec) / 1_000_000
