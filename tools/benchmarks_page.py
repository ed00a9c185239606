"""Generate docs/benchmarks.md. All numbers on the page are from the results files."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hbatune.report.charts import Curves, Dot, Series, make_figure
from hbatune.report.svg import make_log_axis
from hbatune.shipped import find_shipped
from tests.bench.guest.comparison import Comparison, Figure, load
from tests.bench.guest.phases import PHASES
from tests.lab.image import DEBIAN_12_KERNELS

_CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = _CHECKOUT / "tests" / "bench" / "results"
IDLE = RESULTS / "idle.json"
"""Measured against separate bounds, not as a pair of times. docs/daemon.md quotes it."""
CURVES = RESULTS / "curves.json"
"""CPU time over the number of LUNs."""
RESIDENT = RESULTS / "resident.json"
"""The daemon's memory, measured like ``IDLE``."""
GROWTH = RESULTS / "growth.json"
"""The daemon's growth after 10,000 events, measured like ``IDLE``."""
WATCH = RESULTS / "watch.json"
"""The cost of the full screen of `watch`, measured like ``IDLE``. docs/watch.md quotes it."""
DEPTHS = RESULTS / "depths.json"
"""The cost of checking the depths of many disks, measured like ``IDLE``."""
FOREIGN = RESULTS / "foreign.json"
"""The time to read the slowest foreign files, measured like ``IDLE``. docs/fleet.md quotes it."""
NAMES = RESULTS / "names.json"
"""The time to resolve a name, measured like ``IDLE``. docs/configuration.md quotes it."""
PAGE = _CHECKOUT / "docs" / "benchmarks.md"
PICTURE = _CHECKOUT / "docs" / "benchmarks.svg"


class Point(msgspec.Struct, frozen=True):
    """CPU seconds for ``luns`` LUNs: of `diff`, and of the bare loop if it was measured."""

    luns: int
    diff: Figure
    loop: Figure | None
    ratio: Figure | None


class Curve(msgspec.Struct, frozen=True):
    """The command and host of a measurement over LUNs. ``load`` is the load of other work."""

    what: str
    date: str
    kernel: str
    cpus: int
    python: str
    load: float
    points: tuple[Point, ...]


_HEAD = """\
# Benchmarks

This page is generated from the files in `tests/bench/results`. `make bench` measures all of this
again, and fails if a result exceeds its bound. Each row times two things alternately. The ratio
compares the two times of a pair; the table has its median and, in brackets, the quartiles. Times
are wall times of whole processes unless a row states otherwise.
"""
PROMISED = (
    *("start", "status", "status-daemon", "diff-4", "diff-4096", "event-4096", "apply-modelled"),
    *(f"{name}-{series}" for series in DEBIAN_12_KERNELS for name in ("apply", "writing")),
    *(
        f"{name}-{series}"
        for name in ("lock", "settle-24", "settle-240", "set-24")
        for series in (*DEBIAN_12_KERNELS, "7.3")
    ),
    "why-6.12",
    "why-bpftrace-6.12",
)
"""The names of all results, in the page's order."""

_COLUMNS = ("benchmark", "this", "takes", "and this", "takes", "ratio", "at most", "holds", "pairs")


def results() -> list[Comparison]:
    """Return all existing results."""
    paths = (RESULTS / f"{name}.json" for name in PROMISED)
    return [load(path) for path in paths if path.exists()]


def curves() -> Curve | None:
    """Return the measurement over the number of LUNs, or None."""
    return msgspec.json.decode(CURVES.read_bytes(), type=Curve) if CURVES.exists() else None


def page(comparisons: Iterable[Comparison], curve: Curve | None = None) -> str:
    """Return the page with these results and a list of the missing ones."""
    comparisons = list(comparisons)
    missing = [
        name for name in PROMISED if name not in {comparison.name for comparison in comparisons}
    ]
    lines = [
        *(_HEAD, _row(_COLUMNS), _row("---" for _ in _COLUMNS), *map(_comparison, comparisons), ""),
        *((f"Not measured yet: {', '.join(missing)}.", "") if missing else ()),
        *_split_lines(comparisons),
        *(_curve_lines(curve) if curve else ()),
        *("## Conditions of the measurements", ""),
        *("The results name the files that are counted here.", ""),
        *(line for comparison in comparisons for line in _list_conditions(comparison)),
    ]
    return "\n".join(lines) + "\n"


def picture(curve: Curve) -> str:
    """Return the curve as a standalone picture: CPU seconds over LUNs."""
    diff = Series("hbatune diff --json", tuple(Dot(p.luns, p.diff.median) for p in curve.points))
    loop = Series(
        "a bare pyudev loop",
        tuple(Dot(p.luns, p.loop.median) for p in curve.points if p.loop),
    )
    chart = Curves(
        "CPU seconds over LUNs",
        make_log_axis("LUNs", [point.luns for point in curve.points]),
        make_log_axis("CPU seconds", [dot.y for series in (diff, loop) for dot in series.dots]),
        (diff, loop),
    )
    # Use plain text, because markup would escape the inserted text.
    picture = str(make_figure(chart, "").picture)
    drawn = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    styles = (find_shipped("templates") / "report.css").read_text(encoding="utf-8")
    return drawn.replace("</title>", f"</title><style>{styles}</style>", 1) + "\n"


def _curve_lines(curve: Curve) -> Iterable[str]:
    yield from ("## From 4 LUNs to as many as there are", "")
    yield from (f"![CPU seconds over LUNs]({PICTURE.name})", "")
    yield f"CPU time of `{curve.what}` and of all its processes, compared with the bare loop."
    yield f"Kernel {curve.kernel}, {curve.cpus} CPUs, Python {curve.python}, {curve.date}, load"
    yield f"average of the machine {curve.load:g} as it began."
    yield from ("", _row(("LUNs", "diff", "bare loop", "ratio")), _row(["---"] * 4))
    for point in curve.points:
        loop = f"{_figure(point.loop)} s" if point.loop else ""
        ratio = _figure(point.ratio) if point.ratio else ""
        yield _row((f"{point.luns:,}", f"{_figure(point.diff)} s", loop, ratio))
    yield ""


def _split_lines(comparisons: Iterable[Comparison]) -> Iterable[str]:
    comparisons = [comparison for comparison in comparisons if comparison.split]
    if not comparisons:
        return
    yield from ("## Where the time of an apply goes", "")
    yield "Wall time in seconds, the median of one run for each pair. A timer measures each phase."
    yield "The interpreter's time is the time outside these phases."
    yield from (
        "",
        _row(("phase", "contents", *(comparison.title for comparison in comparisons))),
    )
    yield _row(["---"] * (2 + len(comparisons)))
    for phase, description in PHASES.items():
        yield _row(
            (phase, description, *(f"{comparison.split[phase]:.3f}" for comparison in comparisons))
        )
    yield ""


def _comparison(comparison: Comparison) -> str:
    subject, reference = comparison.subject, comparison.reference
    return _row(
        (
            comparison.title,
            f"`{subject.what}`" if subject.what.startswith("hbatune ") else subject.what,
            f"{_figure(subject.seconds)} s",
            reference.what,
            f"{_figure(reference.seconds)} s",
            _figure(comparison.ratio),
            f"{comparison.bound:g}",
            "yes" if comparison.met else "**no**",
            str(len(subject.samples)),
        )
    )


def _list_conditions(comparison: Comparison) -> Iterable[str]:
    yield f"- **{comparison.title}**"
    yield f"  - kernel {comparison.kernel}, {comparison.cpus} CPUs, Python {comparison.python}"
    yield f"  - {comparison.date}"
    for name, value in comparison.notes.items():
        yield f"  - {name}: {_format_note(value)}"


def _format_note(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_format_note(item)}" for name, item in value.items())
    if isinstance(value, list):
        return str(len(value))
    return str(value)


def _figure(figure: Figure) -> str:
    return f"{figure.median:.3g} ({figure.low:.3g} to {figure.high:.3g})"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
