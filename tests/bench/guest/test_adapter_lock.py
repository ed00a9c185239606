"""96 LUNs of an adapter that the kernel locks for each write, against a bare serial writer."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act.journal_format import find_trace
from tests.bench.guest import luns
from tests.bench.guest.comparison import compared, in_turns, save
from tests.bench.guest.luns import AFTER, BEFORE
from tests.lab.guest.command import JOURNAL, configure, hbatune

KERNELS = ("newest",)
ARTIFACTS = Path("/run/lab/artifacts")  # what is in here goes to the host

APPLY = ("apply", "--profile", "oltp", "--no-probe")
LUNS = 96
ROUNDS = 5


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


def log_writes(file: Path) -> Callable[[], None]:
    """Return a function that makes this process log the times of its writes, and its workers."""

    def prepare() -> None:
        from hbatune.act import chain

        store = chain._store

        def logged(path: str, text: str) -> int | None:
            began = time.monotonic()
            refused = store(path, text)
            with file.open("a") as log:
                log.write(f"{began} {time.monotonic()}\n")
            return refused

        chain._store = logged

    return prepare


@pytest.mark.deadline(1500)
def test_locked_adapter_is_near_serial_writer(
    disks: list[str], series: str, tmp_path: Path
) -> None:
    times = tmp_path / "times"

    def writing() -> float:
        begin(disks)
        times.unlink(missing_ok=True)
        done = hbatune(*APPLY, prepare=log_writes(times))
        assert done.code == 0, done.out + done.err
        assert not luns.unlike(disks, AFTER)
        seconds = [tuple(map(float, line.split())) for line in times.read_text().splitlines()]
        return max(end for _, end in seconds) - min(began for began, _ in seconds)

    def bare() -> float:
        begin(disks)
        took = luns.put(disks, AFTER, writers=1)
        assert not luns.unlike(disks, AFTER)
        return took

    subject, reference = in_turns(ROUNDS, writing, bare)
    comparison = compared(
        f"lock-{series}",
        f"writing {LUNS} LUNs of a locked adapter against a serial writer, kernel {series}",
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
