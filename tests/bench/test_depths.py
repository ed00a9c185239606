"""What it costs the daemon to look at the depths of 224 disks whose driver puts them back."""

import json
import os
import platform
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median, quantiles

import pytest

from hbatune.agent.monitor import POLL_INTERVAL_S
from hbatune.facts import queue_depths
from hbatune.facts.queue_depths import DepthFiles
from tools.benchmarks_page import DEPTHS as RESULT

DISKS = 224
LOOKS = 500
PATTERNS = ("module/*/parameters/*", "class/net/*/statistics/*", "block/*/queue/*")
SHARE = 0.001
"""Of one CPU, at most."""


def numbers() -> list[Path]:
    """Return files of this machine's sysfs that hold a number, as a depth's does."""

    def is_number(path: Path) -> bool:
        try:
            return path.is_file() and path.read_text().strip().isdigit()
        except OSError:
            return False

    files = (path for pattern in PATTERNS for path in sorted(Path("/sys").glob(pattern)))
    return list(islice(filter(is_number, files), DISKS))


def test_depth_scan_costs_under_thousandth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = numbers()
    if len(files) < DISKS:
        pytest.skip(f"sysfs has {len(files)} files with a number here, and {DISKS} are read")
    for number, file in enumerate(files):
        device = tmp_path / f"disk{number}" / "device"
        device.mkdir(parents=True)
        (device / "queue_depth").symlink_to(file)
    monkeypatch.setattr(queue_depths, "_BLOCK", str(tmp_path))
    reader, disks = DepthFiles(), [f"disk{number}" for number in range(DISKS)]
    assert len(reader.read(disks)) == DISKS  # opens them
    samples = []
    for _ in range(LOOKS):
        began = time.process_time_ns()
        reader.read(disks)
        samples.append((time.process_time_ns() - began) / 1e9)
    low, _, high = quantiles(samples, n=4)
    share = median(samples) / POLL_INTERVAL_S
    result = {
        "what": f"reading {DISKS} depths, as the daemon does every {POLL_INTERVAL_S:g} "
        "s, from as many files "
        "of this machine's sysfs: seconds of CPU a look, and the share of one CPU",
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        "looks": LOOKS,
        "median_seconds": round(median(samples), 6),
        "quartiles_seconds": [round(low, 6), round(high, 6)],
        "cpu_share": round(share, 6),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    assert share < SHARE
