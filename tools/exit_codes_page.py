"""Generate docs/exit-codes.md from the table of exit codes (``hbatune.errors``)."""

from pathlib import Path

from hbatune.errors import list_exit_codes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "exit-codes.md"

_INTRODUCTION = """\
# Exit codes

The exit codes of all commands. `hbatune --help` and the man page show the same table. This
page is generated from `hbatune/errors.py`: `make docs`.
"""


def table() -> str:
    """Return the table in Markdown."""
    rows = [f"| {number} | {meaning} |" for number, meaning in list_exit_codes()]
    return "\n".join(("| code | means |", "| --- | --- |", *rows))


def page() -> str:
    """Return the page."""
    return f"{_INTRODUCTION}\n{table()}\n"
