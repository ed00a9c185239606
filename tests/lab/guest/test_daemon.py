"""The daemon with udev and real drivers: which disks it tunes, and which values it repairs."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.lab.guest import appear, daemon_host, multipath
from tests.lab.guest.command import hbatune, objective
from tests.lab.guest.daemon_host import (
    INSTANCE,
    LATENCY,
    WITH_OBJECTIVE,
    by_profile,
    is_tuned,
    reconfigured,
    reload_until_reported,
    well,
)
from tests.lab.guest.kit import KERNEL, reading, scsi_disks, wait_a_moment
from tests.lab.guest.service import (
    QUIET,
    UNIT,
    announce,
    daemon,
    let_be,
    systemctl,
)
from tests.lab.guest.test_writers import written_elsewhere
from tests.lab.guest.values import cat, everything, put

pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")


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


def test_ready_daemon_matches_profile(original: dict[str, str]) -> None:
    [lun] = scsi_disks("scsi_debug")
    assert by_profile(lun)
    assert well()
    status_text = systemctl("show", "--property=StatusText", "--value", UNIT)
    assert status_text.startswith("profile oltp, ")


def test_returning_disk_is_tuned(lun: str) -> None:
    again = appear.again(appear.Rescan())
    assert by_profile(again), "by udev's rules, when its event has arrived"


def test_nvme_reset_is_repaired(lun: str) -> None:
    with appear.less_read_ahead(), reconfigured(QUIET) as journal:
        reset = appear.Reset()
        while not reset.right(reset.disk):
            wait_a_moment()
        appear.again(reset)
        entry = journal.until_set(reset.disk, "read_ahead_kb")
        assert "reset by the kernel" in entry["MESSAGE"]
        assert reset.right(reset.disk)


def test_audit_repairs_read_ahead_after_rescan(lun: str) -> None:
    """Since Linux 6.11 a rescan raises it, without an event (block/blk-settings.c)."""
    with appear.less_read_ahead("virtual"), reconfigured() as journal:
        while cat(lun, "queue/read_ahead_kb") != "64":  # an earlier scan may have been reported
            wait_a_moment()
        put(lun, "device/rescan", "1")
        if KERNEL >= (6, 11):
            entry = journal.until_set(lun, "read_ahead_kb")
            assert int(entry["HBATUNE_FROM"]) > 64
            # The entry may be of the scan before: its write is older than the rescan.
            while cat(lun, "queue/read_ahead_kb") != "64":
                wait_a_moment()
        assert cat(lun, "queue/read_ahead_kb") == "64"


def test_rebound_adapter_is_tuned(lun: str) -> None:
    assert by_profile(appear.again(appear.Bound()))


def test_reloaded_map_is_tuned(lun: str) -> None:
    with appear.two_hosts(), multipath.joined() as name, reconfigured(QUIET) as journal:
        while not well():  # the LUN is a path now, and its event may still wait for the daemon
            wait_a_moment()
        reload_until_reported(appear.Reloaded(name), name, journal)


@pytest.mark.deadline(600)
def test_busy_disk_has_sampled_p99(lun: str) -> None:
    with objective(1), reconfigured(WITH_OBJECTIVE) as journal:
        message = ""
        while "ms, sampled;" not in message:
            # A stall raises the mean above the p99 of the last sample. Then the mean is named.
            if message:
                journal.until_said("latency is within the objective again")
            with reading([lun]):
                message = journal.until_said("the objective is a p99 of 1 ms")["MESSAGE"]
        with reading([lun]):
            assert LATENCY.exists()
            done = hbatune("watch", "--json", "--interval", "1", "--count", "1", lun)
            [shown] = done.json["readings"]
            assert shown["p99_sampled"]
            assert shown["p99_ms"] >= 4
            left = INSTANCE.stat().st_ino
            os.kill(daemon(), signal.SIGKILL)
            assert INSTANCE.exists()
            journal.until_said("ready: profile oltp")
            assert not INSTANCE.exists() or INSTANCE.stat().st_ino != left
            assert not is_tuned(), "the alert is still active"
        while not is_tuned():
            wait_a_moment()
        systemctl("stop", UNIT)
        assert not INSTANCE.exists()
    systemctl("start", UNIT)


def test_writer_in_other_namespace_is_named(lun: str) -> None:
    """The kernels differ in the structure of which the daemon's kprobe reads a member."""
    with reconfigured() as journal, written_elsewhere(lun):
        message = journal.until_set(lun, "nr_requests")["MESSAGE"]
    assert '(uid 0, "sh") set nr_requests at 20' in message


def test_rolled_back_values_stay(lun: str, original: dict[str, str]) -> None:
    back = hbatune("rollback")
    assert back.code == 0, back.out
    assert everything() == original
    for _ in range(5):
        systemctl("reload", UNIT)
        announce(lun)
    let_be(12)  # two audits
    assert everything() == original
    assert hbatune("status", "--json").json["state"] == "rolled_back"
