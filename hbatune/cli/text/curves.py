"""What sweeps of depth say in words: their knee, their tails, and where the CPUs are the limit."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.cli.text.before_after import digits
from hbatune.cli.text.beside import knee_line
from hbatune.cli.text.output import Table, say
from hbatune.probe.knee import Knee, find_knee, sweep_points
from hbatune.probe.model import ProbeResult, Workload

LEAST = 3
"""Depths that have a knee between them."""
SATURATED = 0.9
"""Share of the CPUs' time beyond which they, and not the drive, are what is measured."""


class Curve(Struct, frozen=True):
    """Results of one target that differ in nothing but depth, in rising order, and their knee.

    ``queue_depth`` is the LUN's own where the runs have set it.
    """

    target: str
    queue_depth: int | None
    results: tuple[ProbeResult, ...]
    knee: Knee | None

    @property
    def name(self) -> str:
        """What to call it."""
        return self.target if self.queue_depth is None else f"{self.target} at {self.queue_depth}"


def curves(results: Iterable[ProbeResult]) -> list[Curve]:
    """Return the sweeps of depth among the results."""
    alike: dict[tuple[str, Workload], list[ProbeResult]] = {}
    for each in results:
        alike.setdefault((each.target, replace(each.workload, depth=1)), []).append(each)
    found = []
    for (target, workload), swept in alike.items():
        if len(swept) >= LEAST:
            swept.sort(key=lambda each: each.workload.depth)
            curve = Curve(
                target, workload.queue_depth, tuple(swept), find_knee(sweep_points(swept))
            )
            found.append(curve)
    return found


def show_curves(found: Sequence[Curve]) -> None:
    """Print the knees, the tails, and from which depth on the CPUs are the limit."""
    headings = ["TARGET", "DEPTH", "", "P50 µs", "P95 µs", "P99 µs", "P99.9 µs"]
    table = Table(headings, right=frozenset({1, 3, 4, 5, 6}))
    for curve in found:
        for where, result in _tails(curve):
            figures = result.figures
            tails = (figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us)
            depth = str(result.workload.issued)
            table.rows.append([curve.name, depth, where, *map(digits, tails)])
    if found:
        table.show()
    for curve in found:
        for line in _lines(curve):
            say(f"{curve.name}: {line}.")


def _tails(curve: Curve) -> Iterator[tuple[str, ProbeResult]]:
    """Yield the results whose tails tell most (D3-5)."""
    middle = curve.results[len(curve.results) // 2]
    at = None if curve.knee is None else curve.knee.depth
    knees = [each for each in curve.results if each.workload.issued == at]
    if middle in knees:
        yield "middle, and the knee", middle
        return
    yield "middle", middle
    for each in knees:
        yield "the knee", each


def _lines(curve: Curve) -> Iterator[str]:
    if curve.knee is not None:
        yield knee_line(curve.knee)
    yield from limits(curve.results)


def limits(results: Iterable[ProbeResult]) -> Iterator[str]:
    """Yield from which depth on not the drive but the CPUs are the limit, where they are."""
    for each in results:
        if each.figures.busy is not None and each.figures.busy >= SATURATED:
            share = f"{each.figures.busy:.0%}".replace("%", " %")
            yield (
                f"from depth {each.workload.issued} on the CPUs are the limit: those involved are "
                f"busy {share} of the time"
            )
            return
