"""Failed I/O in the kernel's log: what counts, of which kind it is, and what is no failure."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts import kernel_log as module
from hbatune.facts.health import ErrorKind
from hbatune.facts.kernel_log import add_counts, count_faults, read_kernel_log
from hbatune.facts.model import Missing, Reason

TAIL = "flags 0x0 phys_seg 1 prio class 0"
READ = f"op 0x0:(READ) {TAIL}"


def log(*messages: str, priority: int = 3) -> str:
    """Return the messages as records of /dev/kmsg, with a dictionary behind each."""
    return "".join(
        f"{priority},{n},{n * 1000},-;{text}\n SUBSYSTEM=scsi\n DEVICE=+scsi:0:0:0:0\n"
        for n, text in enumerate(messages)
    )


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("critical medium", ErrorKind.MEDIUM),
        ("protection", ErrorKind.PROTECTION),
        ("recoverable transport", ErrorKind.TRANSPORT),
        ("device offline", ErrorKind.TRANSPORT),
        ("timeout", ErrorKind.TIMEOUT),
        ("critical space allocation", ErrorKind.SPACE),
        ("critical target", ErrorKind.OTHER),
        ("I/O", ErrorKind.OTHER),
        # blk_update_request before Linux 5.16 put its own name first.
        ("blk_update_request: critical medium", ErrorKind.MEDIUM),
    ],
)
def test_block_error_words_set_kind(words: str, fault: ErrorKind) -> None:
    assert count_faults(log(f"{words} error, dev nvme0n1, sector 8 {READ}")) == {
        "nvme0n1": {fault: 1}
    }


@pytest.mark.parametrize(
    "words", ["operation not supported", "reservation conflict", "device resource", "zone active"]
)
def test_non_device_errors_ignored(words: str) -> None:
    assert count_faults(log(f"{words} error, dev sda, sector 8 {READ}")) == {}


@pytest.mark.parametrize("operation", ["DISCARD", "WRITE_ZEROES", "SECURE_ERASE"])
def test_optional_refusal_is_ignored(operation: str) -> None:
    lines = [f"{words} error, dev sda, sector 8 op 0x3:({operation}) {TAIL}" for words in _VAGUE]
    assert count_faults(log(*lines)) == {}


_VAGUE = ("critical target", "I/O")


@pytest.mark.parametrize(
    ("sense_text", "fault"),
    [
        ("Sense Key : Medium Error [current] ", ErrorKind.MEDIUM),
        ("Sense Key : Hardware Error [current] [descriptor] ", ErrorKind.HARDWARE),
        ("Sense Key : Aborted Command [current] ", ErrorKind.TRANSPORT),
        ("Sense Key : Illegal Request [current] ", ErrorKind.OTHER),
        ("FAILED Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK", ErrorKind.TRANSPORT),
        (
            "FAILED Result: hostbyte=DID_TIME_OUT driverbyte=DRIVER_OK cmd_age=60s",
            ErrorKind.TIMEOUT,
        ),
        ("FAILED Result: hostbyte=DID_ERROR driverbyte=DRIVER_OK cmd_age=0s", ErrorKind.OTHER),
    ],
)
def test_scsi_sense_refines_next_error(sense_text: str, fault: ErrorKind) -> None:
    before = f"sd 0:0:0:0: [sda] tag#16 {sense_text}"
    both = log(
        before, f"I/O error, dev sda, sector 8 {READ}", f"I/O error, dev sdb, sector 8 {READ}"
    )
    assert count_faults(both) == {"sda": {fault: 1}, "sdb": {ErrorKind.OTHER: 1}}
    # It is said of the next failure alone.
    again = both + log(f"I/O error, dev sda, sector 9 {READ}")
    assert sum(count_faults(again)["sda"].values()) == 2
    assert count_faults(again)["sda"].get(ErrorKind.OTHER)
    # A sense without a failure behind it was retried, and went well.
    assert count_faults(log(before)) == {}


def test_unit_attention_means_reset() -> None:
    assert count_faults(log("sd 2:0:1:0: Power-on or device reset occurred")) == {
        "2:0:1:0": {ErrorKind.RESET: 1}
    }


@pytest.mark.parametrize(
    "text",
    [
        "nvme nvme0: I/O 12 (I/O Cmd) QID 3 timeout, aborting",
        "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0)",
    ],
)
def test_nvme_timeout_blames_controller(text: str) -> None:
    assert count_faults(log(text)) == {"nvme0": {ErrorKind.TIMEOUT: 1}}
    # Queue 0 is for commands to the controller, such as a poll of its health.
    assert count_faults(log(text.replace("QID 3", "QID 0"))) == {}


def test_new_disk_drops_namesake_errors() -> None:
    failed = [f"critical medium error, dev {name}, sector 8 {READ}" for name in _NAMES]
    assert set(count_faults(log(*failed))) == set(_NAMES)
    new = "sd 1:0:0:0: [sda] 2097152 512-byte logical blocks: (1.07 GB/1.00 GiB)"
    assert set(count_faults(log(*failed, new))) == set(_NAMES) - {"sda"}
    virtual = "virtio_blk virtio1: [sda] 20480 512-byte logical blocks (10.5 MB/10.0 MiB)"
    assert set(count_faults(log(*failed, virtual))) == set(_NAMES) - {"sda"}
    probed = "nvme nvme1: pci function 0000:01:00.0"
    assert set(count_faults(log(*failed, probed))) == {"sda", "sdaa", "nvme11n1"}


_NAMES = ("sda", "sdaa", "nvme1n1", "nvme0c1n1", "nvme11n1")


def test_process_lines_are_ignored() -> None:
    forged = log(f"critical medium error, dev sda, sector 8 {READ}", priority=8 + 3)
    assert count_faults(forged) == {}


@given(st.text())
def test_any_text_parses(text: str) -> None:
    count_faults(text)
    count_faults(log(text))


def test_related_counts_are_added() -> None:
    counts = {
        "sda": {ErrorKind.MEDIUM: 2},
        "0:0:0:0": {ErrorKind.RESET: 1},
        "nvme0": {ErrorKind.TIMEOUT: 3},
    }
    assert add_counts(counts, "sda", "0:0:0:0", None) == {ErrorKind.MEDIUM: 2, ErrorKind.RESET: 1}
    assert add_counts(counts, "nvme0n1", None, "nvme0") == {ErrorKind.TIMEOUT: 3}


def test_kernel_log_reads_kmsg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kmsg"
    monkeypatch.setattr(module, "_DEVICE", str(file))
    assert read_kernel_log() == Missing(Reason.ABSENT, errno.ENOENT)
    # Longer than one read, and not all of it text.
    line = log(f"critical medium error, dev sda, sector 8 {READ}").encode()
    file.write_bytes(line * 500 + b"\xff\xfe\n" + line)
    assert read_kernel_log() == {"sda": {ErrorKind.MEDIUM: 501}}
    file.unlink()
    file.mkdir()
    kernel_log = read_kernel_log()
    assert isinstance(kernel_log, Missing)
    assert kernel_log.reason is Reason.UNREADABLE


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a log that this user may not read; return the file of what `journalctl` prints."""
    real = os.open

    def denied(path: str, *arguments: int) -> int:
        if path == "/dev/kmsg":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(path, *arguments)

    program = tmp_path / "bin/journalctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/argv\ncat {tmp_path}/printed\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(module, "_DEVICE", "/dev/kmsg")
    monkeypatch.setattr(os, "open", denied)
    return tmp_path / "printed"


def entry(message: object, facility: str = "0") -> str:
    return json.dumps({"__CURSOR": "x", "MESSAGE": message, "SYSLOG_FACILITY": facility}) + "\n"


def test_journal_replaces_unreadable_kmsg(journal: Path) -> None:
    failed = f"critical medium error, dev sda, sector 8 {READ}"
    journal.write_text(
        entry("Linux version 6.1")
        + entry(failed)
        + entry(failed.replace("sda", "sdb"), facility="1")  # a process wrote that
        + entry([255, 254])
        + entry(None)
    )
    assert read_kernel_log() == {"sda": {ErrorKind.MEDIUM: 1}}
    assert "--boot" in (journal.parent / "argv").read_text()


@pytest.mark.parametrize("printed", ["", "[]\n", "{", entry("a process's own", facility="3")])
def test_kernelless_journal_is_unreadable(journal: Path, printed: str) -> None:
    journal.write_text(printed)
    assert read_kernel_log() == Missing(Reason.UNREADABLE, errno.EPERM)


def test_missing_journalctl_is_unreadable(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert read_kernel_log() == Missing(Reason.UNREADABLE, errno.EPERM)
