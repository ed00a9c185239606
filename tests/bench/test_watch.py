"""What the full screen of `watch` costs with thousands of busy disks."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.many_luns import run_with_luns
from tests.hosts.namespace import can_enter
from tools.benchmarks_page import WATCH

LUNS, SECONDS = 4096, 60
CPU = 0.1


def test_watch_of_4096_disks_costs_tenth_of_cpu(installed: Path) -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    limit = SECONDS + 120
    measurement = run_with_luns(LUNS, installed, "watching", str(SECONDS), timeout=limit)
    result = {
        "what": f"the full screen of `watch` with {LUNS} busy LUNs of 16 adapters",
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        **measurement,
    }
    WATCH.write_text(json.dumps(result, indent=1) + "\n")
    assert measurement["code"] == 0
    assert measurement["pictures"] > SECONDS / 3
    assert measurement["cpu_share"] < CPU
