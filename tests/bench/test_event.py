"""One disk's event, by the number of LUNs on the machine: its CPU time, its report, its memory."""

import json
import os
import platform
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.bench.guest.comparison import compared, save
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, can_enter, run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import GROWTH, RESULTS

LUNS = (4, 64, 256, 1024, 4096)
ADAPTERS = 16
EVENTS = 100
BOUND, CPU = 1.5, 0.020
MANY = 10_000
GROWTH_KIB = 512
"""Pages that an allocator may take and give back; a leak of a byte an event would show as 10 KiB,
of an entry or an id as megabytes."""

ARENA_KIB = 1024
"""What Python's allocator takes at a time (Objects/obmalloc.c: ARENA_BITS): an audit among the
events needs one more or does not. A new process makes the audits after an hour."""


def in_namespace(program: str, luns: int, count: int) -> Any:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(build_many_luns(luns, min(luns, ADAPTERS)), Path(folder))
        words = [sys.executable, "-m", program, str(count)]
        command = [*OWN_CONFIGURATION, "env", "-C", str(CHECKOUT), *words]
        return json.loads(run(Path(folder), command, timeout=1800))


def test_event_cost_is_machine_independent() -> None:
    results = {luns: in_namespace("tests.bench.events", luns, EVENTS) for luns in LUNS}
    medians = {luns: statistics.median(result["seconds"]) for luns, result in results.items()}
    few, most = LUNS[0], LUNS[-1]
    comparison = compared(
        "event-4096",
        f"the CPU time of one disk's event among {most} LUNs against among {few}",
        BOUND,
        (f"one value is put right among {most} LUNs", results[most]["seconds"]),
        (f"the same among {few} LUNs", results[few]["seconds"]),
        {
            "CPU milliseconds by LUNs": {
                str(luns): round(1000 * median, 2) for luns, median in medians.items()
            },
            "report": f"{results[most]['report']} bytes among {most} LUNs",
        },
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison
    assert max(medians.values()) <= CPU


def test_ten_thousand_events_leave_nothing() -> None:
    event_result = in_namespace("tests.bench.events", 64, MANY)
    assert event_result["last"]["Rss"] <= event_result["first"]["Rss"] + GROWTH_KIB


def test_ten_thousand_disks_leave_nothing() -> None:
    """The daemon itself, with audits in between and the watch at work."""
    growth = in_namespace("tests.bench.growth", 64, MANY)
    result = {
        "what": f"the daemon's processes with 64 LUNs after each tenth of {MANY} new disks",
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        **growth,
    }
    GROWTH.write_text(json.dumps(result, indent=1) + "\n")
    first, last = growth["tenths"][0], growth["tenths"][-1]
    assert growth["written"] >= MANY
    assert last["descriptors"] <= first["descriptors"]
    assert last["daemon"] <= first["daemon"] + GROWTH_KIB
    assert len(last["others"]) == len(first["others"])
    for before, after in zip(first["others"], last["others"], strict=True):
        assert after <= before + ARENA_KIB + GROWTH_KIB
