"""How soon a disk that comes back is right again: by the daemon alone, and by tuned."""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import pyudev

from tests.lab.guest.kit import settle
from tests.lab.guest.service import UNIT, resident, running, systemctl
from tests.lab.guest.values import BLOCK, put, scheduler
from tests.soak.guest.results import kept

TIMES = 50
By = Callable[[], AbstractContextManager[None]]
BOUND = 1.0
QUIET = "[daemon]\naudit_seconds = 3600\nprobe = false\n"
TUNED = Path("/etc/tuned/one-scheduler/tuned.conf")
RULES = Path("/etc/udev/rules.d/89-hbatune.rules")
LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}


def seconds_until_right(disk: str) -> tuple[float, str]:
    """Take a disk away and have it found again; return how long it was wrong, and its new name.

    From the event as a listener receives it to the value as sysfs tells it.
    """
    address = (BLOCK / disk / "device").resolve().name
    monitor = pyudev.Monitor.from_netlink(pyudev.Context())
    monitor.filter_by("block", "disk")
    put(disk, "device/delete", "1")
    settle()
    monitor.start()
    Path(f"/sys/class/scsi_host/host{address.partition(':')[0]}/scan").write_text("- - -")
    while True:
        device = monitor.poll()
        if device.action == "add":
            break
    began = time.monotonic()
    while scheduler(device.sys_name) != "mq-deadline":
        pass
    return time.monotonic() - began, device.sys_name


@contextmanager
def by_daemon() -> Iterator[None]:
    """The daemon alone: udev's rules would have set it before the event arrives."""
    with running(QUIET):
        text = RULES.read_text()
        RULES.write_text("")
        subprocess.run(["udevadm", "control", "--reload"], check=True)
        try:
            yield
        finally:
            RULES.write_text(text)


@contextmanager
def by_tuned() -> Iterator[None]:
    """Debian's tuned, told to give every disk this scheduler."""
    TUNED.parent.mkdir(parents=True)
    TUNED.write_text("[main]\nsummary=one scheduler\n[disk]\ndynamic=0\nelevator=mq-deadline\n")
    subprocess.run(["systemctl", "start", "tuned.service"], check=True)
    subprocess.run(["tuned-adm", "profile", TUNED.parent.name], check=True)
    try:
        yield
    finally:
        subprocess.run(["systemctl", "stop", "tuned.service"], check=True)


def measured(
    disk: str, unit: str, by: Callable[[], AbstractContextManager[None]]
) -> dict[str, object]:
    """Return the distribution of as many times as are wanted."""
    seconds = []
    with by():
        for _ in range(TIMES):
            took, disk = seconds_until_right(disk)
            seconds.append(round(took, 3))
        kib = resident(int(systemctl("show", "--property=MainPID", "--value", unit)))
    low, median, high = statistics.quantiles(seconds, n=4)
    return {
        "median": round(median, 3),
        "quartiles": [round(low, 3), round(high, 3)],
        "longest": max(seconds),
        "seconds": sorted(seconds),
        "resident_kib": kib,
    }


@pytest.mark.deadline(3600)
def test_a_disk_that_comes_back_is_right_within_a_second(
    scsi_debug: Callable[..., list[str]],
) -> None:
    [disk] = scsi_debug(**LUN)
    daemon = measured(disk, UNIT, by_daemon)
    [disk] = [path.name for path in BLOCK.glob("sd*") if "pseudo" in str(path.resolve())]
    tuned = measured(disk, "tuned.service", by_tuned)
    kept(
        "a disk that comes back: from udev's event to mq-deadline, without udev's rules",
        name="hotplug",
        times=TIMES,
        hbatune=daemon,
        tuned=tuned,
    )
    assert float(str(daemon["median"])) < BOUND
    assert int(str(daemon["resident_kib"])) <= min(30 * 1024, int(str(tuned["resident_kib"])))
