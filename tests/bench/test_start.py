"""Commands that should be felt nowhere, beside an interpreter that does nothing."""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.bench.guest.comparison import compared, in_turns, save, seconds
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import can_enter, run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import RESULTS

ROUNDS = 50
Pair = tuple[list[float], list[float]]
INSTALLED = "the wheel in a virtual environment, both with its interpreter"


def test_version_start_is_cheap(installed: Path) -> None:
    hbatune = (str(installed / "hbatune"), "--version")
    python = (str(installed / "python"), "-c", "pass")
    subject, reference = in_turns(ROUNDS, lambda: seconds(hbatune), lambda: seconds(python))
    comparison = compared(
        "start",
        "hbatune --version against an interpreter that does nothing",
        2.5,
        ("hbatune --version", subject),
        ("python3 -c pass", reference),
        {"installed": INSTALLED},
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison


@pytest.fixture
def in_namespace(tmp_path: Path) -> Callable[..., Pair]:
    """Return what times two commands in turns on a machine with four disks."""
    if not can_enter():
        pytest.skip("needs root and mount namespaces")

    def timed(
        subject: tuple[list[str], int],
        reference: list[str],
        before: Sequence[str] = (),
        code: int = 0,
    ) -> Pair:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            build(build_many_luns(4, 1), Path(folder))
            commands = json.dumps({"subject": subject, "reference": (reference, code)})
            program = [sys.executable, "-m", "tests.bench.alternate", str(ROUNDS), commands]
            words = ["env", "-C", str(CHECKOUT), *before, *program]
            first, second = json.loads(run(Path(folder), words, timeout=300))
            return first, second

    return timed


NOT_RUNNING = 4
DRIFT = 1


def test_status_without_daemon_is_cheap(installed: Path, in_namespace: Callable[..., Pair]) -> None:
    status = [str(installed / "hbatune"), "status"]
    diff = [str(installed / "hbatune"), "diff", "--profile", "oltp"]
    subject, reference = in_namespace((status, NOT_RUNNING), diff, code=DRIFT)
    comparison = compared(
        "status",
        "hbatune status without a daemon, which also runs the checks, against hbatune diff",
        1.2,
        ("hbatune status", subject),
        ("hbatune diff", reference),
        {"installed": INSTALLED},
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison


SERVE = """
import subprocess, sys
from hbatune.act.paths import Paths
from hbatune.agent import status
from tests.unit.statuses import good_status
Paths.status.parent.mkdir(exist_ok=True)
status.save(Paths.status, good_status())
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
"""Runs a command next to the status file of a healthy daemon, whose process is this one."""


def test_status_with_daemon_is_cheap(installed: Path, in_namespace: Callable[..., Pair]) -> None:
    status = [str(installed / "hbatune"), "status"]
    subject, reference = in_namespace(
        (status, 0),
        [str(installed / "hbatune"), "diff", "--profile", "oltp"],
        before=[sys.executable, "-c", SERVE],
        code=DRIFT,
    )
    comparison = compared(
        "status-daemon",
        "hbatune status with a healthy daemon against hbatune diff",
        1.2,
        ("hbatune status", subject),
        ("hbatune diff", reference),
        {"installed": INSTALLED},
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison


MOST_SECONDS = 0.06


def test_four_disk_diff_is_instant(installed: Path, in_namespace: Callable[..., Pair]) -> None:
    diff = ["diff", "--profile", "oltp"]
    subject, reference = in_namespace(
        ([str(installed / "hbatune"), *diff], DRIFT), [str(installed / "python"), "-c", "pass"]
    )
    comparison = compared(
        "diff-4",
        "hbatune diff of four disks against an interpreter that does nothing",
        round(MOST_SECONDS / statistics.median(reference), 2),
        (" ".join(("hbatune", *diff)), subject),
        ("python3 -c pass", reference),
        {"installed": INSTALLED, "at most": f"{MOST_SECONDS * 1000:g} ms"},
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison
