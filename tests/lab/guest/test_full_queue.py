"""A device that reports a full queue: the kernel lowers its depth, and nobody fights it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import loaded_scsi_debug, wait_a_moment
from tests.lab.guest.service import QUICK, Journal, running
from tests.lab.guest.values import BLOCK, cat, put

KERNELS = ("6.12",)
LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "delay": 5}
SITE_RULES = Path("/etc/hbatune/rules.d/full.toml")
DEPTH = 64
RULE = f"""
[[rule]]
name = "a-depth"
when = {{ protocol = "virtual" }}
setting = "queue_depth"
value = {DEPTH}
because = "a test"
source = "site"
"""
_ERRORS = Path("/sys/kernel/debug/scsi_debug")
_ALWAYS_FULL = "2 1 0x28 0 0 0x28 0 0 0"
"""Errors of kind 2, for ever, for READ(10), with nothing from the host and TASK SET FULL from the
device (drivers/scsi/scsi_debug.c: sdebug_error_write, since Linux 6.7). The module's own options
for it say at the host, too, that the command was aborted, so that the midlayer gives it up."""
_NO_MORE = "- 2 0x28"


@pytest.fixture(scope="module")
def lun() -> Iterator[str]:
    """A LUN whose depth a site's rule sets, and a daemon that audits every few seconds."""
    SITE_RULES.parent.mkdir(parents=True, exist_ok=True)
    SITE_RULES.write_text(RULE)
    try:
        with loaded_scsi_debug(**LUN) as [disk], running(QUICK):
            assert depth(disk) == DEPTH
            yield disk
    finally:
        SITE_RULES.unlink()


def depth(disk: str) -> int:
    return int(cat(disk, "device/queue_depth"))


@contextmanager
def busy(disk: str) -> Iterator[None]:
    """Have more I/O on the LUN than its depth."""
    job = ["--ioengine=libaio", "--direct=1", "--rw=randread", "--iodepth=128", "--time_based"]
    words = ["fio", "--name=busy", f"--filename=/dev/{disk}", "--runtime=600", *job]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as fio:
        try:
            yield
        finally:
            fio.terminate()


@contextmanager
def full(disk: str) -> Iterator[None]:
    """Have the device say that its queue is full."""
    error = _ERRORS / (BLOCK / disk / "device").resolve().name / "error"
    error.write_text(_ALWAYS_FULL)
    try:
        yield
    finally:
        error.write_text(_NO_MORE)


@pytest.mark.deadline(600)
def test_ramp_is_reported_once(lun: str) -> None:
    with Journal() as journal:
        journal.reload()
        with busy(lun), full(lun):
            while depth(lun) > DEPTH - 3:
                wait_a_moment()
        entry = journal.until_set(lun, "queue_depth")
        assert "the device's queue was full at depth" in entry["MESSAGE"]
        assert "raises it again by one every 120 s" in entry["MESSAGE"]
        sunk = depth(lun)
        assert sunk < DEPTH, "it is not fought"
        # The watch may have an alert of its own: those answers count as errors.
        [change] = hbatune("status", "--json").json["status"]["open"]
        assert (change["handled"], change["setting"]) == ("ramping", "queue_depth")
        status_text = hbatune("status").out
        assert "1 queue depth that the kernel raises again" in status_text
        assert "not as they should be" not in status_text
        put(lun, "device/queue_ramp_up_period", "100")
        with busy(lun):
            while depth(lun) < DEPTH:
                wait_a_moment()
        journal.reload()
        assert hbatune("status", "--json").json["status"]["open"] == []
        depth_entries = [
            logged for logged in journal.entries if logged.get("HBATUNE_SETTING") == "queue_depth"
        ]
        assert len(depth_entries) == 1


def test_manual_cut_is_drift(lun: str) -> None:
    with Journal() as journal:
        put(lun, "device/queue_depth", "8")
        entry = journal.until_set(lun, "queue_depth")
        assert (entry["HBATUNE_FROM"], entry["HBATUNE_TO"]) == ("8", str(DEPTH))
        assert depth(lun) == DEPTH


def test_explicit_apply_ends_ramp(lun: str) -> None:
    with busy(lun), full(lun):
        while depth(lun) > DEPTH - 2:
            wait_a_moment()
    assert hbatune("apply", "--no-probe", lun).code == 0
    assert depth(lun) == DEPTH
    with Journal() as journal:
        journal.reload()
    assert hbatune("status", "--json").json["status"]["open"] == []
