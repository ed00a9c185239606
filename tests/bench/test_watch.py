"""What the full screen of `watch` costs with thousands of busy disks."""

import json
import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.test_resident import diskstats
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, can_enter, run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import WATCH

LUNS, SECONDS = 4096, 60
CPU = 0.1


def test_watch_of_4096_disks_costs_tenth_of_cpu(installed: Path) -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    machine = build_many_luns(LUNS)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(machine, Path(folder))
        (Path(folder) / "proc/diskstats").write_text(diskstats(machine))
        program = [str(installed / "python"), "-m", "tests.bench.watching"]
        words = [*OWN_CONFIGURATION, "env", "-C", str(CHECKOUT), *program]
        words += [str(installed / "hbatune"), str(SECONDS)]
        measurement = json.loads(run(Path(folder), words, timeout=SECONDS + 120))
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
