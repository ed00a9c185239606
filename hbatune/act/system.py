"""Calls systemd's and udev's own tools, where they exist, after a change of their files.

No shell is involved, and a tool that fails raises nothing: the caller judges its result.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from hbatune import children

UNIT = "hbatune.service"
LATENCY = "hbatune-latency.service"
AUDIT = "hbatune-audit.service"
AUDIT_TIMER = "hbatune-audit.timer"
_NOT_STARTED = 126
"""The exit status that shells use for a command that cannot be started."""
_UNFINISHED = 124
"""The exit status that timeout(1) uses for a command that did not end in time."""

CALL_S = 120.0
"""Seconds for a command that waits for no job: systemd and udev themselves give up before (90 s for
a reload, udevadm(8): 60 s for a control message)."""
STOP_S = 180.0
"""Seconds to stop the services: more than TimeoutStopSec=150 of the daemon's unit."""
START_S = 480.0
"""Seconds to start the daemon again: to stop it, and 5 min for its first pass. After that systemd
continues in the background, up to TimeoutStartSec."""
SETTLE_S = 200.0
"""Seconds for udev to process devices: more than the 180 s after which udevd kills a worker
(udev.conf(5): event_timeout). A worker in state D stays, and ``udevadm`` would wait for it."""
_BOOTED = Path("/run/systemd/system")  # sd_booted(3)


class Ran(Struct, frozen=True):
    """The exit status of a tool, and its message."""

    command: tuple[str, ...]
    code: int
    said: str

    @property
    def finished(self) -> bool:
        """Whether it ended by itself, and not at its deadline."""
        return self.code != _UNFINISHED


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
            ran = _run("systemctl", *words, seconds=START_S)
    return ran


def disable(*more: str) -> Ran | None:
    """Stop the services, and ``more`` units, and start them at no further boot.

    None where systemd does not run.
    """
    if not systemd_runs():
        return None
    return _run("systemctl", "disable", "--now", UNIT, LATENCY, *more, seconds=STOP_S)


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
    return _run("udevadm", "trigger", "--action=change", "--settle", *devices, seconds=SETTLE_S)


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


def _run(*command: str, seconds: float | None = None) -> Ran:
    try:
        done = children.run(command, CALL_S if seconds is None else seconds)
    except TimeoutError as error:
        return Ran(command, _UNFINISHED, error.strerror or str(error))
    except OSError as error:  # not executable, or no process can be started
        return Ran(command, _NOT_STARTED, error.strerror or str(error))
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    return Ran(command, done.returncode, said)
