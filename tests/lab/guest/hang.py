"""Commands of scsi_debug that hang in the queue of a disk, and a check that does not see them."""

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.lab.guest.kit import SCSI_DEBUG, set_service_time, wait_a_moment
from tests.lab.guest.values import cat, put

SECONDS_HUNG = 40
JIFFIES = 250  # a second of Debian's kernels, in which scsi_debug counts its delay

Hanging = subprocess.Popen[bytes]


@contextmanager
def hung(disk: str) -> Iterator[Hanging]:
    """Keep one read in flight on a scsi_debug disk, so that its queue cannot be frozen."""
    with _slow(disk), _read(disk) as reader:
        yield reader


@contextmanager
def hung_each_way(read: str, sent: str) -> Iterator[tuple[Hanging, Hanging]]:
    """Keep a read in flight on one disk, and on another a command of user space (SG_IO)."""
    with _slow(read, sent), _read(read) as reader, _passthrough(sent) as sender:
        assert cat(sent, "inflight").split() == ["0", "0"], "it counts no command of user space"
        yield reader, sender


def _read(disk: str) -> AbstractContextManager[Hanging]:
    command = f"dd if=/dev/{disk} of=/dev/null bs=4k count=1 iflag=direct"
    return _outstanding(disk, command, "inflight")


def _passthrough(disk: str) -> AbstractContextManager[Hanging]:
    """Send a read by SG_IO.

    sg_raw opens the disk for reading only (-R). After a writer has closed it, udev reads the
    disk, and that read would hang as long.
    """
    command = f"sg_raw -R -t 300 -r 512 /dev/{disk} 28 00 00 00 00 00 00 00 01 00"
    return _outstanding(disk, command, "device/device_busy")


@contextmanager
def _outstanding(disk: str, command: str, counter: str) -> Iterator[Hanging]:
    process = subprocess.Popen(
        command.split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while cat(disk, counter).split()[0] == "0":
            wait_a_moment()
        yield process
    finally:
        process.wait()


@contextmanager
def _slow(*disks: str) -> Iterator[None]:
    """Have every command of the driver take its time, for which the kernel waits on these disks."""
    timeouts = {disk: cat(disk, "device/timeout") for disk in disks}
    for disk in disks:
        put(disk, "device/timeout", "300")
    before = int((SCSI_DEBUG / "delay").read_text())
    set_service_time("delay", SECONDS_HUNG * JIFFIES)
    try:
        yield
    finally:
        set_service_time("delay", before)
        for disk, timeout in timeouts.items():
            put(disk, "device/timeout", timeout)


def see_no_commands() -> None:
    """Let this process see no command: each one begins to hang after the check."""
    from hbatune.facts.commands import CommandCounters, QueueLoad

    CommandCounters.read = lambda self: QueueLoad()  # type: ignore[method-assign]
