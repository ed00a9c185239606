"""Generate docs/exit-codes.md from the table of exit codes (``hbatune.errors``)."""

from pathlib import Path

from hbatune.cli.parser import list_exit_codes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "exit-codes.md"

_INTRODUCTION = """\
# Exit codes

The exit codes of all commands. `hbatune --help` and hbatune(8) show the same table.
This page is generated from `templates/messages.toml`: `make docs`.
"""


def table() -> str:
    """Return the table in Markdown.

    A `|` in a cell ends the cell, even in a code span, unless it is escaped.
    """
    rows = []
    for number, meaning in list_exit_codes():
        cell = meaning.replace("|", r"\|")
        rows.append(f"| {number} | {cell} |")
    return "\n".join(("| code | means |", "| --- | --- |", *rows))


def page() -> str:
    """Return the page."""
    return f"{_INTRODUCTION}\n{table()}\n"
