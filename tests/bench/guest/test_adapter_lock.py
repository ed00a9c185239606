"""96 LUNs of an adapter against a bare serial writer. 7.3 locks the adapter for each write."""

import time
from mmap import mmap
from pathlib import Path
from struct import Struct

import pytest

from hbatune.act.journal_format import find_trace
from tests.bench.guest import luns
from tests.bench.guest.comparison import compared, in_turns, save
from tests.bench.guest.luns import AFTER, BEFORE
from tests.lab.guest.command import JOURNAL, configure, hbatune

KERNELS = ("6.1", "6.12", "newest")
ARTIFACTS = Path("/run/lab/artifacts")  # what is in here goes to the host

APPLY = ("apply", "--profile", "oltp", "--no-probe")
LUNS = 96
ROUNDS = 5
_TIMES = Struct("dd")


@pytest.fixture(scope="module")
def disks(virtual_disks_wanted: None) -> list[str]:
    """The LUNs; every other disk of the lab has its values already."""
    configure("[act]\nmemory_share = 0.5\n")
    assert hbatune(*APPLY).code == 0
    return luns.load(LUNS)


def begin(disks: list[str]) -> None:
    """Bring the LUNs back to the state at which each round begins, with nothing filed."""
    luns.put(disks, BEFORE, writers=1)
    find_trace(JOURNAL).unlink(missing_ok=True)  # first: a trace without its journal is a loss
    JOURNAL.unlink(missing_ok=True)
    assert not luns.unlike(disks, BEFORE)


class WriteClock:
    """The times of the first and the last write of a command and its workers.

    They are in shared memory: a log in a file would prolong the writes.
    """

    def __init__(self) -> None:
        self._times = mmap(-1, _TIMES.size)

    def start(self) -> None:
        """Have this process note its writes, and the workers that it forks."""
        from hbatune.act import chain

        store = chain._store

        def noted(path: str, text: str) -> int | None:
            first = _TIMES.unpack_from(self._times)[0] or time.monotonic()
            refused = store(path, text)
            _TIMES.pack_into(self._times, 0, first, time.monotonic())
            return refused

        chain._store = noted

    @property
    def seconds(self) -> float:
        """From the beginning of the first write to the end of the last one."""
        times: tuple[float, float] = _TIMES.unpack_from(self._times)
        return times[1] - times[0]


@pytest.mark.deadline(1500)
def test_locked_adapter_is_near_serial_writer(disks: list[str], series: str) -> None:
    def writing() -> float:
        begin(disks)
        clock = WriteClock()
        done = hbatune(*APPLY, prepare=clock.start)
        assert done.code == 0, done.out + done.err
        assert not luns.unlike(disks, AFTER)
        return clock.seconds

    def bare() -> float:
        begin(disks)
        took = luns.put(disks, AFTER, writers=1)
        assert not luns.unlike(disks, AFTER)
        return took

    subject, reference = in_turns(ROUNDS, writing, bare)
    comparison = compared(
        f"lock-{series}",
        f"writing {LUNS} LUNs of one adapter against a serial writer, kernel {series}",
        1.2,
        ("from the first to the last write of an apply", subject),
        ("one process that reads, writes and reads back", reference),
        {
            "luns": f"{LUNS} of scsi_debug, from {BEFORE} to {AFTER}",
            "machine": "QEMU without KVM; udev stopped",
        },
    )
    save(comparison, ARTIFACTS / "bench")
    assert comparison.met, comparison
