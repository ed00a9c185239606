"""Tables and messages: rich on a terminal, plain columns in a pipe, never colours in JSON."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

STYLES = {
    "drift": "yellow",
    "pending": "cyan",
    "written": "green",
    "fixed": "cyan",
    "unreadable": "red",
    "refused": "red",
    "ignored": "red",
    "conflict": "red",
    "stuck": "bold red",
    "vanished": "red",
    "reverted": "yellow",
    "excluded": "dim",
    "absent": "dim",
}
"""How a cell that is exactly one of these words looks on a terminal."""


@dataclass
class Table:
    """Rows of text under headings; ``right`` are the columns whose figures stand to the right."""

    headings: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    right: frozenset[int] = frozenset()

    def show(self) -> None:
        """Print it to standard output."""
        if sys.stdout.isatty():
            self._show_rich()
        else:
            self._show_plain()

    def _show_plain(self) -> None:
        lines = [[printable(cell) for cell in row] for row in (self.headings, *self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        for line in lines:
            cells = [
                cell.rjust(width) if column in self.right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            print("  ".join(cells).rstrip())

    def _show_rich(self) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if column in self.right else "left")
        for row in self.rows:
            table.add_row(*(Text(printable(cell), style=STYLES.get(cell, "")) for cell in row))
        Console().print(table)


def printable(text: str) -> str:
    """Return the text with all escaped that could move a terminal's cursor or its colours."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def say(text: str = "") -> None:
    """Print a line for people to standard output."""
    print("\n".join(printable(line) for line in text.split("\n")))


def heading(text: str) -> None:
    """Print a line that stands out on a terminal."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        Console().print(Text(printable(text), style="bold"))
    else:
        say(text)


def note(text: str) -> None:
    """Print a message to standard error, which is where messages go."""
    sys.stdout.flush()
    print(f"hbatune: {printable(text)}", file=sys.stderr)


def show_json(document: msgspec.Struct) -> None:
    """Print a document as JSON to standard output, which then holds nothing else."""
    data = msgspec.json.encode(document)
    sys.stdout.write(msgspec.json.format(data, indent=1).decode() + "\n")
