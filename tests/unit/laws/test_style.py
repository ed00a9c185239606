"""The code keeps the house's style: lint, format and strict types."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "tool",
    [("ruff", "check", "--no-cache"), ("ruff", "format", "--check", "--no-cache"), ("mypy",)],
    ids=" ".join,
)
def test_tool_reports_no_complaint(tool: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *tool], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
