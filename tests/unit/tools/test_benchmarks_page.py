"""The benchmarks that the documentation quotes are those that were measured."""

from xml.etree.ElementTree import fromstring

import msgspec
import pytest

from tests.bench.guest.comparison import Comparison, Figure, figure, ratio
from tests.bench.guest.phases import PHASES, split
from tools.benchmarks_page import (
    CURVES,
    DEPTHS,
    FOREIGN,
    GROWTH,
    IDLE,
    NAMES,
    PAGE,
    PROMISED,
    RESIDENT,
    RESULTS,
    WATCH,
    Curve,
    Point,
    page,
    picture,
    results,
)
from tools.verdicts_page import BENCH_NAMES

FOUND = results()
DOCS = PAGE.parent


def test_page_names_missing_measurements() -> None:
    assert f"Not measured yet: {', '.join(PROMISED)}." in page([])
    files = (CURVES, DEPTHS, FOREIGN, GROWTH, IDLE, NAMES, RESIDENT, WATCH)
    figure_files = {path.stem for path in files}
    for name in (*BENCH_NAMES, "progress_*"):
        figure_files |= {path.stem for path in RESULTS.glob(f"{name}-*")}
    assert not {path.stem for path in RESULTS.glob("*.json")} - {*PROMISED, *figure_files}


def test_stated_costs_match_measurements() -> None:
    idle, resident, growth = (
        msgspec.json.decode(file.read_bytes()) for file in (IDLE, RESIDENT, GROWTH)
    )
    size = f"{idle['rss_kib'] / 1024:.0f} MiB"
    share = f"{idle['cpu_share']:.2%}".replace("%", " %")
    few, first, last = resident["luns"]["64"], growth["tenths"][0], growth["tenths"][-1]
    page_text = " ".join((DOCS / "daemon.md").read_text().split())
    assert f"{share} of a CPU, {size} resident, {idle['wakeups']} wake-ups" in page_text
    assert f"{few['pss_kib'] / 1024:.0f} MiB of private memory" in page_text
    assert f"| {resident['kib_per_lun']:.1f} KiB of the daemon |" in page_text
    assert f"| {last['daemon'] - first['daemon']} KiB more than after the first" in page_text
    brief = " ".join((DOCS / "what-it-may-do-to-my-machine.md").read_text().split())
    assert f"uses {share} of a CPU and {size} of memory" in brief


def test_stated_cost_of_watch_matches_measurement() -> None:
    share = msgspec.json.decode(WATCH.read_bytes())["cpu_share"]
    page_text = " ".join((DOCS / "watch.md").read_text().split())
    assert f"4,096 busy disks, `watch` uses {share:.0%} of a CPU".replace("%", " %") in page_text


def test_stated_time_of_names_matches_measurement() -> None:
    seconds = msgspec.json.decode(NAMES.read_bytes())["seconds"]
    slowest = max(times["cpu"]["median"] for times in seconds.values())
    page_text = " ".join((DOCS / "configuration.md").read_text().split())
    assert f"finds the disks of a name in {slowest * 1000:.0f} ms of CPU time" in page_text


def test_stated_announced_times_match_measurement() -> None:
    files = RESULTS.glob("progress_*.json")
    ratios = [msgspec.json.decode(file.read_bytes())["median_ratio"] for file in files]
    page_text = " ".join((DOCS / "probing.md").read_text().split())
    assert f"are {min(ratios):.2f} to {max(ratios):.2f} times the announced ones" in page_text


@pytest.mark.parametrize("comparison", FOUND, ids=lambda comparison: comparison.name)
def test_results_follow_from_samples(comparison: Comparison) -> None:
    for timing in (comparison.subject, comparison.reference):
        assert timing.seconds == figure(timing.samples)
    assert comparison.ratio == ratio(comparison.subject.samples, comparison.reference.samples)


def test_broken_bound_is_marked() -> None:
    comparison = FOUND[0]
    broken = msgspec.structs.replace(comparison, bound=comparison.ratio.median / 2)
    assert "| yes |" in page([msgspec.structs.replace(comparison, bound=comparison.ratio.median)])
    assert "| **no** |" in page([broken])


def test_apply_phases_sum_to_total() -> None:
    inside = {name: 0.25 for name in PHASES if name != "interpreter"}
    phases = split([(2.0, inside), (1.85, inside), (5.0, inside)])
    assert phases == {"interpreter": 0.25, **inside}, "what the stop-watch does not see is its own"
    page_text = page([msgspec.structs.replace(FOUND[0], title="an apply", split=phases)])
    assert "| phase | contents | an apply |" in page_text
    assert "| writing | all LUNs, each value read back | 0.250 |" in page_text
    assert "Where the time" not in page(FOUND[:1])


def test_curves_become_table_and_svg() -> None:
    few = Figure(0.15, 0.15, 0.16)
    points = (
        Point(4, few, Figure(0.06, 0.05, 0.07), Figure(2.2, 2.1, 2.3)),
        Point(65536, Figure(20.0, 19.0, 21.0), None, None),
    )
    curve = Curve("hbatune diff", "2026-11-22", "6.12", 2, "3.11.2", 17.5, points)
    page_text = page([], curve)
    assert "| 4 | 0.15 (0.15 to 0.16) s | 0.06 (0.05 to 0.07) s | 2.2 (2.1 to 2.3) |" in page_text
    assert "| 65,536 | 20 (19 to 21) s |  |  |" in page_text
    assert "load average of the machine 17.5" in " ".join(page_text.split())
    drawn = fromstring(picture(curve))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"hbatune diff --json", "a bare pyudev loop"} <= {
        element.text for element in drawn.iter()
    }
