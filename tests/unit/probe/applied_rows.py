"""Rows that an apply has written."""

from hbatune.plan.rows import Outcome as WriteOutcome
from hbatune.plan.rows import Row, State


def row(setting: str, target: str = "sda", adapter: str = "0000:01:00.0") -> Row:
    fixed = (setting, 1, 2, 2, State.DRIFT, None, "because", "D0-1", "rule")
    return Row(target, f"id-{target}", adapter, *fixed, outcome=WriteOutcome.WRITTEN)
