"""Announced and real times of commands that measure, on a disk with a fixed time for each I/O.

Announcements of second comparisons count, too. While a bar runs, its steps predict its end. After
the first quarter and the last announcement, these predictions are compared with the real end.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hbatune.cli import command_context
from hbatune.operations.context import Phase
from hbatune.text.notes import show_note
from hbatune.text.terminal import show_progress
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.known import forget, profile
from tests.lab.guest.values import cat, put

KERNELS = ("6.12",)
ARTIFACTS = Path("/run/lab/artifacts/bench")  # fetched by the host
TIMES = 5
LOW_DEPTH = "2"
"""Every other search starts with it, so its result is better and is compared with it."""
TOLERANCE = 0.2
"""The maximum difference of real and announced times, as a fraction of the announced time."""
EVENTS = Path("/run/lab/progress")
"""A line of JSON for each announcement and each step of a bar, with its moment."""
COMMANDS = {
    "apply_verify": ("apply", "--verify"),
    "probe_depth_sweep": ("probe", "depth-sweep"),
    "probe_lab_matrix_short": ("probe", "lab-matrix-short"),
    "autotune": ("autotune", "--profile", "oltp"),
}


@dataclass(frozen=True)
class Run:
    """Times of a command, and the largest error of its bar as a fraction of the bar's time."""

    announced_seconds: float
    seconds: float
    steps: int
    bar_error: float


def record(**event: object) -> None:
    with EVENTS.open("a") as file:
        file.write(json.dumps({"at": time.monotonic(), **event}) + "\n")


@pytest.fixture(autouse=True)
def _record_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(message: Any) -> None:
        if hasattr(message, "seconds"):
            record(announced=message.seconds)
        show_note(message)

    @contextmanager
    def progress(title: Phase, total: int) -> Iterator[Callable[..., None]]:
        planned = total
        with show_progress(title, total) as advance:
            record(bar=title, total=total, done=False)

            def count(step: str, more: int = 0) -> None:
                nonlocal planned
                planned += more
                record(bar=title, total=planned, done=not more)
                advance(step, more)

            yield count

    monkeypatch.setattr(command_context, "show_note", note)
    monkeypatch.setattr(command_context, "show_progress", progress)


@pytest.fixture
def lun(full_lun: str) -> Iterator[str]:
    yield full_lun
    forget("depth")


def measure(words: tuple[str, ...]) -> Run:
    """Run a command; return its times and the error of its longest bar."""
    EVENTS.unlink(missing_ok=True)
    done = hbatune(*words)
    end = time.monotonic()
    assert done.code in (0, 1), done.err
    events = [json.loads(line) for line in EVENTS.read_text().splitlines()]
    announcements = [event for event in events if "announced" in event]
    bars = [event["bar"] for event in events if "bar" in event]
    longest = max(set(bars), key=bars.count)
    begin, *moments = [event for event in events if event.get("bar") == longest]
    steps = [moment for moment in moments if moment["done"]]
    assert len(steps) == moments[-1]["total"], "the bar ends at its total"
    bar_seconds = steps[-1]["at"] - begin["at"]
    bar_error = 0.0
    announced_at = announcements[-1]["at"]
    for number, step in enumerate(steps, 1):
        if number > len(steps) // 4 and step["at"] > announced_at:
            predicted = (step["at"] - begin["at"]) * step["total"] / number
            bar_error = max(bar_error, abs(predicted / bar_seconds - 1))
    return Run(
        announced_seconds=round(sum(event["announced"] for event in announcements), 1),
        seconds=round(end - announcements[0]["at"], 1),
        steps=len(steps),
        bar_error=round(bar_error, 3),
    )


@pytest.mark.deadline(7200)
@pytest.mark.parametrize("name", COMMANDS)
def test_announced_time_is_real(name: str, lun: str, series: str) -> None:
    words = COMMANDS[name]
    runs = []
    usual_depth = cat(lun, "device/queue_depth")
    for number in range(TIMES):
        if words[0] == "autotune":
            put(lun, "device/queue_depth", LOW_DEPTH if number % 2 else usual_depth)
        options = profile("depth", "read_ahead_kb", 512, 24) if words[0] == "apply" else ()
        configure("")  # comparisons of the default length
        runs.append(measure((*words, *options, lun)))
        hbatune("rollback")
    ratios = [round(run.seconds / run.announced_seconds, 3) for run in runs]
    results = {
        "what": f"hbatune {' '.join(words)}",
        "kernel": platform.release(),
        "date": datetime.now(UTC).date().isoformat(),
        "median_ratio": statistics.median(ratios),
        "ratios": ratios,
        "runs": [asdict(run) for run in runs],
    }
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    file = ARTIFACTS / f"progress_{name}-{series}.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    assert all(abs(ratio - 1) <= TOLERANCE for ratio in ratios), ratios
    assert all(run.bar_error <= TOLERANCE for run in runs), runs
