"""Find out whether commands hang at a queue before a write that would wait for them.

A write to a queue waits, uninterruptibly, until all commands in flight have ended (block/blk-mq.c:
blk_mq_freeze_queue_wait). If the kernel locks the adapter for it, no disk of the adapter can be
added, removed or set until then (block/blk-sysfs.c: queue_requests_store).
"""

import time

from hbatune.facts.commands import CommandCounters
from hbatune.settings.setting import Limit, LimitReason

OBSERVATION_S = 1.0
"""Seconds without a completed command after which the outstanding ones count as hanging."""
_FIRST_PAUSE_S = 0.001
_MAX_PAUSE_S = 0.05


def find_hanging_commands(
    counters: CommandCounters, seconds: float = OBSERVATION_S
) -> LimitReason | None:
    """Return why a write to the queue would hang, or None.

    Returns immediately if nothing is outstanding, and otherwise within the ``seconds``. A command
    that completes until then is slow and does not hang.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE_S
    first = load = counters.read()
    while load.state or (load.outstanding and load.completed == first.completed):
        if time.monotonic() - began >= seconds:
            if load.state:
                return LimitReason(Limit.NOT_RUNNING, (load.state,))
            age = max(counters.read_age() or 0, int(seconds))
            return LimitReason(Limit.COMMANDS_HANG, (load.outstanding, age))
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_S)
        load = counters.read()
    return None
