"""A queue depth that is lowered under I/O, while the kernel raises it.

A ceiling follows a depth a moment later, and what is served in between takes the depth for one that
a full queue has lowered (drivers/scsi/scsi_error.c: scsi_handle_queue_ramp_up).
"""

from collections import Counter
from collections.abc import Callable

import pytest

from hbatune.act.chain import Chain, Step, write
from hbatune.plan.rows import Outcome
from tests.lab.guest.known import neighbour
from tests.lab.guest.values import BLOCK, cat, put

LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "ndelay": 100_000}
HIGH, LOW = 150, 20
ROUNDS = 500
AT_ONCE = "0"
"""Milliseconds between two steps of a ramp; by default two minutes, which let one of many through."""


@pytest.mark.deadline(300)
def test_a_depth_is_lowered_all_the_way_under_io(scsi_debug: Callable[..., list[str]]) -> None:
    """On 6.12 one in ten ended above, "ignored", and stayed there; on 6.1 one in 400."""
    [disk] = scsi_debug(**LUN)
    put(disk, "device/queue_ramp_up_period", AT_ONCE)
    chain = Chain(disk, disk, None, None, str(BLOCK / disk), (Step("queue_depth", LOW, HIGH),))
    found: Counter[tuple[Outcome, str]] = Counter()
    reader = neighbour(disk)
    try:
        for _ in range(ROUNDS):
            put(disk, "device/queue_depth", str(HIGH))
            [result] = write(chain)
            found[result.outcome, cat(disk, "device/queue_depth")] += 1
    finally:
        reader.terminate()
        reader.wait()
    assert found == {(Outcome.WRITTEN, str(LOW)): ROUNDS}
