"""Tests of hbatune/agent/brief.py."""

import json
import os

import msgspec
import pytest
from msgspec.structs import replace

from hbatune.act import paths
from hbatune.agent import status
from hbatune.agent.brief import read_brief
from hbatune.agent.status import DaemonHealth, DaemonState, Status
from hbatune.cli import main
from hbatune.text.status_lines import show_status
from hbatune.workers import Process, find_this_process
from tests.unit.statuses import GOOD, RAMPING, Capture, current_times

pytestmark = pytest.mark.usefixtures("state")


@pytest.mark.parametrize("saved_status", [GOOD, replace(GOOD, last=None), replace(GOOD, passes=1)])
def test_brief_matches_full_status(saved_status: Status, capsys: Capture) -> None:
    status.save(paths.STATUS, saved_status)
    assert main(["status"]) == 0
    output = capsys.readouterr().out
    assert read_brief(paths.STATUS) is not None
    show_status(saved_status, DaemonHealth(DaemonState.OK), ())
    assert output == capsys.readouterr().out


@pytest.mark.parametrize(
    "saved_status",
    [
        replace(GOOD, open=(RAMPING,)),
        replace(GOOD, error="the disk is full"),
        replace(GOOD, mistake="no such profile"),
        replace(GOOD, profile=None),
        replace(GOOD, profile="\x1b[31m"),
        replace(GOOD, rolled_back=True),
        replace(GOOD, unreadable=2),
        replace(GOOD, ready=False),
        replace(GOOD, since=1e300),
        replace(GOOD, passes=True),
        replace(GOOD, schema="hbatune.status/2"),
        replace(GOOD, process=Process(2**22, 1)),
        replace(GOOD, process=replace(find_this_process(), start_time=1)),
        replace(GOOD, times=None),
        replace(GOOD, times=current_times(clock="another")),
        replace(GOOD, times=current_times(saved=1e15)),
        replace(GOOD, abandoned=1),
        replace(GOOD, doubts=("D0-2 does not cover it",)),
    ],
)
def test_eventful_status_skips_brief(saved_status: Status) -> None:
    status.save(paths.STATUS, saved_status)
    assert read_brief(paths.STATUS) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "[" * 60_000, "\xff", "1" * 99_999])
def test_damaged_status_skips_brief(text: str) -> None:
    paths.STATUS.write_text(text)
    assert read_brief(paths.STATUS) is None


def test_brief_status_skips_pipe() -> None:
    os.mkfifo(paths.STATUS)
    assert read_brief(paths.STATUS) is None


def test_unknown_field_skips_brief() -> None:
    """It may be something to tell."""
    fields = {**json.loads(msgspec.json.encode(GOOD)), "new": None}
    paths.STATUS.write_text(json.dumps(fields))
    assert read_brief(paths.STATUS) is None
