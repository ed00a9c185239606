"""What the daemon has in memory when it is idle, by the number of LUNs."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.many_luns import run_with_luns
from tests.hosts.namespace import can_enter
from tools.benchmarks_page import RESIDENT

FEW, MOST = 64, 4096
RSS_KIB, PER_LUN_KIB, SERVICE_KIB = 20 * 1024, 1.5, 32 * 1024


def test_daemon_memory_stays_small(installed: Path) -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    results = {
        luns: run_with_luns(luns, installed, "resident", timeout=600) for luns in (FEW, MOST)
    }
    grown = (results[MOST]["rss_kib"] - results[FEW]["rss_kib"]) / (MOST - FEW)
    result = {
        "what": "the idle daemon's memory, and the whole service's share, by LUNs",
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        "kib_per_lun": round(grown, 2),
        "luns": {str(luns): measured_values for luns, measured_values in results.items()},
    }
    RESIDENT.write_text(json.dumps(result, indent=1) + "\n")
    assert results[FEW]["rss_kib"] <= RSS_KIB
    assert grown <= PER_LUN_KIB
    assert results[FEW]["pss_kib"] < SERVICE_KIB
