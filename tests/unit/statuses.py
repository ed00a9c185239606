"""Statuses of a daemon that works, for tests of its readers."""

import time
from typing import Any

from msgspec.structs import replace

from hbatune.agent.orders import PassReason
from hbatune.agent.status import LastPass, Status, Times
from hbatune.processes import read_clock_id
from hbatune.workers import find_this_process


def current_times(**overrides: Any) -> Times:
    """Return the times of a daemon that has just saved its status, and saves it for an hour."""
    now = time.monotonic()
    made = Times(read_clock_id(), now - 60, now, now + 3600, now + 3600, pass_ended=now - 30)
    return replace(made, **overrides)


def good_status() -> Status:
    """Return the status of a daemon that is this process and has nothing to report."""
    last = LastPass(2000.0, PassReason.AUDIT, 3)
    made = Status(
        find_this_process(), 1000.0, "oltp", 12, last=last, passes=4, written=9, ready=True
    )
    return replace(made, times=current_times())
