"""Faults of systemd, of files and of the daemon, and what people set: the same on any kernel."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.guest import appear, daemon_host
from tests.lab.guest.command import CONFIGURATION, hbatune, objective
from tests.lab.guest.daemon_host import (
    INSTANCE,
    TRACEFS,
    WITH_OBJECTIVE,
    by_profile,
    is_tuned,
    reconfigured,
    well,
)
from tests.lab.guest.kit import reading, settle, udev_paused, wait_a_moment
from tests.lab.guest.service import (
    QUICK,
    QUIET,
    UNIT,
    Journal,
    daemon,
    let_be,
    only_announced,
    resident,
    restarted,
    systemctl,
)
from tests.lab.guest.values import BLOCK, cat, everything, put

KERNELS = ("newest",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
BURST = 50


@pytest.fixture(scope="module")
def original() -> Iterator[dict[str, str]]:
    """Every value before hbatune was installed; it is, with one LUN, for all tests here."""
    with daemon_host.installed() as before:
        yield before


@pytest.fixture
def lun(original: dict[str, str]) -> Iterator[str]:
    """The LUN, whose daemon is in its first second again for the next test."""
    with daemon_host.tuned_lun() as disk:
        yield disk


def trigger(times: int, action: str = "add") -> None:
    """Have udev announce every disk so many times."""
    for _ in range(times):
        words = [f"--action={action}", "--subsystem-match=block"]
        subprocess.run(["udevadm", "trigger", *words], check=True)
    settle()


@pytest.mark.deadline(600)
def test_event_burst_loses_nothing(lun: str) -> None:
    before = resident(daemon())
    with only_announced(), Journal() as journal:
        trigger(1 + BURST // len(list(BLOCK.iterdir())))
        put(lun, "queue/nr_requests", "101")
        journal.until_set(lun, "nr_requests")
    assert resident(daemon()) < before * 1.1
    assert hbatune("status", "--json").json["status"]["overruns"] == 0


def test_lost_events_trigger_full_scan(lun: str) -> None:
    config = QUIET + "buffer_mib = 0.001\n"
    with restarted(config, unit="WatchdogSec=600"), Journal() as journal:
        pid = daemon()
        os.kill(pid, signal.SIGSTOP)
        put(lun, "queue/nr_requests", "100")
        trigger(1, "change")  # upon which udev's own rules set nothing
        os.kill(pid, signal.SIGCONT)
        journal.until_said("udev events were lost")
        journal.until_set(lun, "nr_requests")
        assert cat(lun, "queue/nr_requests") == "2048"


def test_unannounced_nvme_reset_is_repaired(lun: str) -> None:
    """Linux 7.2 and newer count resets, so a reset is found without its event."""
    with appear.less_read_ahead(), reconfigured(QUIET) as journal, udev_paused():
        reset = appear.Reset()
        assert reset.right(reset.disk)
        reset.happen()
        entry = journal.until_set(reset.disk, "read_ahead_kb")
        assert "reset by the kernel" in entry["MESSAGE"]
        assert reset.right(reset.disk)


def test_manual_change_repaired_twice(lun: str) -> None:
    with Journal() as journal:
        for _ in range(2):
            put(lun, "queue/nr_requests", "100")
            entry = journal.until_set(lun, "nr_requests")
            assert "changed since it was set" in entry["MESSAGE"]
            assert (entry["HBATUNE_FROM"], entry["HBATUNE_TO"]) == ("100", "2048")
            assert cat(lun, "queue/nr_requests") == "2048"
        put(lun, "queue/nr_requests", "100")
        entry = journal.until_set(lun, "nr_requests")
        assert "for the third time in ten minutes, so the daemon skips it" in entry["MESSAGE"]
        assert cat(lun, "queue/nr_requests") == "100"
        status = hbatune("status", "--json")
        assert status.code == 1
        assert [change["setting"] for change in status.json["status"]["open"]] == ["nr_requests"]
        journal.reload()
        assert cat(lun, "queue/nr_requests") == "2048", "a reload starts anew"


def test_rolled_back_disk_stays_excluded(lun: str) -> None:
    assert hbatune("rollback", lun).code == 0
    with Journal() as journal:
        journal.reload()
    assert not by_profile(lun)
    assert hbatune("apply", "--no-probe", lun).code == 0
    assert by_profile(lun)


def test_killed_daemon_restarts(lun: str) -> None:
    with Journal() as journal:
        first = daemon()
        put(lun, "queue/nr_requests", "100")
        os.kill(first, signal.SIGKILL)
        journal.until_said("ready: profile oltp")
        assert daemon() != first
        assert cat(lun, "queue/nr_requests") == "2048"


def test_watchdog_restarts_and_stop_rolls_back(lun: str, original: dict[str, str]) -> None:
    """With `rollback_on_stop` a requested stop rolls back. A restart by the watchdog does not."""
    with restarted(QUICK + "rollback_on_stop = true\n", unit="WatchdogSec=4"):
        with Journal() as journal:
            first = daemon()
            os.kill(first, signal.SIGSTOP)
            journal.until_said("ready: profile oltp")
        assert daemon() != first
        assert by_profile(lun)
        systemctl("stop", UNIT)
        assert everything() == original


@pytest.mark.deadline(600)
def test_alert_without_tracing_names_mean(lun: str) -> None:
    unit = f"InaccessiblePaths={TRACEFS}"
    with objective(1), restarted(WITH_OBJECTIVE, unit=unit), Journal() as journal:
        with reading([lun]):
            message = journal.until_said("the objective is a p99 of 1 ms")["MESSAGE"]
            assert float(message.partition("no reliable p99; the mean is ")[2].split()[0]) >= 4
            assert not INSTANCE.exists()
        journal.until_said("latency is within the objective again")


def test_bad_reload_retains_last_configuration(lun: str) -> None:
    good = CONFIGURATION.read_text()
    with Journal() as journal:
        CONFIGURATION.write_text(good + "\nnonsense = 1\n")
        systemctl("reload", UNIT)
        journal.until_said("invalid configuration; the last valid one remains active")
        journal.until_reloaded()
        put(lun, "queue/nr_requests", "100")
        journal.until_set(lun, "nr_requests")
        assert cat(lun, "queue/nr_requests") == "2048"
        CONFIGURATION.write_text(good)
        journal.reload()


def test_full_disk_prevents_writes(lun: str) -> None:
    folder = Path("/var/lib/hbatune")
    # Without it the journal that is hidden below would be a lost one.
    trace = Path("/run/hbatune/journal.sequence")
    systemctl("stop", UNIT)
    # More than the kernel's own, which would be an administrator's decision: the journal is hidden.
    put(lun, "queue/nr_requests", "300")
    trace.unlink(missing_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)], check=True)
    try:
        fill(folder / "filler")
        with Journal() as journal:
            systemctl("start", "--no-block", UNIT)
            journal.until_said("No space left on device")
            assert not by_profile(lun)
            (folder / "filler").unlink()
            journal.reload()
            assert by_profile(lun)
        assert hbatune("rollback").code == 0
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        trace.unlink(missing_ok=True)  # of the journal that is gone now
        systemctl("restart", UNIT)  # its own view of the folder would stay the full one


def fill(path: Path) -> None:
    """Write to a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def test_missing_journald_is_survived(lun: str) -> None:
    units = ("systemd-journald.socket", "systemd-journald-dev-log.socket", "systemd-journald")
    subprocess.run(["systemctl", "stop", *units], check=False, capture_output=True)
    try:
        put(lun, "queue/nr_requests", "100")
        systemctl("reload", UNIT)
        while cat(lun, "queue/nr_requests") != "2048":
            wait_a_moment()
    finally:
        systemctl("start", *units)
    assert is_tuned()


def test_read_only_etc_allows_rollback(lun: str, original: dict[str, str]) -> None:
    with read_only("/etc"), Journal() as journal:
        put(lun, "queue/nr_requests", "100")
        journal.until_set(lun, "nr_requests")
        refused = hbatune("apply", "--profile", "latency", "--no-probe")
        assert refused.code == 1
        assert "nothing was changed" in refused.err
        assert well()
        back = hbatune("rollback")
        assert back.code == 1
        assert "the daemon skips all disks anyway" in back.err
        assert everything() == original
        systemctl("reload", UNIT)
        let_be(12)  # two audits
        assert everything() == original
    assert hbatune("rollback").code == 0, "where it can be, no profile is active"


@contextmanager
def read_only(folder: str) -> Iterator[None]:
    """Have a folder take no files."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_clock_jump_is_harmless(lun: str) -> None:
    jump = 86_400
    with Journal() as journal:
        for seconds in (jump, -jump):
            time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
            put(lun, "queue/nr_requests", "100")
            entry = journal.until_set(lun, "nr_requests")
            assert "changed since it was set" in entry["MESSAGE"]
            assert cat(lun, "queue/nr_requests") == "2048"
    assert well()


@pytest.mark.parametrize("mistake", ["a key", "a mode"])
def test_rollback_holds_despite_bad_configuration(
    lun: str, original: dict[str, str], mistake: str
) -> None:
    """The daemon goes by the last configuration that made sense: with the profile in it."""
    assert by_profile(lun)
    before = CONFIGURATION.read_text()
    if mistake == "a key":
        CONFIGURATION.write_text(f'{before}\n[site]\nexlude = ["sda"]\n')
    else:
        CONFIGURATION.chmod(0o666)
    try:
        done = hbatune("rollback")
        assert "a rollback does not need it" in done.err
        assert everything() == original
        let_be(12)  # two audits
        assert everything() == original
    finally:
        CONFIGURATION.chmod(0o644)
        CONFIGURATION.write_text(before)
