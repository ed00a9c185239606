"""What the daemon costs while nothing happens: CPU, memory, wake-ups."""

import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, can_enter, run
from tests.hosts.tree import build
from tools.benchmarks_page import IDLE

LUNS, ADAPTERS = 64, 4
SECONDS = 620
"""Two audits and a minute of the watch beyond them."""
CPU, RSS_KIB = 0.001, 20 * 1024


def test_idle_daemon_costs_little(installed: Path) -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(build_many_luns(LUNS, ADAPTERS), Path(folder))
        program = str(Path(__file__).with_name("idle.py"))
        words = [
            *OWN_CONFIGURATION,
            sys.executable,
            program,
            str(installed / "hbatune"),
            str(SECONDS),
        ]
        measurement = json.loads(run(Path(folder), words, timeout=SECONDS + 120))
    result = {
        "what": f"the daemon with {LUNS} LUNs of {ADAPTERS} adapters and nothing to do",
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        **measurement,
    }
    IDLE.write_text(json.dumps(result, indent=1) + "\n")
    assert measurement["passes"] >= 3
    assert measurement["cpu_share"] < CPU
    assert measurement["rss_kib"] <= RSS_KIB
