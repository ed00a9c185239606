"""Replays of four kinds of loads, compared with five originals of each."""

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

from tests.lab.guest.traced_loads import (
    LOADS,
    TraceFigures,
    capture_load,
    compare_depths,
    make_twins,
    measure_trace,
    replay_trace,
    select_replay,
)
from tests.soak.guest.results import save_results

KERNELS = ("6.12",)
TOPOLOGY = "counted"
ORIGINALS = 5
SECONDS = 10
TOLERANCE = 0.05


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """Switch off the second CPU. The two share one clock, so both would take twice the time."""
    online = Path("/sys/devices/system/cpu/cpu1/online")
    online.write_text("0")
    yield
    online.write_text("1")


@pytest.mark.deadline(3600)
def test_replays_are_as_originals(
    one_cpu: None, scsi_debug: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Each figure differs by at most 5 %, or by the spread of the originals if that is larger."""
    disk, twin = make_twins(scsi_debug)
    results, wrong = {}, []
    for name, load in LOADS.items():
        traces = []
        for number in range(ORIGINALS):
            traces.append(capture_load(disk, load, tmp_path / f"{number}.trace", SECONDS))
        originals = list(map(measure_trace, traces))
        words = ["--destructive"] if "--rw=randrw" in load else []
        _, replayed = replay_trace(tmp_path / "0.trace", twin, tmp_path / "copy.trace", *words)
        replay = select_replay(replayed, len(traces[0].arrivals_us))
        figures = compare_figures(originals, measure_trace(replay))
        results[name] = figures
        for figure, (difference, spread) in figures.items():
            if difference > max(TOLERANCE, spread):
                wrong.append(f"{name}: {figure} differs by {difference:.3f}, spread {spread:.3f}")
    save_results(
        "differences of replays, and the spread of the originals",
        name="replays",
        originals=ORIGINALS,
        seconds=SECONDS,
        differences=results,
    )
    assert wrong == []


def compare_figures(
    originals: list[TraceFigures], replayed: TraceFigures
) -> dict[str, tuple[float, float]]:
    """Return by figure the difference from the replayed original, and the originals' spread."""
    compared = {}
    for name in ("iops", "p50_ms", "p99_ms"):
        values = [getattr(original, name) for original in originals]
        difference = abs(getattr(replayed, name) - values[0]) / values[0]
        spread = (max(values) - min(values)) / median(values)
        compared[name] = (round(difference, 4), round(spread, 4))
    spread = max(compare_depths(a.depths, b.depths) for a, b in combinations(originals, 2))
    difference = compare_depths(originals[0].depths, replayed.depths)
    compared["depths"] = (round(difference, 4), round(spread, 4))
    return compared
