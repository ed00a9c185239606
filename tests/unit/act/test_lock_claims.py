"""Claims name the disk of each writer, and the next run ends the writers that were left."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hbatune.act import lock
from hbatune.act.chain import Chain
from hbatune.act.lock import Claim, ClaimTable
from hbatune.workers import Process, find_process, find_this_process

SDA = Chain("sda", "id-sda", None, None, "/sys/block/sda", ())
SDB = Chain("sdb", "id-sdb", None, None, "/sys/block/sdb", ())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run/claims"


@contextmanager
def writer() -> Iterator[subprocess.Popen[bytes]]:
    """A process that only SIGKILL ends."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code]) as started:
        try:
            yield started
        finally:
            started.kill()


def targets(path: Path) -> list[str]:
    return sorted(claim.target for claim in lock.find_outstanding_claims(path))


def test_earlier_writer_is_killed(path: Path) -> None:
    with writer() as process:
        with ClaimTable(path, 2) as table:
            table.started(find_process(process.pid), SDA)
        [claim] = lock.find_outstanding_claims(path)
        assert claim == Claim(process.pid, find_process(process.pid).start_time, "sda", "id-sda")
        assert lock.settle_claims(path, patience=10) == []
        assert process.wait(timeout=10) == -signal.SIGKILL
    assert lock.find_outstanding_claims(path) == []


def test_reused_pid_survives(path: Path) -> None:
    me = find_this_process()
    with ClaimTable(path, 1) as table:
        table.started(Process(me.pid, me.start_time - 1), SDA)
    assert lock.settle_claims(path, patience=0) == []
    assert os.getpid() == me.pid  # still here


def test_claim_ends_with_write(path: Path) -> None:
    with ClaimTable(path, 2) as table:
        table.started(find_this_process(), SDA)
        assert targets(path) == ["sda"]
        table.ended(find_this_process())
        assert targets(path) == []


def test_stuck_claim_survives_later_run(path: Path) -> None:
    with writer() as stuck:
        with ClaimTable(path, 1) as first:
            first.started(find_process(stuck.pid), SDA)
        with ClaimTable(path, 1) as second:
            second.started(find_this_process(), SDB)
            assert targets(path) == ["sda", "sdb"]
            second.ended(find_this_process())
        assert targets(path) == ["sda"]


def test_surplus_writers_still_write(path: Path) -> None:
    with ClaimTable(path, 1) as table:
        table.started(find_this_process(), SDA)
        table.started(Process(1, 1), SDB)
        table.ended(Process(1, 1))
        assert targets(path) == ["sda"]


def test_slots_are_preallocated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ClaimTable(path, 3):
        pass
    allocated = path.stat().st_size

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with ClaimTable(path, 64) as table:
        table.started(find_this_process(), SDA)
        assert targets(path) == ["sda"]
    assert path.stat().st_size == allocated


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_writers_tolerate_missing_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)
    with ClaimTable(path, 2) as table:
        table.started(find_this_process(), SDA)
        table.ended(find_this_process())
    monkeypatch.undo()
    assert lock.find_outstanding_claims(path) == []


def test_damaged_slot_spares_claims(path: Path) -> None:
    with ClaimTable(path, 2) as table:
        table.started(find_this_process(), SDA)
    data = bytearray(path.read_bytes())
    data[1024:1030] = b'{"pid"'
    path.write_bytes(data)
    assert targets(path) == ["sda"]
