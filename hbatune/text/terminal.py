"""Print tables, sentences, messages and progress to a terminal or a pipe.

Prints tables, sentences and messages: within a terminal's width, plainly in a pipe.

Colours are rich's, on a terminal alone. JSON has neither.

Progress of long work: a bar on a terminal, silence in a pipe.

Tables as comma-separated values, which a spreadsheet opens and does not obey.

A cell that begins as a formula does gets an apostrophe before it, as OWASP advises against CSV
injection: names in it come from devices and other hosts.
"""

import codecs
import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import msgspec
from msgspec.structs import replace

from hbatune.text.basic_output import console, is_quiet, is_styled
from hbatune.text.tables import Cell, Line, StyledText, Table, table_lines, wrapped

if TYPE_CHECKING:
    from rich.text import Text


NARROWEST = 20
"""Columns that a terminal has at least, whatever it says."""


def columns(stream: TextIO | None = None) -> int | None:
    """Return the width of a terminal, standard output's without any; None for what is none."""
    if not (stream or sys.stdout).isatty():
        return None
    import shutil  # heavy, and only a terminal has a width

    return max(NARROWEST, shutil.get_terminal_size().columns)


def show_table(table: Table) -> None:
    """Print a table to standard output."""
    _print_lines(table_lines(_escape_table(table), columns()))


def say(text: str = "", *, hang: int = 0) -> None:
    """Print a sentence for people; on a terminal it wraps, with ``hang`` spaces before the rest."""
    _print_lines((StyledText(line),) for line in _wrap_text(text, hang))


def show_line(text: str) -> None:
    """Print a line of a file as it is: it is not broken, whatever the width."""
    print(_escape_text(text))


def heading(text: str) -> None:
    """Print a line in bold on a terminal, and plainly elsewhere."""
    _print_lines((StyledText(line, "bold"),) for line in _wrap_text(text, 2))


def printable(text: str) -> str:
    """Return the text with all characters escaped that a terminal could obey or break a line at.

    Names come from devices and from other hosts: a vendor string may hold escape sequences. This
    is the one place where they are made harmless.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def note(text: str) -> None:
    """Print a message to standard error, where all messages go.

    Errors are swallowed: a message may come in the middle of a rollback, which must go on. A
    failure of standard output is reported at the end (``command.run``).
    """
    with suppress(OSError):
        # So that rows and messages come out in their order where both go to one terminal.
        sys.stdout.flush()
    # On one terminal with a pager, a message would be lost above it.
    paged = getattr(sys.stdout, "takes_messages", False) and sys.stderr.isatty()
    stream = sys.stdout if paged else sys.stderr
    message, width = f"hbatune: {printable(text)}", columns(stream)
    with suppress(OSError):
        for line in [message] if width is None else wrapped(message, width, len("hbatune: ")):
            print(line, file=stream)


def show_json(document: msgspec.Struct) -> None:
    """Print a document as JSON to standard output; nothing else may be printed there."""
    data = msgspec.json.encode(document)
    print(json_text(msgspec.json.format(data, indent=1)))  # not joined: it may be megabytes


def show_csv(text: str) -> None:
    """Print a table of comma-separated values to standard output, alone as JSON is."""
    for line in text.splitlines():
        show_line(line)


def json_text(data: bytes) -> str:
    """Return encoded JSON as text for standard output, also where its encoding is not UTF-8."""
    text = data.decode()
    if text.isascii() or codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8":
        return text
    # As JSON escapes them: any encoding has the characters of an escape.
    import json  # rarely needed: names and values are ASCII

    return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)


def fitted_lines(table: Table, width: int) -> Iterator[Line]:
    """Yield a table's lines for a terminal of this width."""
    return table_lines(_escape_table(table), width)


def drawn(line: Line) -> "Text":
    """Return a line for rich, with its styles."""
    from rich.text import Text

    return Text.assemble(*((piece.text, piece.style) for piece in line))


def _print_lines(lines: Iterable[Line]) -> None:
    """Print lines that are in their width already."""
    if not is_styled():
        for line in lines:
            print("".join(piece.text for piece in line))
        return
    styled = console()
    for line in lines:
        # Most lines have no styles, and rich takes its time.
        if any(piece.style for piece in line):
            styled.print(drawn(line), soft_wrap=True)
        else:
            print("".join(piece.text for piece in line))


def _wrap_text(text: str, hang: int) -> list[str]:
    """Return the text in lines for the terminal, or in one."""
    width, escaped = columns(), _escape_text(text)
    return [escaped] if width is None else wrapped(escaped, width, hang)


def _escape_table(table: Table) -> Table:
    return replace(
        table,
        columns=[replace(column, title=_escape_text(column.title)) for column in table.columns],
        rows=[[_escape_cell(cell) for cell in row] for row in table.rows],
    )


def _escape_cell(cell: Cell) -> Cell:
    return (
        _escape_text(cell) if isinstance(cell, str) else tuple(_escape_text(part) for part in cell)
    )


def _escape_text(text: str) -> str:
    """Return the text as it appears: printable, and with what the encoding makes of it.

    Before its width is counted: `µ` may come out as six characters.
    """
    escaped = printable(text)
    encoding = getattr(sys.stdout, "encoding", None)
    if escaped.isascii() or not encoding:
        return escaped
    errors = getattr(sys.stdout, "errors", None) or "strict"
    if errors == "strict":
        errors = "backslashreplace"
    return escaped.encode(encoding, errors).decode(encoding, "replace")


Advance = Callable[[str], None]


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Advance]:
    """Yield a function to call after each of ``total`` steps, with a word that names it."""
    if not sys.stderr.isatty() or not total or is_quiet():
        yield lambda step: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    screen = console(stderr=True)
    # Rich cannot draw there, but would break every message at 80 columns while a bar is shown.
    if screen.is_dumb_terminal:
        yield lambda step: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[word]}"),
    )
    # No refreshing thread: workers are forked while this is shown.
    bar = Progress(*columns, console=screen, transient=True, auto_refresh=False)
    with bar:
        task = bar.add_task(title, total=total, word="")

        def advance(step: str) -> None:
            bar.update(task, advance=1, word=step, refresh=True)

        bar.refresh()
        yield advance


_FULL_WIDTH = ("\uff1d", "\uff0b", "\uff0d", "\uff20")
_OBEYED = ("=", "+", "-", "@", "\t", "\r", "'", *_FULL_WIDTH)
"""What the cells begin with that spreadsheets calculate, and the apostrophe itself."""

Field = str | float | None


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Field]]) -> str:
    """Return a table with its head, in RFC 4180's form but for the ends of lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_escape_field(cell) for cell in row] for row in rows)
    return text.getvalue()


def _escape_field(field: Field) -> Field:
    if not isinstance(field, str):
        return field
    return f"'{printable(field)}" if field.lstrip().startswith(_OBEYED) else printable(field)
