"""docs/benchmarks.md, out of the results files: every number on the page stands in one of them."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hbatune.report.charts import Curves, Dot, Series, draw_curves
from hbatune.report.svg import logarithmic
from hbatune.shipped import shipped
from tests.bench.guest.comparison import Comparison, Figure, load
from tests.bench.guest.phases import PHASES
from tests.lab.image import KERNELS

_CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = _CHECKOUT / "tests" / "bench" / "results"
IDLE = RESULTS / "idle.json"
"""Measured against bounds of its own and no pair of times: docs/daemon.md quotes it."""
CURVES = RESULTS / "curves.json"
"""CPU time over the number of LUNs."""
RESIDENT = RESULTS / "resident.json"
"""Like it: what the daemon has in memory."""
GROWTH = RESULTS / "growth.json"
"""Like it: what it has more of after 10,000 events."""
DEPTHS = RESULTS / "depths.json"
"""Like it: what a look at the depths of many disks takes."""
PAGE = _CHECKOUT / "docs" / "benchmarks.md"
PICTURE = _CHECKOUT / "docs" / "benchmarks.svg"


class Point(msgspec.Struct, frozen=True):
    """CPU seconds with so many LUNs: of `diff`, and of the bare loop where that was measured."""

    luns: int
    diff: Figure
    loop: Figure | None
    ratio: Figure | None


class Curve(msgspec.Struct, frozen=True):
    """What was run, and where, over the number of LUNs; ``load`` is that of other work."""

    what: str
    date: str
    kernel: str
    cpus: int
    python: str
    load: float
    points: tuple[Point, ...]


_HEAD = """\
# Benchmarks

`make bench` measures all of this again, rewrites the files in `tests/bench/results` and this page
from them, and fails where a bound does not hold. Each row times two things in turns; the ratio is
of the two times of a pair, given as its median and, in brackets, the quartiles between which the
middle half of the pairs lies. Times are wall times of whole processes unless a row says otherwise.
"""
PROMISED = (
    *("start", "status", "status-daemon", "diff-4", "diff-4096", "event-4096", "apply-modelled"),
    *(f"{name}-{series}" for series in KERNELS for name in ("apply", "writing")),
)
"""The names of all results, in the page's order."""

_COLUMNS = ("benchmark", "this", "takes", "and this", "takes", "ratio", "at most", "holds", "pairs")


def results() -> list[Comparison]:
    """Return all results that there are."""
    paths = (RESULTS / f"{name}.json" for name in PROMISED)
    return [load(path) for path in paths if path.exists()]


def curves() -> Curve | None:
    """Return what was measured over the number of LUNs, None if nothing was."""
    return msgspec.json.decode(CURVES.read_bytes(), type=Curve) if CURVES.exists() else None


def page(found: Iterable[Comparison], curve: Curve | None = None) -> str:
    """Return the page that tells these results, and which of those promised are not there."""
    found = list(found)
    missing = [name for name in PROMISED if name not in {each.name for each in found}]
    lines = [
        *(_HEAD, _row(_COLUMNS), _row("---" for _ in _COLUMNS), *map(_comparison, found), ""),
        *((f"Not measured yet: {', '.join(missing)}.", "") if missing else ()),
        *_split_lines(found),
        *(_curve_lines(curve) if curve else ()),
        *("## What the figures hang on", "", *map(_notes, found)),
    ]
    return "\n".join(lines) + "\n"


def picture(curve: Curve) -> str:
    """Return the curve as a picture that stands alone: CPU seconds over LUNs."""
    own = Series("hbatune diff --json", tuple(Dot(p.luns, p.diff.median) for p in curve.points))
    loop = Series(
        "a bare pyudev loop",
        tuple(Dot(p.luns, p.loop.median) for p in curve.points if p.loop),
    )
    chart = Curves(
        "CPU seconds over LUNs",
        logarithmic("LUNs", [point.luns for point in curve.points]),
        logarithmic("CPU seconds", [dot.y for each in (own, loop) for dot in each.dots]),
        (own, loop),
    )
    # No longer markup, which would escape what it is given.
    drawn = str(draw_curves(chart)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    styles = (shipped("templates") / "report.css").read_text(encoding="utf-8")
    return drawn.replace("</title>", f"</title><style>{styles}</style>", 1) + "\n"


def _curve_lines(curve: Curve) -> Iterable[str]:
    yield from ("## From 4 LUNs to as many as there are", "")
    yield from (f"![CPU seconds over LUNs]({PICTURE.name})", "")
    yield f"CPU time of `{curve.what}` and of all its processes, beside the bare loop's."
    yield f"Kernel {curve.kernel}, {curve.cpus} CPUs, Python {curve.python}, {curve.date}, load"
    yield f"average of the machine {curve.load:g} as it began."
    yield from ("", _row(("LUNs", "diff", "bare loop", "ratio")), _row(["---"] * 4))
    for each in curve.points:
        loop = f"{_figure(each.loop)} s" if each.loop else ""
        share = _figure(each.ratio) if each.ratio else ""
        yield _row((f"{each.luns:,}", f"{_figure(each.diff)} s", loop, share))
    yield ""


def _split_lines(found: Iterable[Comparison]) -> Iterable[str]:
    found = [each for each in found if each.split]
    if not found:
        return
    yield from ("## Where the time of an apply goes", "")
    yield "Seconds of wall time, the median of as many runs as there were pairs, with a stop-watch"
    yield "around each phase. Of the interpreter's it is what the stop-watch did not see."
    yield from ("", _row(("phase", "what is in it", *(each.title for each in found))))
    yield _row(["---"] * (2 + len(found)))
    for phase, what in PHASES.items():
        yield _row((phase, what, *(f"{each.split[phase]:.3f}" for each in found)))
    yield ""


def _comparison(each: Comparison) -> str:
    subject, reference = each.subject, each.reference
    return _row(
        (
            each.title,
            f"`{subject.what}`" if subject.what.startswith("hbatune ") else subject.what,
            f"{_figure(subject.seconds)} s",
            reference.what,
            f"{_figure(reference.seconds)} s",
            _figure(each.ratio),
            f"{each.bound:g}",
            "yes" if each.met else "**no**",
            str(len(subject.samples)),
        )
    )


def _notes(each: Comparison) -> str:
    said = [f"{name}: {_said(value)}" for name, value in each.notes.items()]
    where = f"kernel {each.kernel}, {each.cpus} CPUs, Python {each.python}, {each.date}"
    return f"- **{each.title}.** " + "; ".join([where, *said]) + "."


def _said(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"of {name} {_said(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(f"`{each}`" for each in value)
    return str(value)


def _figure(figure: Figure) -> str:
    return f"{figure.median:.3g} ({figure.low:.3g} to {figure.high:.3g})"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
