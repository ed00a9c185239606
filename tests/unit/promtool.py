"""Prometheus' own judge of metrics and rules, where ``.ci/promtool`` has fetched it."""

import subprocess
from pathlib import Path

import pytest

from hbatune.shipped import find_shipped

_PROMTOOL = Path(__file__).resolve().parents[2] / "build/tools/promtool"

needs_promtool = pytest.mark.skipif(
    not _PROMTOOL.exists(), reason="no promtool: .ci/promtool fetches it"
)


def promtool(*words: str, given: bytes = b"") -> str:
    """Run promtool on shipped files, assert that it succeeds, and return its output."""
    done = subprocess.run(
        [_PROMTOOL, *words],
        input=given,
        capture_output=True,
        check=False,
        cwd=find_shipped("metrics"),
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()
