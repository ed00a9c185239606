"""docs/benchmarks.md, out of the results files: every number on the page stands in one of them."""

from collections.abc import Iterable
from pathlib import Path

from tests.bench.guest.comparison import Comparison, Figure, load
from tests.lab.image import KERNELS

_CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = _CHECKOUT / "tests" / "bench" / "results"
IDLE = RESULTS / "idle.json"
"""Measured against bounds of its own and no pair of times: docs/daemon.md quotes it."""
PAGE = _CHECKOUT / "docs" / "benchmarks.md"

_HEAD = """\
# Benchmarks

`make bench` measures all of this again, rewrites the files in `tests/bench/results` and this page
from them, and fails where a bound does not hold. Each row times two things in turns; the ratio is
of the two times of a pair, given as its median and, in brackets, the quartiles between which the
middle half of the pairs lies. Times are wall times of whole processes unless a row says otherwise.
"""
PROMISED = (
    *("start", "diff-4096"),
    *(f"{name}-{series}" for series in KERNELS for name in ("apply", "writing")),
)
"""The names of all results, in the page's order."""

_COLUMNS = ("benchmark", "this", "takes", "and this", "takes", "ratio", "at most", "holds", "pairs")


def results() -> list[Comparison]:
    """Return all results that there are."""
    paths = (RESULTS / f"{name}.json" for name in PROMISED)
    return [load(path) for path in paths if path.exists()]


def page(found: Iterable[Comparison]) -> str:
    """Return the page that tells these results, and which of those promised are not there."""
    found = list(found)
    missing = [name for name in PROMISED if name not in {each.name for each in found}]
    lines = [
        *(_HEAD, _row(_COLUMNS), _row("---" for _ in _COLUMNS), *map(_comparison, found), ""),
        *((f"Not measured yet: {', '.join(missing)}.", "") if missing else ()),
        *("## What the figures hang on", "", *map(_notes, found)),
    ]
    return "\n".join(lines) + "\n"


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
