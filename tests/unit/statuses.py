"""Statuses of a daemon that works, for tests of its readers."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.agent.orders import (
    Handled,
    PassReason,
    PassReport,
    Retry,
    SettingChange,
    Writer,
    WriterKind,
)
from hbatune.agent.service import ServiceManager
from hbatune.agent.status import LastPass, Status, Times
from hbatune.processes import read_clock_id
from hbatune.text.daemon_messages import JournalReporter
from hbatune.workers import find_this_process


def current_times(**overrides: Any) -> Times:
    """Return the times of a daemon that has just saved its status, and saves it for an hour."""
    monotonic_s = time.monotonic()
    times = Times(
        read_clock_id(),
        monotonic_s - 60,
        monotonic_s,
        monotonic_s + 3600,
        monotonic_s + 3600,
        pass_ended=monotonic_s - 30,
    )
    return replace(times, **overrides)


def good_status() -> Status:
    """Return the status of a daemon that is this process and has nothing to report."""
    last = LastPass(2000.0, PassReason.AUDIT, 3)
    status = Status(
        find_this_process(), 1000.0, "oltp", 12, last=last, passes=4, written=9, ready=True
    )
    return replace(status, times=current_times(), counts={"ok": 44})


LEFT = SettingChange("sda", "id-sda", "scheduler", "none", "mq-deadline", "sas-ssd", Handled.LEFT)


WAITING = replace(LEFT, handled=Handled.WAITING, retry=Retry(1000.0, 4, 5000.0))


RAMPING = SettingChange(
    "sda", "id-sda", "queue_depth", 60, 64, "depth", Handled.RAMPING, step_seconds=120.0
)


WRITER = Writer(
    WriterKind.PROCESS,
    time=0.0,
    attribute="nr_requests",
    pid=4711,
    uid=0,
    unit="tuned.service",
    cgroup="/system.slice/tuned.service",
    comm="tuned",
)


GOOD = good_status()


Capture = pytest.CaptureFixture[str]


class By(ServiceManager):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, Mapping[str, str]]] = []
        self.states: list[str] = []

    def notify(self, state: str) -> None:
        self.states.append(state)

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        self.entries.append((message, priority, fields))


def report_change(
    changed: SettingChange, reason: PassReason = PassReason.START
) -> tuple[str, int, Mapping[str, str]]:
    by = By()
    JournalReporter(by).passed(reason, PassReport("oltp", 1, (changed,)))
    [entry] = by.entries
    return entry
