"""Tables and messages: rich on a terminal, plain columns in a pipe, never colours in JSON."""

import codecs
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, field

from hbatune.cli.text.output_options import console, is_styled

if TYPE_CHECKING:
    from rich.table import Table as RichTable

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
    "critical": "bold red",
    "warning": "red",
    "advice": "yellow",
    "info": "dim",
}
"""The style on a terminal of a cell that is exactly one of these words."""


GAP = 2
"""Characters between two columns on a terminal."""


class Table(Struct):
    """Rows of text under headings.

    ``right`` are the right-aligned columns; ``wraps`` is the one column whose text may wrap;
    ``spare`` are the columns that a narrow terminal omits, in this order.
    """

    headings: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    right: frozenset[int] = frozenset()
    wraps: str | None = None
    spare: Sequence[str] = ()

    def show(self) -> None:
        """Print it to standard output."""
        if is_styled():
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
        shown = console()
        shown.print(self.drawn(shown.width))

    def drawn(self, width: int) -> "RichTable":
        """Return it as a rich table for a terminal of this width in characters."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
        )
        shown = self._columns(width)
        for column in shown:
            title = self.headings[column]
            justify: Literal["left", "right"] = "right" if column in self.right else "left"
            table.add_column(title, justify=justify, no_wrap=title != self.wraps)
        for row in self.rows:
            cells = [row[column] for column in shown]
            table.add_row(*(Text(printable(cell), style=STYLES.get(cell, "")) for cell in cells))
        return table

    def _columns(self, width: int) -> list[int]:
        """Return the columns to show in this width: spare ones are dropped until the rest fits."""
        shown = list(range(len(self.headings)))
        for title in self.spare:
            if sum(self._width(column) + GAP for column in shown) <= width:
                break
            shown.remove(list(self.headings).index(title))
        return shown

    def _width(self, column: int) -> int:
        cells = (self.headings[column], *(printable(row[column]) for row in self.rows))
        return max(map(len, cells))


def printable(text: str) -> str:
    """Return the text with all characters escaped that a terminal could obey.

    Names come from devices and from other hosts: a vendor string may hold escape sequences.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def say(text: str = "") -> None:
    """Print a line for people to standard output."""
    print("\n".join(printable(line) for line in text.split("\n")))


def heading(text: str) -> None:
    """Print a line in bold on a terminal, and plainly elsewhere."""
    if is_styled():
        from rich.text import Text

        console().print(Text(printable(text), style="bold"))
    else:
        say(text)


def note(text: str) -> None:
    """Print a message to standard error, where all messages go.

    Errors are swallowed: a message may come in the middle of a rollback, which must go on. A
    failure of standard output is reported at the end (``command.run``).
    """
    with suppress(OSError):
        # So that rows and messages come out in their order where both go to one terminal.
        sys.stdout.flush()
    with suppress(OSError):
        print(f"hbatune: {printable(text)}", file=sys.stderr)


def show_json(document: msgspec.Struct) -> None:
    """Print a document as JSON to standard output; nothing else may be printed there."""
    data = msgspec.json.encode(document)
    sys.stdout.write(json_text(msgspec.json.format(data, indent=1)) + "\n")


def json_text(data: bytes) -> str:
    """Return encoded JSON as text for standard output, also where its encoding is not UTF-8."""
    text = data.decode()
    if text.isascii() or codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8":
        return text
    # As JSON escapes them: any encoding has the characters of an escape.
    return "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text)
