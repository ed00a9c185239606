"""Change the system's configuration and call the tools of systemd and udev.

The tools are called, if they exist, without a shell. A failed tool raises nothing: the caller
evaluates its result. journalctl(1) lists the drift that the daemon has reported. The active profile
is the `profile` key of the local configuration. The module options for the next load are in
hbatune's file in modprobe.d.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from hbatune import children, loader
from hbatune.act import files
from hbatune.errors import HbatuneError
from hbatune.policy import config, toml_files
from hbatune.shipped import load_texts

UNIT = "hbatune.service"
OLD_LATENCY = "hbatune-latency.service"
"""A unit of packages before 1.0.0. It starts a command that no longer exists."""
AUDIT = "hbatune-audit.service"
AUDIT_TIMER = "hbatune-audit.timer"
_NOT_STARTED = 126
"""The exit status that shells use for a command that cannot be started."""
_UNFINISHED = 124
"""The exit status that timeout(1) uses for a command that did not end in time."""

CALL_S = 120.0
"""Seconds for a command that waits for no job. The timeouts of systemd and udev are shorter (90 s
for a reload, udevadm(8): 60 s for a control message)."""
STOP_S = 180.0
"""Seconds to stop the services: more than TimeoutStopSec=150 of the daemon's unit."""
START_S = 480.0
"""Seconds to restart the daemon: to stop it, and 5 min for its first pass. After that systemd
continues in the background, up to TimeoutStartSec."""
SETTLE_S = 200.0
"""Seconds for udev to process devices: more than the 180 s after which udevd kills a worker
(udev.conf(5): event_timeout). A worker in state D stays, and ``udevadm`` would wait for it."""
_JOURNAL_S, _MAX_ENTRIES = 20.0, 2000
"""Seconds to read the journal, and the number of values set to read from it, the latest ones."""
_BOOTED = Path("/run/systemd/system")  # sd_booted(3)


class ToolResult(Struct, frozen=True):
    """The exit status of a tool, and its message."""

    command: tuple[str, ...]
    code: int
    said: str

    @property
    def finished(self) -> bool:
        """Whether the tool ended before its deadline."""
        return self.code != _UNFINISHED


class Drift(Struct, frozen=True):
    """A change of a setting by others, as the daemon reported it; ``time`` is since the epoch.

    ``writer`` is a unit, a cgroup or a type, or None if writes were not watched.
    """

    time: float
    target: str
    id: str
    setting: str
    writer: str | None
    message: str


class _DriftEntry(Struct, frozen=True):
    message_id: str = field(name="MESSAGE_ID")
    micros: str = field(name="__REALTIME_TIMESTAMP")
    target: str = field(name="HBATUNE_TARGET")
    id: str = field(name="HBATUNE_ID")
    setting: str = field(name="HBATUNE_SETTING")
    message: str = field(name="MESSAGE")
    writer: str | None = field(name="HBATUNE_WRITER", default=None)


def has_systemd() -> bool:
    """Return whether systemd is this machine's init."""
    return _BOOTED.is_dir() and _has_tool("systemctl")


def enable(*, restart: bool) -> ToolResult | None:
    """Start the daemon, now and at every boot. ``restart`` it if its unit has changed.

    Returns the first failed result, or else the last result, or None if systemd does not run.
    """
    if not has_systemd():
        return None
    # A changed unit takes effect only with a restart.
    start = "restart" if restart else "reload-or-restart"
    # `enable` would reload, too. Without a reload, the previous version of the unit would start.
    ran = _run_tool("systemctl", "enable", "--no-reload", UNIT)
    for words in (("daemon-reload",), (start, UNIT)):
        if not ran.code:
            ran = _run_tool("systemctl", *words, seconds=START_S)
    return ran


def has_failed() -> bool:
    """Return whether systemd reports that the daemon has failed."""
    return has_systemd() and not _run_tool("systemctl", "is-failed", UNIT, seconds=5.0).code


def disable(*units: str) -> ToolResult | None:
    """Stop the units, also at boot; None if systemd does not run. The caller reloads the units."""
    if not has_systemd():
        return None
    return _run_tool("systemctl", "disable", "--no-reload", "--now", *units, seconds=STOP_S)


def reload_units() -> ToolResult | None:
    """Have systemd read its units again, or return None if it does not run."""
    return _run_tool("systemctl", "daemon-reload") if has_systemd() else None


def reload_rules() -> ToolResult | None:
    """Have udev read again the rules that it keeps in memory; return None if it does not run."""
    return _run_tool("udevadm", "control", "--reload") if _is_udev_running() else None


def announce(devices: Sequence[str]) -> ToolResult | None:
    """Have udev process these devices again, and wait for it; None if it does not run."""
    if not devices or not _is_udev_running():
        return None
    command = ("udevadm", "trigger", "--action=change", "--settle", *devices)
    return _run_tool(*command, seconds=SETTLE_S)


def check_unit(path: Path) -> ToolResult | None:
    """Have systemd check a unit file, or return None if it cannot."""
    if not _has_tool("systemd-analyze"):
        return None
    return _run_tool("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path))


def check_rules(path: Path) -> ToolResult | None:
    """Have udev check a rules file, or return None before version 254, which has no such check."""
    if not _has_tool("udevadm") or _run_tool("udevadm", "verify", "--help").code:
        return None
    return _run_tool("udevadm", "verify", str(path))


def list_drift() -> Iterator[Drift]:
    """Yield the changes that the daemon has reported, the oldest first; none without a journal."""
    ids = load_texts("notes.toml")["message_ids"]
    drifted, tuned = ids["drifted"], ids["tuned"]
    # The unit is the journal's own knowledge: any user may write an entry with these ids.
    matches = (f"MESSAGE_ID={drifted}", f"MESSAGE_ID={tuned}", f"_SYSTEMD_UNIT={UNIT}")
    command = ("journalctl", "--quiet", "--output=json", f"--lines={_MAX_ENTRIES}", *matches)
    with suppress(OSError):  # there is no journalctl, or it takes too long
        for line in children.run(command, _JOURNAL_S).stdout.splitlines():
            with suppress(loader.UnusableFileError):  # a field is not text
                entry = loader.decode(line, _DriftEntry)
                if entry.writer is not None or entry.message_id == drifted:
                    facts = (entry.target, entry.id, entry.setting, entry.writer, entry.message)
                    yield Drift(int(entry.micros) / 1_000_000, *facts)


def _is_udev_running() -> bool:
    return _has_tool("udevadm") and Path("/run/udev/control").exists()


def _has_tool(tool: str) -> bool:
    import shutil  # as below: most commands call no tool

    return shutil.which(tool) is not None


def _run_tool(*command: str, seconds: float | None = None) -> ToolResult:
    try:
        done = children.run(command, CALL_S if seconds is None else seconds)
    except TimeoutError as error:
        return ToolResult(command, _UNFINISHED, error.strerror or str(error))
    except OSError as error:  # not executable, or no process can be started
        return ToolResult(command, _NOT_STARTED, error.strerror or str(error))
    output = (done.stderr or done.stdout).decode(errors="replace").strip()
    return ToolResult(command, done.returncode, output)


class ActiveProfileError(HbatuneError):
    """The configuration cannot be written."""


def require_writable_configuration(path: Path) -> None:
    """Raise ActiveProfileError if the configuration cannot be written. Changes nothing."""
    path = _follow_links(path, toml_files.ROOT)
    # The nearest existing directory: missing ones are created with the file.
    folder = next(parent for parent in path.parents if parent.is_dir())
    if not os.access(folder, os.W_OK):
        hint = "make it writable, or use `--once`, which does not write the file"
        reason = f"{folder} takes no files; nothing was changed"
        raise ActiveProfileError(f"{path} cannot be written: {reason}", hint=hint)


def activate_profile(path: Path, profile: str | None, *, root: Path = toml_files.ROOT) -> str:
    """Make a profile the active one, or none; return the file's text. Raises ActiveProfileError."""
    path = _follow_links(path, root)
    try:
        before = ""
        if path.exists():
            before = loader.read_bytes(path, toml_files.MAX_FILE_BYTES).decode()
        after = config.with_profile(before, profile)
        if after != before:
            files.replace(path, after.encode(), mode=0o644, folder_mode=0o755, keep_access=True)
    except OSError as error:
        hint = "the settings themselves were applied; `--once` does not write this file"
        problem = f"{path} cannot be written: {error.strerror}"
        raise ActiveProfileError(problem, hint=hint) from error
    except loader.UnusableFileError as error:
        raise ActiveProfileError(f"{path} cannot be read: {error}") from error
    except ValueError as error:  # from tomlkit, or from bytes that are not UTF-8
        raise ActiveProfileError(f"{path} is no TOML: {error}") from error
    return after


def _follow_links(path: Path, root: Path) -> Path:
    """Return the file at the end of the path's links, resolved with ``root`` as /."""
    try:
        return toml_files.resolve_links(Path("/") / path.relative_to(root), root).end
    except OSError as error:
        raise ActiveProfileError(f"{path} cannot be followed: {error.strerror}") from error


def forget_profile(path: Path, *, root: Path = toml_files.ROOT) -> None:
    """Deactivate the profile; remove a file that is then empty. Raises ActiveProfileError."""
    try:
        if not _follow_links(path, root).exists():
            return
        text = activate_profile(path, None, root=root)
        if not path.is_symlink() and not text.strip():  # a link is an administrator's
            files.remove(path)
    except OSError as error:
        raise ActiveProfileError(f"{path} cannot be removed: {error.strerror}") from error
    with suppress(OSError):  # not empty: it contains an administrator's files
        path.parent.rmdir()


# Only lines in the template's form: hbatune does not keep an administrator's lines.
_OPTION = r"options (\w{1,64}) (\w{1,64})=([A-Za-z0-9_.,:+-]{1,256})"


def read_module_options(path: Path) -> dict[tuple[str, str], str]:
    """Return the options in the file, by module and option, or none if it cannot be read."""
    try:
        text = loader.read_bytes(path, 1 << 20).decode("utf-8", "backslashreplace")
    except (OSError, loader.UnusableFileError):
        return {}
    matches = (re.fullmatch(_OPTION, line, re.ASCII) for line in text.split("\n"))
    return {(match[1], match[2]): match[3] for match in matches if match}


def write_module_options(path: Path, text: str | None) -> int | None:
    """Write the text, durably, or remove the file without one; return None or the errno."""
    try:
        if text is None:
            if path.exists():
                files.remove(path)
        elif not files.has_content(path, text.encode()):
            files.replace(path, text.encode(), mode=0o644, folder_mode=0o755)
    except OSError as error:
        return error.errno
    return None
