"""The rate of a disk while `hbatune why` traces it, against its rate without."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.bench.guest.comparison import compared, in_turns, save
from tests.lab.guest.command import Forked
from tests.lab.guest.kit import set_service_time, wait_a_moment
from tests.lab.guest.values import cat, put

KERNELS = ("6.12",)
ARTIFACTS = Path("/run/lab/artifacts")  # the host fetches its files
ROUNDS = 11
SECONDS = 10
"""The default of `why`."""
DEPTH = 16
TIME = Path("/run/lab/time")
"""The seconds of 10,000 reads during the last trace."""


@contextmanager
def loaded(disk: str) -> Iterator[None]:
    """Read as fast as all CPUs can."""
    reads = ("--readonly", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring")
    shape = (f"--iodepth={DEPTH}", f"--numjobs={os.cpu_count()}", "--time_based", "--runtime=3600")
    words = ("fio", "--name=load", f"--filename=/dev/{disk}", "--thread", *reads, *shape)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as running:
        try:
            while count_reads(disk) < 5000:
                assert running.poll() is None
                wait_a_moment()
            yield
        finally:
            running.kill()


def count_reads(disk: str) -> int:
    """Return the completed reads of the disk."""
    return int(cat(disk, "stat").split()[0])


def note_time(disk: str) -> None:
    """Have `why` note the time of a read during its trace."""
    from hbatune.operations import why

    trace = why._Tracing.run

    def run(tracing: why._Tracing, *arguments: Any) -> None:
        began, reads = time.monotonic(), count_reads(disk)
        trace(tracing, *arguments)
        seconds = time.monotonic() - began
        TIME.write_text(str(1e4 * seconds / (count_reads(disk) - reads)))

    why._Tracing.run = run  # type: ignore[assignment]


@pytest.mark.deadline(1500)
def test_tracing_costs_few_iops(full_lun: str, series: str) -> None:
    set_service_time("delay", 0)
    put(full_lun, "queue/scheduler", "none")
    requests, shares = [], []

    def trace() -> float:
        done = Forked("why", full_lun, "--json", prepare=partial(note_time, full_lun)).wait()
        assert done.code == 0, done.out + done.err
        requests.append(done.json["requests"])
        shares.append(done.json["traced"])
        return float(TIME.read_text())

    def wait() -> float:
        began, reads = time.monotonic(), count_reads(full_lun)
        time.sleep(SECONDS)
        return 1e4 * (time.monotonic() - began) / (count_reads(full_lun) - reads)

    with loaded(full_lun):
        traced, free = in_turns(ROUNDS, trace, wait)
    comparison = compared(
        f"why-{series}",
        f"reading a disk that `why` traces, kernel {series}",
        1.03,
        ("10,000 reads during the trace", traced),
        ("10,000 reads without a trace", free),
        {
            "load": f"random 4K reads, {DEPTH} in flight on each CPU, as fast as they can",
            "machine": "QEMU without KVM, scsi_debug without a delay",
            "requests": f"{median(requests):g} in an answer (median)",
            "traced": f"{median(shares):.1%} of the time (median)",
        },
    )
    save(comparison, ARTIFACTS / "bench")
    assert comparison.met, comparison
