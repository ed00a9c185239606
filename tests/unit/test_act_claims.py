"""Writers that an earlier run left behind are ended before anything else is written."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from hbatune.act import claims
from hbatune.act.claims import Claim
from hbatune.workers import Process, process, this_process


def claim_of(writer: Process, folder: Path) -> Claim:
    """Return the claim of a writer, which it has left in the folder."""
    claim = Claim(writer.pid, writer.start_time, "sda", "id-sda")
    (folder / str(writer.pid)).write_bytes(msgspec.json.encode(claim))
    return claim


def test_a_writer_of_an_earlier_run_is_killed(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code]) as writer:
        try:
            left = claim_of(process(writer.pid), tmp_path)
            assert claims.outstanding(tmp_path) == [left]
            assert claims.settle(tmp_path, patience=10) == []
            assert writer.wait(timeout=10) == -signal.SIGKILL
        finally:
            writer.kill()
    assert not list(tmp_path.iterdir())


def test_a_process_that_only_has_the_writers_number_is_left_alone(tmp_path: Path) -> None:
    me = this_process()
    claim_of(Process(me.pid, me.start_time - 1), tmp_path)
    assert claims.settle(tmp_path, patience=0) == []
    assert os.getpid() == me.pid  # still here
    assert not list(tmp_path.iterdir())
