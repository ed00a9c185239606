"""hbatune installed for a test, with a daemon that does nothing, so that udev is on its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from hbatune.act.paths import Paths
from tests.lab.guest.command import Done, hbatune
from tests.lab.guest.kit import settle
from tests.lab.guest.values import cat, put, scheduler

UNIT = Path("/etc/systemd/system/hbatune.service")
RULES = Path("/etc/udev/rules.d/89-hbatune.rules")
SITE_RULES = Path("/etc/hbatune/rules.d/deeper.toml")
DEPTH = 150
DEEPER = (
    f'[[rule]]\nname = "deeper"\nsetting = "queue_depth"\nat_least = {DEPTH}\n'
    'when = { protocol = "virtual" }\nbecause = "a test"\nsource = "site"\n'
)
LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}

_DROP_INS = Path("/run/systemd/system/hbatune.service.d")
_IDLE = "[Service]\nType=exec\nWatchdogSec=0\nExecStart=\nExecStart=/usr/bin/sleep infinity\n"
_WRITTEN = ("queue/nr_requests", "device/queue_depth")


def values(disk: str) -> dict[str, str]:
    """What the rules set of a disk of scsi_debug."""
    return {"scheduler": scheduler(disk), **{name: cat(disk, name) for name in _WRITTEN}}


def by_rule(disk: str) -> bool:
    """Whether the disk is as the rules have it."""
    depth = cat(disk, "device/queue_depth")
    return (scheduler(disk), cat(disk, "queue/nr_requests")) == ("mq-deadline", "2048") and int(
        depth
    ) >= DEPTH


def set_up(disk: str, wanted: dict[str, str]) -> None:
    """Bring a disk to these values, as an administrator would."""
    put(disk, "queue/scheduler", wanted["scheduler"])
    for name in _WRITTEN:
        put(disk, name, wanted[name])


def database(disk: str) -> dict[str, str]:
    """What udev's database has of the disk."""
    queried = subprocess.run(
        ["udevadm", "info", "--query=property", f"--name={disk}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in queried.stdout.splitlines())


def close_after_writing(disk: str) -> None:
    """Open the disk for writing and close it: udev then announces a plain `change`."""
    with open(f"/dev/{disk}", "r+b"):
        pass
    settle()


@contextmanager
def idle_daemon() -> Iterator[None]:
    """Have whatever is started as the daemon do nothing."""
    with _drop_in("idle", _IDLE):
        yield


@contextmanager
def instead_of_the_daemon(*commands: str) -> Iterator[None]:
    """Have the unit run these commands, one after the other, under the daemon's restrictions."""
    lines = "".join(f"ExecStart={command}\n" for command in commands)
    with _drop_in("work", f"[Service]\nType=oneshot\nRestart=no\nExecStart=\n{lines}"):
        yield


@contextmanager
def _drop_in(name: str, text: str) -> Iterator[None]:
    _DROP_INS.mkdir(parents=True, exist_ok=True)
    (_DROP_INS / f"{name}.conf").write_text(text)
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    try:
        yield
    finally:
        (_DROP_INS / f"{name}.conf").unlink()
        if not any(_DROP_INS.iterdir()):
            _DROP_INS.rmdir()
        subprocess.run(["systemctl", "daemon-reload"], check=True)


@contextmanager
def installed_for(profile: str, *, has_daemon: bool = False) -> Iterator[Done]:
    """Have hbatune installed, with a site's rule for deeper queues; its daemon is idle or runs."""
    SITE_RULES.parent.mkdir(parents=True, exist_ok=True)
    SITE_RULES.write_text(DEEPER)
    with nullcontext() if has_daemon else idle_daemon():
        try:
            yield hbatune("install", "--profile", profile)
        finally:
            SITE_RULES.unlink()
            with suppress(OSError):  # other tests may have rules of their own there
                SITE_RULES.parent.rmdir()
            hbatune("uninstall")


@contextmanager
def missing_program() -> Iterator[None]:
    """Hide the program of the rules, which then record the disks that need it."""
    hidden = Paths.udev_writer.with_suffix(".hidden")
    Paths.udev_writer.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(Paths.udev_writer)
