"""Commands of scsi_debug that hang in the queue of a disk, and a check that does not see them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.guest.kit import SCSI_DEBUG, set_service_time, wait_a_moment
from tests.lab.guest.values import cat, put

SECONDS_HUNG = 40
JIFFIES = 250  # a second of Debian's kernels, in which scsi_debug counts its delay

Hanging = subprocess.Popen[bytes]


@contextmanager
def hung(disk: str, seconds: int = SECONDS_HUNG) -> Iterator[Hanging]:
    """Keep one read in flight on a scsi_debug disk, so that its queue cannot be frozen."""
    read = ["dd", f"if=/dev/{disk}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
    with _outstanding(disk, read, "inflight", seconds) as reader:
        yield reader


@contextmanager
def hung_passthrough(disk: str) -> Iterator[Hanging]:
    """Keep one command of user space in flight (SG_IO), which ``inflight`` does not count.

    sg_raw opens the disk for reading only (-R). After a writer has closed it, udev reads the
    disk, and that read would hang as long.
    """
    read = f"sg_raw -R -t 300 -r 512 /dev/{disk} 28 00 00 00 00 00 00 00 01 00"
    with _outstanding(disk, read.split(), "device/device_busy", SECONDS_HUNG) as sender:
        assert cat(disk, "inflight").split() == ["0", "0"]
        yield sender


@contextmanager
def _outstanding(disk: str, command: list[str], counter: str, seconds: int) -> Iterator[Hanging]:
    timeout = cat(disk, "device/timeout")
    put(disk, "device/timeout", "300")
    before = int((SCSI_DEBUG / "delay").read_text())
    set_service_time("delay", seconds * JIFFIES)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while cat(disk, counter).split()[0] == "0":
            wait_a_moment()
        yield process
    finally:
        process.wait()
        set_service_time("delay", before)
        put(disk, "device/timeout", timeout)


def see_no_commands() -> None:
    """Let this process see no command: each one begins to hang after the check."""
    from hbatune.facts.commands import CommandCounters, QueueLoad

    CommandCounters.read = lambda self: QueueLoad()  # type: ignore[method-assign]
