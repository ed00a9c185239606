"""Print tables, sentences, messages and progress to a terminal or a pipe.

On a terminal, text wraps to its width, rich adds colours, and long work has a progress bar. In a
pipe, text is plain and there is no progress. JSON has no colours and does not wrap.
"""

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import msgspec
from msgspec.structs import astuple, replace

from hbatune.shipped import load_texts
from hbatune.text.basic_output import is_quiet, is_styled, make_console
from hbatune.text.tables import Cell, Line, StyledText, Table, format_table, wrap_text

if TYPE_CHECKING:
    from rich.text import Text


MIN_WIDTH = 20
"""The minimum width that is assumed of a terminal, in columns."""


def get_width(stream: TextIO | None = None) -> int | None:
    """Return the width of a terminal, by default standard output, or None for another stream."""
    if not (stream or sys.stdout).isatty():
        return None
    import shutil  # heavy, and only a terminal has a width

    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


_MARKS = {"good": ("●", "[ok]"), "look": ("▲", "[!]"), "bad": ("✗", "[X]"), "off": ("○", "[-]")}


def can_show_symbols() -> bool:
    """Return whether standard output shows marks and blocks; the Linux console has few of them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower() == "utf-8" and os.environ.get("TERM") not in ("linux", "dumb")


def format_mark(kind: str | None) -> str:
    """Return a mark (``good``, ``look``, ``bad``, ``off``) for standard output, or nothing."""
    symbol, plain = _MARKS[kind] if kind else ("", "")
    return symbol if can_show_symbols() else plain


def show_table(table: Table) -> None:
    """Print a table to standard output."""
    _print_lines(fit_table(table, get_width()))


def print_line(text: str = "", *, hang: int = 0, style: str = "") -> None:
    """Print a sentence; on a terminal it wraps, with ``hang`` spaces before further lines."""
    width, escaped = get_width(), _escape_text(text)
    lines = [escaped] if width is None else wrap_text(escaped, width, hang)
    _print_lines((StyledText(line, style),) for line in lines)


def show_next(commands: Sequence[tuple[str, str]]) -> None:
    """Print the next commands with their purposes. No command is broken across lines."""
    for position, (command, purpose) in enumerate(commands):
        head = f"{'' if position else 'Next':<7}{command:<35}   "
        if len(head) > 45 and len(head + purpose) > (get_width() or sys.maxsize):
            show_line(head.rstrip())
            head = " " * 10
        print_line(f"{head}{purpose}", hang=min(45, len(head)))


def show_line(text: str) -> None:
    """Print a line of a file without wrapping."""
    print(_escape_text(text))


def print_heading(text: str) -> None:
    """Print a line, in bold on a terminal."""
    print_line(text, hang=2, style="bold")


def show_section(title: str, table: Table) -> None:
    """Print a heading, a table and an empty line, or nothing if the table has no rows."""
    if table.rows:
        print_heading(title)
        show_table(table)
        print_line()


def make_printable(text: str) -> str:
    """Escape all characters that control a terminal or break a line.

    Names come from devices and other hosts, and a vendor string may contain escape sequences.
    Only this function makes them harmless.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def print_note(text: str) -> None:
    """Print a message to standard error.

    Errors are ignored: a message may be printed during a rollback, which must continue. A failure
    of standard output is reported at the end (``command.run_command``).
    """
    with suppress(OSError):
        # Keeps rows and messages in order if both are printed to one terminal.
        sys.stdout.flush()
    # On one terminal with a pager, a message would be lost above it.
    paged = getattr(sys.stdout, "takes_messages", False) and sys.stderr.isatty()
    stream = sys.stdout if paged else sys.stderr
    message, width = f"hbatune: {make_printable(text)}", get_width(stream)
    with suppress(OSError):
        for line in [message] if width is None else wrap_text(message, width, len("hbatune: ")):
            print(line, file=stream)


def show_json(document: msgspec.Struct) -> None:
    """Print a document as JSON to standard output, which must contain no other text."""
    print(decode_json(msgspec.json.format(msgspec.json.encode(document), indent=1)))


def decode_json(data: bytes) -> str:
    """Return encoded JSON as text for standard output, even if its encoding is not UTF-8."""
    text = data.decode()
    if text.isascii() or codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8":
        return text
    # JSON escapes are ASCII, which every encoding contains.
    import json  # rarely needed: names and values are ASCII

    return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)


def fit_table(table: Table, width: int | None) -> Iterator[Line]:
    """Yield a table's lines, escaped, for a terminal of this width or for a pipe (None)."""
    columns = [replace(column, title=_escape_text(column.title)) for column in table.columns]
    rows: list[Sequence[Cell]] = [list(map(_escape_cell, row)) for row in table.rows]
    return format_table(Table(columns, rows), width)


def style_line(line: Line) -> "Text":
    """Return a line for rich, with its styles."""
    from rich.text import Text

    return Text.assemble(*map(astuple, line))


def _print_lines(lines: Iterable[Line]) -> None:
    """Print lines that already have the right width."""
    console = make_console() if is_styled() else None
    for line in lines:
        # Most lines have no styles, and rich is slow.
        if console is not None and any(piece.style for piece in line):
            console.print(style_line(line), soft_wrap=True)
        else:
            print("".join(piece.text for piece in line))


def _escape_cell(cell: Cell) -> Cell:
    return _escape_text(cell) if isinstance(cell, str) else tuple(map(_escape_text, cell))


def _escape_text(text: str) -> str:
    """Return the text as it appears: escaped and encoded, since `µ` may become six characters."""
    escaped = make_printable(text)
    encoding = getattr(sys.stdout, "encoding", None)
    if escaped.isascii() or not encoding:
        return escaped
    errors = getattr(sys.stdout, "errors", None) or "strict"
    if errors == "strict":
        errors = "backslashreplace"
    return escaped.encode(encoding, errors).decode(encoding, "replace")


@contextmanager
def show_progress(title: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each step with its name, or with a number of further steps."""
    is_shown = sys.stderr.isatty() and total and not is_quiet()
    screen = make_console(stderr=True) if is_shown else None
    # On a dumb terminal rich cannot draw, but would wrap every message at 80 columns.
    if screen is None or screen.is_dumb_terminal:
        yield lambda step, more=0: None
        return
    from rich import progress

    names = (progress.TextColumn("{task.description}"), progress.TextColumn("{task.fields[word]}"))
    numbers = (progress.MofNCompleteColumn(), progress.TimeRemainingColumn(compact=True))
    columns = (names[0], progress.BarColumn(), *numbers, names[1])
    # No refresh thread: workers are forked while the bar is shown.
    with progress.Progress(*columns, console=screen, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(title, total=total, word="")

        def advance(step: str, more: int = 0) -> None:
            planned = (bar.tasks[0].total or 0) + more
            bar.update(task, advance=0 if more else 1, total=planned, word=step, refresh=True)

        bar.refresh()
        yield advance


_OBEYED = tuple("=+-@\t\r'\uff1d\uff0b\uff0d\uff20")
"""First characters of cells that spreadsheets calculate. An apostrophe prevents it (OWASP)."""

Field = str | float | None


def show_csv(name: str, rows: Iterable[Sequence[Field]]) -> None:
    """Print a table with the head of this ``name``, as in RFC 4180 except for the line endings."""
    import csv  # few commands write it

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_escape_field(cell) for cell in row] for row in rows)
    for line in (load_texts("messages.toml")["csv"][name], *text.getvalue().splitlines()):
        show_line(line)


def _escape_field(field: Field) -> Field:
    if not isinstance(field, str):
        return field
    apostrophe = "'" if field.lstrip().startswith(_OBEYED) else ""
    return f"{apostrophe}{make_printable(field)}"
