"""The cause of a latency on an eHBA 9600, whose interrupts cannot be moved.

With more than eight commands in flight, a thread of the interrupt completes them
(drivers/scsi/mpi3mr/mpi3mr_fw.c: mpi3mr_isr_poll). Real-time tasks can take its CPU.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.planted_causes import READS, ask, loaded

KERNELS = ("6.12",)
TOPOLOGY = "tri-mode"
RUNS = 3
OTHER_CPU = Path("/sys/devices/system/cpu/cpu1/online")
TASK = """
import time
while True:
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
    time.sleep(0.005)
"""


@contextmanager
def real_time_task() -> Iterator[None]:
    """Keep the first CPU busy for four fifths of the time, before the thread of the interrupt."""
    words = ("taskset", "--cpu-list", "0", "chrt", "--fifo", "80", sys.executable, "-c", TASK)
    with subprocess.Popen(words) as running:
        try:
            yield
        finally:
            running.kill()


@pytest.fixture(scope="module")
def disk() -> Iterator[str]:
    """Return a disk that the second CPU reads, and whose only interrupt is on the first one."""
    OTHER_CPU.write_text("0")  # the driver makes a queue for each CPU
    try:
        with tri_mode.loaded():
            OTHER_CPU.write_text("1")
            name = tri_mode.of("SEAGATE")[0]
            with loaded(name, (*READS, "--cpus_allowed=1")):
                yield name
    finally:
        OTHER_CPU.write_text("1")


def test_interrupt_that_waits_for_real_time_task_is_found(disk: str) -> None:
    with real_time_task():
        answers = [ask(disk) for _ in range(RUNS)]
    named = [(answer["cause"], answer["culprit"], answer["lever"]) for answer in answers]
    assert named.count(("interrupt", "cpu0", "none")) > RUNS / 2, answers
