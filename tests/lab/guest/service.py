"""The daemon as a service of the guest's systemd, and what it says in the journal."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.lab.guest.command import CONFIGURATION, configure, hbatune
from tests.lab.guest.kit import reload_rules

UNIT = "hbatune.service"
QUICK = "[daemon]\naudit_seconds = 5\n"
"""An audit every five seconds: no test waits for minutes, and an emulated CPU has time for it."""
QUIET = "[daemon]\naudit_seconds = 3600\n"
"""No audit, so that what is set is set upon an event."""
_RULES = Path("/etc/udev/rules.d/89-hbatune.rules")
_DISTRIBUTION = "/usr/lib/udev/rules.d"
_DROP_IN = Path(f"/run/systemd/system/{UNIT}.d/test.conf")


def systemctl(*words: str, check: bool = True) -> str:
    """Return what systemctl says."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=check)
    return done.stdout.strip()


def is_active() -> bool:
    """Whether the daemon runs, also while it reads its configuration again: not `active` then.

    An installation ends by telling it to, so that its state is `reloading` for a moment.
    """
    done = subprocess.run(["systemctl", "is-active", "--quiet", UNIT], check=False)
    return done.returncode == 0


def daemon() -> int:
    """Return the daemon's process."""
    return int(systemctl("show", "--property=MainPID", "--value", UNIT))


def resident(pid: int) -> int:
    """Return the KiB that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1])


def announce(disk: str) -> None:
    """Have udev announce a disk once more, and the daemon hear of it."""
    words = ["udevadm", "trigger", "--settle", "--action=add", f"/sys/block/{disk}"]
    subprocess.run(words, check=True)


def let_be(seconds: int) -> None:
    """Let the daemon be for so long: its own clock is what is waited for."""
    words = ["systemd-run", "--quiet", "--wait", "sleep", str(seconds)]
    subprocess.run(words, check=True)


@contextmanager
def running(config: str = QUICK, *, profile: str = "oltp") -> Iterator[None]:
    """Have hbatune installed and its daemon ready."""
    configure(config)
    try:
        done = hbatune("install", "--profile", profile)
        assert done.code == 0, done.out + done.err
        yield
    finally:
        back = hbatune("uninstall")
        configure("")
        assert back.code == 0, back.out + back.err


@contextmanager
def without_rules() -> Iterator[None]:
    """Have the daemon alone: udev's rules would have set everything before an event arrives."""
    text = _RULES.read_text()
    _replace_rules("")
    try:
        yield
    finally:
        _replace_rules(text)


def _replace_rules(text: str) -> None:
    _RULES.write_text(text)
    # systemd 252 reads the rules again only if the time of their directory is new
    # (src/udev/udev-rules.c: udev_rules_should_reload).
    os.utime(_RULES.parent)
    reload_rules()


@contextmanager
def only_announced() -> Iterator[None]:
    """Have udev do nothing but announce: what it finds out of a disk takes most of an event."""
    subprocess.run(["mount", "-t", "tmpfs", "none", _DISTRIBUTION], check=True)
    reload_rules()
    try:
        yield
    finally:
        subprocess.run(["umount", _DISTRIBUTION], check=True)
        reload_rules()


@contextmanager
def restarted(config: str = QUICK, *, unit: str = "") -> Iterator[None]:
    """Have the daemon that runs start anew with this table, and ``unit`` in its [Service]."""
    before = CONFIGURATION.read_text()
    if unit:
        _DROP_IN.parent.mkdir(parents=True)
        _DROP_IN.write_text(f"[Service]\n{unit}\n")
    CONFIGURATION.write_text(f'profile = "oltp"\n{config}')
    try:
        _start_anew()
        yield
    finally:
        CONFIGURATION.write_text(before)
        if unit:
            _DROP_IN.unlink()
            _DROP_IN.parent.rmdir()
        _start_anew()


def _start_anew() -> None:
    systemctl("daemon-reload")
    systemctl("reset-failed", UNIT, check=False)  # recent systemd forgets a unit that has stopped
    systemctl("restart", UNIT)


class Journal:
    """What the daemon says from now on; each look waits for what it looks for."""

    def __enter__(self) -> Self:
        last = _journalctl("--lines=1").stdout.strip()
        words = [f"--after-cursor={json.loads(last)['__CURSOR']}"] if last else []
        command = ["journalctl", "--follow", "--no-tail", "--output=json", f"--unit={UNIT}", *words]
        self._follow = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.entries: list[dict[str, Any]] = []
        return self

    def __exit__(self, *_: object) -> None:
        self._follow.kill()
        self._follow.wait()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the next entry that is wanted; the harness ends a test that waits too long."""
        assert self._follow.stdout is not None
        for line in self._follow.stdout:
            entry: dict[str, Any] = json.loads(line)
            self.entries.append(entry)
            if wanted(entry):
                return entry
        raise AssertionError(f"the journal ended: {self.entries}")

    def until_said(self, words: str) -> dict[str, Any]:
        """Return the next entry whose message has these words."""
        return self.until(lambda entry: words in str(entry.get("MESSAGE")))

    def reload(self) -> None:
        """Have the daemon scan everything, and wait until it has."""
        systemctl("reload", UNIT)
        self.until_reloaded()

    def until_reloaded(self) -> None:
        """Wait for the end of the pass that a reload has requested.

        A changed configuration causes such a pass, too, and may do so just before.
        """
        self.until_said("all settings were scanned after a reload")

    def until_set(self, target: str, setting: str) -> dict[str, Any]:
        """Return the next entry about this setting of this target."""
        return self.until(
            lambda entry: (
                (entry.get("HBATUNE_TARGET"), entry.get("HBATUNE_SETTING")) == (target, setting)
            )
        )

    def until_all_set(self, targets: Iterable[str], setting: str) -> None:
        """Wait for an entry about this setting of each of these targets, in any order."""
        waiting = set(targets)

        def last(entry: dict[str, Any]) -> bool:
            if entry.get("HBATUNE_SETTING") == setting:
                waiting.discard(str(entry.get("HBATUNE_TARGET")))
            return not waiting

        self.until(last)


def _journalctl(*words: str) -> "subprocess.CompletedProcess[str]":
    command = ["journalctl", "--output=json", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True)
