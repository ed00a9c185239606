"""Queue depths that are lowered under I/O, while the kernel raises them.

The ceiling of a depth follows it a moment later. What is served in between takes the depth for one
that a full queue has lowered, and raises it and those of the other LUNs of the target by one, for
good (drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up).
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hbatune.act.chain import Chain, Step
from hbatune.act.executor import Means
from hbatune.act.writer import execute_chains
from hbatune.plan.rows import Outcome
from hbatune.settings.table import Value
from tests.kernel.chains import write_chain
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.values import BLOCK, cat, put, put_back

KERNELS = ("6.12",)
TARGET = {"num_tgts": 1, "max_queue": 192, "ndelay": 100_000}
HIGH, LOW = 150, 20
AT_ONCE, SOON = "0", "500"
"""Milliseconds between two steps of a LUN's ramp. In the two minutes of the default one is let
through at once, and in a shorter time each time."""
ROUNDS = 200
LUNS, TOGETHER = 16, 10
"""A mistake of one in eight would be missed once in a thousand million runs."""


@contextmanager
def served(disks: Sequence[str], period: str) -> Iterator[None]:
    """Have these disks read all the time, with so many ms between two steps of a ramp."""
    for disk in disks:
        put(disk, "device/queue_ramp_up_period", period)
    files = ":".join(f"/dev/{disk}" for disk in disks)
    reads = ("--readonly", "--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=64")
    words = ("fio", "--name=busy", f"--filename={files}", *reads, "--time_based", "--runtime=600")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as fio:
        try:
            while all(cat(disk, "inflight").split() == ["0", "0"] for disk in disks):
                wait_a_moment()
            yield
        finally:
            fio.terminate()


@pytest.mark.deadline(300)
def test_depth_is_lowered_completely(scsi_debug: Callable[..., list[str]]) -> None:
    """One in ten ended above, and was said to be ignored; on 6.1 one in 100."""
    [disk] = scsi_debug(max_luns=1, **TARGET)
    outcomes: Counter[tuple[Outcome, Value | None]] = Counter()
    with served([disk], AT_ONCE):
        for _ in range(ROUNDS):
            put(disk, "device/queue_depth", str(HIGH))
            [result] = write_chain(chain_to(LOW, disk))
            outcomes[result.outcome, result.found] += 1
    assert outcomes == {(Outcome.WRITTEN, LOW): ROUNDS}


@pytest.mark.deadline(300)
def test_lowering_lun_raises_no_sibling(
    scsi_debug: Callable[..., list[str]], tmp_path: Path
) -> None:
    """One in eight ended above, most of them read back before, and each was said to be right."""
    disks = scsi_debug(max_luns=LUNS, **TARGET)
    means = Means(tmp_path / "journal", tmp_path / "claims", tmp_path / "spent", LUNS, 10)
    depths: Counter[int] = Counter()
    with served(disks, SOON):
        for _ in range(TOGETHER):
            put_back({f"{disk}/device/queue_depth": str(HIGH) for disk in disks})
            report = execute_chains([chain_to(LOW, disk) for disk in disks], means)
            assert {result.outcome for result in report.results.values()} == {Outcome.WRITTEN}
            depths.update(int(cat(disk, "device/queue_depth")) for disk in disks)
    assert depths == {LOW: LUNS * TOGETHER}


def chain_to(depth: int, disk: str) -> Chain:
    """Return the chain that sets a depth. The kernel may have raised ``HIGH`` while it was set."""
    device = str((BLOCK / disk).resolve())
    step = Step("queue_depth", depth, int(cat(disk, "device/queue_depth")))
    return Chain(disk, disk, None, None, device, (step,))
