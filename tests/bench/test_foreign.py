"""The time in which a stranger's file is read, for the files that take the most steps."""

import os
import platform
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hbatune import loader
from tests.bench.guest.comparison import Figure, figure
from tests.unit.test_loader import WORST
from tools.benchmarks_page import FOREIGN

ROUNDS = 9
MAX_SECONDS = 2.0


def measure_reading(path: Path) -> Figure:
    """Return the seconds of CPU time until a file is read or refused."""
    samples = []
    for _ in range(ROUNDS):
        began = time.process_time()
        with suppress(loader.UnusableFileError):
            loader.load(path, Any, loader.FOREIGN_BOUNDS)
        samples.append(round(time.process_time() - began, 3))
    return figure(samples)


def test_worst_files_are_read_in_time(tmp_path: Path) -> None:
    load, seconds = round(os.getloadavg()[0], 1), {}
    for kind, content in WORST.items():
        path = tmp_path / kind
        path.write_bytes(content)
        seconds[kind] = measure_reading(path)
    results = {
        "what": "CPU seconds until a stranger's file is read or refused, with quartiles",
        "date": datetime.now(UTC).date().isoformat(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": load,
        "rounds": ROUNDS,
        "seconds": seconds,
    }
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    FOREIGN.write_bytes(text + b"\n")
    for kind, took in seconds.items():
        assert took.high <= MAX_SECONDS, kind
