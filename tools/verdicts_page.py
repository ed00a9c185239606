"""The table of counted verdicts in docs/verdicts.md, from what `make soak` has measured."""

import json
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs" / "verdicts.md"
RESULTS = CHECKOUT / "tests" / "soak" / "results"
NAMES = (
    *("verdicts_itself", "verdicts_itself_by_default", "verdicts_cut", "verdicts_slower"),
    *("verdicts_raised", "verdicts_lowered", "verdicts_warming", "verdicts_beside"),
)
"""The results, in the order of the table; each has one file for each kernel it was run on."""
HEAD = "| compared | times | verdicts | kernel | measured |"


def table() -> str:
    """Return the table in Markdown."""
    files = [file for name in NAMES for file in sorted(RESULTS.glob(f"{name}-*.json"))]
    rows = [_row(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    return "\n".join((HEAD, "| --- | --- | --- | --- | --- |", *rows))


def page() -> str:
    """Return the page with its table as the results say."""
    text = PAGE.read_text(encoding="utf-8")
    before, head, rest = text.partition(HEAD)
    assert head, "docs/verdicts.md has lost its table"
    _, _, after = rest.partition("\n\n")
    return f"{before}{table()}\n\n{after}"


def _row(found: dict[str, object]) -> str:
    words = found["words"]
    assert isinstance(words, dict)
    counted = ", ".join(f"{count} `{word}`" for word, count in words.items())
    cells = (found["what"], found["comparisons"], counted, found["kernel"], found["date"])
    return f"| {' | '.join(map(str, cells))} |"
