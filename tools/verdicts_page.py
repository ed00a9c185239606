"""Generate the table of verdicts in docs/verdicts.md, from `make soak` and `make bench`."""

import json
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs" / "verdicts.md"
RESULTS = (CHECKOUT / "tests/soak/results", CHECKOUT / "tests/bench/results")
BENCH_NAMES = (
    "verdicts_cut_depth",
    "verdicts_double_read_ahead",
    "verdicts_raise_depth_for_bursts",
)
NAMES = (
    *("verdicts_itself", "verdicts_itself_by_default", "verdicts_cut", "verdicts_slower"),
    *("verdicts_raised", "verdicts_lowered", "verdicts_warming", "verdicts_beside"),
    *("verdicts_9600", *BENCH_NAMES),
)
"""The results, in the order of the table. Each has one file per kernel of a run."""
HEAD = "| compared | times | verdicts | kernel | measured |"


def table() -> str:
    """Return the table in Markdown."""
    files = []
    for name in NAMES:
        for folder in RESULTS:
            files += sorted(folder.glob(f"{name}-*.json"))
    rows = [_row(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    return "\n".join((HEAD, "| --- | --- | --- | --- | --- |", *rows))


def page() -> str:
    """Return the page with the table of the current results."""
    text = PAGE.read_text(encoding="utf-8")
    before, head, remainder = text.partition(HEAD)
    assert head, "docs/verdicts.md has lost its table"
    _, _, after = remainder.partition("\n\n")
    return f"{before}{table()}\n\n{after}"


def _row(result: dict[str, object]) -> str:
    words = result["words"]
    assert isinstance(words, dict)
    counted = ", ".join(f"{count} `{conclusion}`" for conclusion, count in words.items())
    cells = (result["what"], result["comparisons"], counted, result["kernel"], result["date"])
    return f"| {' | '.join(map(str, cells))} |"
