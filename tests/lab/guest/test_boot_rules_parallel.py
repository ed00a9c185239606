"""LUNs of one adapter appear concurrently, and udev's workers set all of them at that moment.

Recent kernels lock the adapter for each scheduler and each nr_requests, and refuse other writers.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.lab.guest.boot import by_rule, database, installed_for, missing_program, values
from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import (
    KERNEL,
    loaded_scsi_debug,
    scsi_disks,
    settle,
    udev_paused,
    wait_a_moment,
)
from tests.lab.guest.service import UNIT, is_active, systemctl
from tests.lab.guest.values import cat, put

pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
MANY = {"max_luns": 24, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}
FEW = {**MANY, "max_luns": 4}
DRIVER = Path("/sys/bus/pseudo/drivers/scsi_debug")
HANGS_SECONDS = "40"
IGNORE_COMMAND = "0x4"  # drivers/scsi/scsi_debug.c: SDEBUG_OPT_TIMEOUT


def read_state(pid: int) -> str:
    """Return the state of a process: ``D`` if it sleeps uninterruptibly (proc_pid_stat(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def hanging_read(disk: str) -> Iterator[None]:
    """Have one read of the disk hang until its timeout, and all later commands answer."""
    (DRIVER / "opts").write_text(IGNORE_COMMAND)
    (DRIVER / "every_nth").write_text("1")
    requests = cat(disk, "device/iorequest_cnt")
    words = ["dd", f"if=/dev/{disk}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as read:
        # The kernel counts a command before the driver decides to ignore it. The reader sleeps
        # uninterruptibly only after that.
        while cat(disk, "device/iorequest_cnt") == requests or read_state(read.pid) != "D":
            wait_a_moment()
        (DRIVER / "every_nth").write_text("0")
        (DRIVER / "opts").write_text("0")
        yield


@contextmanager
def few_luns() -> Iterator[None]:
    """Remove the adapter with few LUNs afterwards."""
    try:
        yield
    finally:
        settle()
        subprocess.run(["modprobe", "--remove", "scsi_debug"], check=True)


def load_few_luns() -> list[str]:
    """Load an adapter, and return its disks before udev has set them."""
    words = [f"{name}={value}" for name, value in FEW.items()]
    subprocess.run(["modprobe", "scsi_debug", *words], check=True)
    while len(disks := scsi_disks("scsi_debug")) < FEW["max_luns"]:
        wait_a_moment()
    return disks


def find_wrong(disks: list[str]) -> dict[str, dict[str, str]]:
    """Return the values of the disks that are not as the profile has them."""
    return {disk: values(disk) for disk in disks if not by_rule(disk)}


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    """hbatune installed with its daemon."""
    with installed_for("oltp", has_daemon=True) as done:
        assert done.code == 0, done.out + done.err
        yield


@pytest.fixture(scope="module")
def machine_without_daemon(machine: None) -> None:
    """The same with its daemon stopped, for all later tests."""
    systemctl("stop", UNIT)


def test_all_luns_are_set_with_daemon(machine: None) -> None:
    with loaded_scsi_debug(**MANY) as disks:
        assert is_active()
        assert len(disks) == MANY["max_luns"]
        assert find_wrong(disks) == {}


def test_all_luns_are_set_without_daemon(machine_without_daemon: None) -> None:
    with loaded_scsi_debug(**MANY) as disks:
        assert len(disks) == MANY["max_luns"]
        assert find_wrong(disks) == {}
        assert [disk for disk in disks if "HBATUNE_UNSET" in database(disk)] == []
        originals = {database(disk)["HBATUNE_WAS_NR_REQUESTS"] for disk in disks}
        assert len(originals) == 1
        assert "2048" not in originals


def test_idle_luns_need_no_program(machine_without_daemon: None) -> None:
    with missing_program(), loaded_scsi_debug(**FEW) as disks:
        needing = [disk for disk in disks if "HBATUNE_UNSET" in database(disk)]
        assert find_wrong([disk for disk in disks if disk not in needing]) == {}
    assert needing == [] if KERNEL < (7, 0) else len(needing) < len(disks)


def test_hanging_command_prevents_writes(machine_without_daemon: None) -> None:
    """Without statistics `inflight` is 0, as for commands that programs send by themselves."""
    with few_luns(), ExitStack() as reads:
        with udev_paused():
            read, uncounted, *others = load_few_luns()
            put(uncounted, "queue/iostats", "0")
            before = values(read)
            for disk in (read, uncounted):
                put(disk, "device/timeout", HANGS_SECONDS)
                reads.enter_context(hanging_read(disk))
        assert find_wrong(others) == {}
        for disk in (read, uncounted):
            assert values(disk) == before
            assert "scheduler:commands" in database(disk)["HBATUNE_UNSET"]
        findings = hbatune("check", "--json").json["findings"]
        unset = [finding for finding in findings if finding["id"] == "boot-unset"]
        assert {finding["target"] for finding in unset} == {read, uncounted}
