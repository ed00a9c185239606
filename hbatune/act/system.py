"""systemd and udev, told what changed: their own tools, where they are, without a shell."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

UNIT = "hbatune.service"
LATENCY = "hbatune-latency.service"
_NOT_STARTED = 126
"""How a shell says that a command could not be started."""
_BOOTED = Path("/run/systemd/system")  # sd_booted(3)


class Ran(Struct, frozen=True):
    """How a tool ended, and what it said."""

    command: tuple[str, ...]
    code: int
    said: str


def systemd_runs() -> bool:
    """Whether systemd is this machine's init."""
    return _BOOTED.is_dir() and shutil.which("systemctl") is not None


def enable(*, anew: bool) -> Ran | None:
    """Start the daemon, now and at every boot; ``anew`` where its unit has changed.

    One that runs already is told to look at its configuration again. Returns the first of the
    tools that failed, or the last; None where systemd does not run.
    """
    if not systemd_runs():
        return None
    start = "restart" if anew else "reload-or-restart"
    ran = _run("systemctl", "daemon-reload")
    for words in (("enable", UNIT), (start, UNIT)):
        if not ran.code:
            ran = _run("systemctl", *words)
    return ran


def disable() -> Ran | None:
    """Stop the services and start them at no further boot; None where systemd does not run."""
    return _run("systemctl", "disable", "--now", UNIT, LATENCY) if systemd_runs() else None


def reload_units() -> Ran | None:
    """Have systemd look at its units again; None where it does not run."""
    return _run("systemctl", "daemon-reload") if systemd_runs() else None


def reload_rules() -> Ran | None:
    """Have udev read its rules again; None where it does not run."""
    return _run("udevadm", "control", "--reload") if _udev_runs() else None


def announce(devices: Sequence[str]) -> Ran | None:
    """Have udev look at these devices again, and wait until it has; None where it does not run.

    As when somebody who has written to a disk closes it: what its rules keep no more is gone.
    """
    if not devices or not _udev_runs():
        return None
    return _run("udevadm", "trigger", "--action=change", "--settle", *devices)


def check_unit(path: Path) -> Ran | None:
    """Have systemd judge a unit file; None where it cannot."""
    if shutil.which("systemd-analyze") is None:
        return None
    return _run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path))


def check_rules(path: Path) -> Ran | None:
    """Have udev judge a rules file; None where it has no such word, as before version 254."""
    if shutil.which("udevadm") is None or _run("udevadm", "verify", "--help").code:
        return None
    return _run("udevadm", "verify", str(path))


def _udev_runs() -> bool:
    return shutil.which("udevadm") is not None and Path("/run/udev/control").exists()


def _run(*command: str) -> Ran:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:  # no process can be started
        return Ran(command, _NOT_STARTED, error.strerror or str(error))
    return Ran(command, done.returncode, (done.stderr or done.stdout).strip())
