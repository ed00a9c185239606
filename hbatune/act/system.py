"""Calls systemd's and udev's own tools, where they exist, after a change of their files.

No shell is involved, and a tool that fails raises nothing: the caller judges its result.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

UNIT = "hbatune.service"
LATENCY = "hbatune-latency.service"
AUDIT = "hbatune-audit.service"
AUDIT_TIMER = "hbatune-audit.timer"
_NOT_STARTED = 126
"""The exit status that shells use for a command that cannot be started."""
_BOOTED = Path("/run/systemd/system")  # sd_booted(3)


class Ran(Struct, frozen=True):
    """The exit status of a tool, and its message."""

    command: tuple[str, ...]
    code: int
    said: str


def systemd_runs() -> bool:
    """Whether systemd is this machine's init."""
    return _BOOTED.is_dir() and _there("systemctl")


def enable(*, restart: bool) -> Ran | None:
    """Start the daemon, now and at every boot; ``restart`` where its unit has changed.

    A running daemon reads its configuration again. Returns the first tool's result that is a
    failure, or else the last result; None where systemd does not run.
    """
    if not systemd_runs():
        return None
    # A changed unit takes effect with a restart only.
    start = "restart" if restart else "reload-or-restart"
    ran = _run("systemctl", "daemon-reload")
    # After daemon-reload, without which systemd would start the unit as it was.
    for words in (("enable", UNIT), (start, UNIT)):
        if not ran.code:
            ran = _run("systemctl", *words)
    return ran


def disable(*more: str) -> Ran | None:
    """Stop the services, and ``more`` units, and start them at no further boot.

    None where systemd does not run.
    """
    return _run("systemctl", "disable", "--now", UNIT, LATENCY, *more) if systemd_runs() else None


def reload_units() -> Ran | None:
    """Have systemd read its units again; None where it does not run."""
    return _run("systemctl", "daemon-reload") if systemd_runs() else None


def reload_rules() -> Ran | None:
    """Have udev read its rules again; None where it does not run."""
    return _run("udevadm", "control", "--reload") if _udev_runs() else None


def announce(devices: Sequence[str]) -> Ran | None:
    """Have udev process these devices again, and wait for it; None where it does not run.

    This is the event that follows when a program closes a disk it has written to: properties that
    no rule sets any more disappear from udev's database.
    """
    if not devices or not _udev_runs():
        return None
    return _run("udevadm", "trigger", "--action=change", "--settle", *devices)


def check_unit(path: Path) -> Ran | None:
    """Have systemd check a unit file; None where it cannot."""
    if not _there("systemd-analyze"):
        return None
    return _run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path))


def check_rules(path: Path) -> Ran | None:
    """Have udev check a rules file; None before version 254, which has no such command."""
    if not _there("udevadm") or _run("udevadm", "verify", "--help").code:
        return None
    return _run("udevadm", "verify", str(path))


def _udev_runs() -> bool:
    return _there("udevadm") and Path("/run/udev/control").exists()


def _there(tool: str) -> bool:
    import shutil  # as below: most commands call no tool

    return shutil.which(tool) is not None


def _run(*command: str) -> Ran:
    import subprocess

    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:  # not executable, or no process can be started
        return Ran(command, _NOT_STARTED, error.strerror or str(error))
    return Ran(command, done.returncode, (done.stderr or done.stdout).strip())
