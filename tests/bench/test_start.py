"""`hbatune --version` beside an interpreter that does nothing."""

from pathlib import Path

from tests.bench.guest.comparison import compared, in_turns, save, seconds
from tools.benchmarks_page import RESULTS

ROUNDS = 50


def test_version_costs_little_more_than_an_interpreter(installed: Path) -> None:
    hbatune = (str(installed / "hbatune"), "--version")
    python = (str(installed / "python"), "-c", "pass")
    subject, reference = in_turns(ROUNDS, lambda: seconds(hbatune), lambda: seconds(python))
    comparison = compared(
        "start",
        "hbatune --version against an interpreter that does nothing",
        2.5,
        ("hbatune --version", subject),
        ("python3 -c pass", reference),
        {"installed": "the wheel in a virtual environment, both with its interpreter"},
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison
