"""What the daemon has in memory when it is idle, by the number of LUNs."""

import json
import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, can_enter, run
from tests.hosts.tree import Described, build
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import RESIDENT

FEW, MOST = 64, 4096
RSS_KIB, PER_LUN_KIB, SERVICE_KIB = 20 * 1024, 1.5, 32 * 1024


def diskstats(machine: Described) -> str:
    """Return /proc/diskstats of a machine whose disks have been at work and now have nothing to do.

    Without it the watch would have nothing to remember.
    """
    luns = [lun for function in machine.functions for host in function.hosts for lun in host.luns]
    lines = []
    for number, lun in enumerate(luns):
        assert lun.disk is not None
        counts = [10**7, 20, 10**9, 3 * 10**6, 5 * 10**6, 3, 4 * 10**8, 10**6, 0, 10**6, 10**6]
        counted = (str(count and count + number) for count in counts)
        device = f"{8 + number // 16} {number % 16 * 16}"
        lines.append(f"{device} {lun.disk.name} {' '.join(counted)} 0 0 0 0 0 0\n")
    return "".join(lines)


def resident(luns: int, installed: Path) -> Any:
    machine = build_many_luns(luns)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(machine, Path(folder))
        (Path(folder) / "proc/diskstats").write_text(diskstats(machine))
        program = [str(installed / "python"), "-m", "tests.bench.resident"]
        words = [*OWN_CONFIGURATION, "env", "-C", str(CHECKOUT), *program]
        return json.loads(run(Path(folder), [*words, str(installed / "hbatune")], timeout=600))


def test_daemon_memory_stays_small(installed: Path) -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    results = {luns: resident(luns, installed) for luns in (FEW, MOST)}
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
