"""Tests of hbatune/cli/command.py."""

import subprocess
import sys

import pytest

from hbatune.cli import main
from tests.unit.command_runs import See


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["diff", "--profile", "oltpp"], "oltp"),
        (["diff", "sdzz", "--profile", "oltp"], "sdzz"),
        (["diff"], "no profile is active"),
        (["explain", "sda", "nr_request", "--profile", "oltp"], "nr_requests"),
        (["profiles", "nope"], "nope"),
    ],
)
def test_bad_input_exits_2(
    words: list[str], message: str, see: See, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    caught = capsys.readouterr()
    assert message in caught.err
    assert caught.out == ""


@pytest.mark.parametrize("words", [["frobnicate"], [], ["diff", "--frobnicate"]])
def test_bad_usage_exits_2(words: list[str], see: See, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    caught = capsys.readouterr()
    assert caught.err.startswith("hbatune: ")
    assert caught.out == ""


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hbatune ")


@pytest.mark.parametrize(("command", "policy"), [("profiles", "BATCH"), ("history", "OTHER")])
def test_scanning_commands_lower_priority(command: str, policy: str) -> None:
    """A probe that waits for its turn would measure the waiting."""
    code = f"""
import os
from hbatune.cli import main
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
main(["{command}"])
raise SystemExit(os.sched_getscheduler(0) != os.SCHED_{policy})
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
