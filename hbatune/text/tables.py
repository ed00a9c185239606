"""Lay tables out for a width. Identities, values and states of rows are never cut.

Each column contains the *identity* of its rows, a *value*, a *state*, or *prose*. Only prose
wraps. A column that does not fit next to the others moves below its row. If too few columns fit
next to each other, each row becomes a block of lines. In a pipe there is no width, so each row is
one line, for `grep`.
"""

import re
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.shipped import load_texts

COLUMN_GAP = 2
"""Characters between two columns, and between a title and its text."""

INDENT = 4
"""Characters before the lines below a row."""

NARROWEST, NARROW_ENOUGH = 36, 60
"""Bounds of the minimum width of a column of prose, which is 5/8 of the terminal."""

EMPTY_CELL = "-"
"""The cell of a missing value."""

AS_ABOVE = "as above"
"""The cell of prose that is equal to the row above."""

_STATES_BY_STYLE = {
    "green": "written ● [ok]",
    "yellow": "drift reverted advice ▲ [!]",
    "cyan": "pending fixed",
    "red": "refused ignored conflict blocked vanished unreadable warning ✗ [X]",
    "bold red": "stuck critical",
    "dim": "excluded absent info ○ [-]",
}
STYLES = {state: style for style, states in _STATES_BY_STYLE.items() for state in states.split()}
"""The style of each state and mark on a terminal."""


class Column(Struct, frozen=True):
    """A column. Only prose wraps between words, and only a state has a style.

    With ``stacked`` the paragraphs of a cell are separate lines in a pipe, too. With ``once`` a
    terminal shows equal text of adjacent rows only once.
    """

    title: str
    is_prose: bool = False
    is_state: bool = False
    right: bool = False
    stacked: bool = False
    once: bool = False


_COLUMN_TYPES = {
    "id": Column(""),
    "value": Column(""),
    "number": Column("", right=True),
    "state": Column("", is_state=True),
    "text": Column("", is_prose=True),
    "reason": Column("", is_prose=True, once=True),
    "paragraphs": Column("", is_prose=True, stacked=True),
}


def make_columns(heads: str) -> tuple[Column, ...]:
    """Return columns from a line with their types and titles: ``id TARGET | value CURRENT``.

    ``text`` is prose of one row. Several rows may share a ``reason``.
    """
    columns = []
    for head in heads.split(" | "):
        type_name, _, title = head.partition(" ")
        columns.append(replace(_COLUMN_TYPES[type_name], title=title))
    return tuple(columns)


def load_columns(name: str) -> tuple[Column, ...]:
    """Return the columns of the table of this ``name`` in templates/messages.toml."""
    return make_columns(load_texts("messages.toml")["columns"][name])


Cell = str | Sequence[str]
"""Text, or several names, between which it may wrap, or several paragraphs of prose."""


class StyledText(Struct, frozen=True):
    """A part of a line, with its style on a terminal."""

    text: str
    style: str = ""


Line = tuple[StyledText, ...]
_Parts = tuple[str, ...]


class Table(Struct):
    """Rows of cells in columns."""

    columns: Sequence[Column]
    rows: list[Sequence[Cell]] = field(default_factory=list)


def format_table(table: Table, width: int | None) -> Iterator[Line]:
    """Yield the lines of a printable table on a terminal of this width, or in a pipe (None)."""
    if not table.rows:
        return
    columns = table.columns
    rows = [list(map(_split_cell, row)) for row in table.rows]
    if width is None:
        joined = [list(map(_join_cell, row, columns)) for row in rows]
        yield from _Layout(columns, joined, 0).draw_full()
        return
    layout = _Layout(columns, list(_shorten_reasons(columns, rows)), width)
    everything = range(len(rows))
    if (budget := layout.fit_columns(everything)) is not None:
        yield from layout.draw_grid(budget, everything)
        return
    # A few rows that are far wider than the others must not turn all rows into blocks.
    by_width = sorted(everything, key=layout.measure_values)

    # Bisection works, because no column gets wider if a row is removed.
    def is_too_wide(row_count: int) -> bool:
        return layout.fit_columns(by_width[:row_count]) is None

    fitting = frozenset(by_width[: bisect(range(1, len(rows)), False, key=is_too_wide)])
    budget = layout.fit_columns(fitting)
    if budget is not None and len(fitting) > len(rows) // 2:
        yield from layout.draw_grid(budget, fitting)
    else:
        yield from layout.draw_blocks()


def wrap_text(text: str, width: int, hang: int = 0) -> list[str]:
    """Return the text in lines of at most this width, broken between words.

    A percent sign stays with its number, and so do the words of a command in backticks if they fit
    on a line. All lines except the first begin with ``hang`` spaces. Only a word longer than a line
    is broken.
    """
    # A backtick within a word is part of a name: devices may have such names.
    command = rf'["(]?`[^`]{{1,{max(1, width - 4)}}}`[^ ]*'
    lines: list[str] = []
    line, gap = "", ""
    used = 0  # the width of the line: measuring it again for each word would take too long
    for token in re.findall(rf" +|{command}|[^ ]+(?: %[^ ]*)?", text):
        if token[0] == " ":
            gap = token
            continue
        needed = measure_width(token)
        if line.strip() and used + len(gap) + needed > width:
            lines.append(line)
            # Fewer spaces are better than a broken word, if it fits on its own line.
            line, gap = " " * max(0, min(hang, width - needed)), ""
            used = len(line)
        line, used, gap = line + gap + token, used + len(gap) + needed, ""
        if used > width:
            *full, line = _break_line(line, width)
            used = measure_width(line)
            lines += full
    return [*lines, line] if line.strip() or not lines else lines


def measure_width(text: str) -> int:
    """Return the number of terminal columns of a text, as counted by wcwidth."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _split_cell(cell: Cell) -> _Parts:
    return tuple(filter(None, (cell,) if isinstance(cell, str) else cell))


def _join_cell(cell: _Parts, column: Column) -> _Parts:
    """Return the cell for a pipe: on one line, unless its paragraphs are stacked."""
    if column.stacked or not cell:
        return cell
    return (("; " if column.is_prose else " ").join(cell),)


class _Layout:
    """The rows of a table for a terminal's width, with the full and minimum widths of cells."""

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[_Parts]], width: int
    ) -> None:
        self._columns, self._rows, self._width = columns, rows, width
        self._titles = [measure_width(column.title) for column in columns]
        self._full, self._minimum = [], []
        for row in rows:
            self._full.append(list(map(_measure_cell, row, columns)))
            self._minimum.append(list(map(_measure_longest_part, row, columns)))

    def measure_values(self, number: int) -> int:
        """Return the minimum width of all values in a row."""
        pairs = zip(self._columns, self._minimum[number], strict=True)
        return sum(minimum for column, minimum in pairs if not column.is_prose)

    def fit_columns(self, numbers: Collection[int]) -> dict[int, int] | None:
        """Return the widths of columns for rows, by position; others are below. None for blocks."""
        if not numbers:
            return None
        full_widths = self._find_widest(self._full, numbers)
        widths = self._measure_minimum(numbers, full_widths)
        remaining = self._width - sum(widths) - COLUMN_GAP * (len(widths) - 1)
        inline = list(range(len(widths)))
        sentences = [position for position in inline if self._columns[position].is_prose]
        for position in sorted(sentences, key=full_widths.__getitem__, reverse=True):
            if remaining >= 0:
                break
            inline.remove(position)
            remaining += widths[position] + COLUMN_GAP
        # If fewer than half of the values fit next to each other, blocks are easier to read.
        fewest = max(1, (len(widths) - len(sentences) + 1) // 2)
        while remaining < 0:
            if len(inline) <= fewest:
                return None
            remaining += widths[inline.pop()] + COLUMN_GAP
        if not inline:
            return None
        # Distribute the remaining width, one character at a time, to columns that need it.
        while remaining > 0 and (short := [p for p in inline if widths[p] < full_widths[p]]):
            for position in short[:remaining]:
                widths[position] += 1
            remaining -= len(short)
        return {position: widths[position] for position in inline}

    def draw_full(self) -> Iterator[Line]:
        """Yield the titles and each row, with all cells next to each other."""
        widths = dict(enumerate(self._find_widest(self._full, range(len(self._rows)))))
        yield from self._draw_titles(widths)
        for number, row in enumerate(self._rows):
            yield from self._draw_cells(number, widths, row)

    def draw_grid(self, inline: Mapping[int, int], fitting: Collection[int]) -> Iterator[Line]:
        """Yield the titles and each row; cells that do not fit are below their row."""
        below = [position for position in range(len(self._columns)) if position not in inline]
        yield from self._draw_titles(inline)
        for number, row in enumerate(self._rows):
            if number not in fitting:
                for text in _wrap_cell(row[0] or (EMPTY_CELL,), self._columns[0], self._width):
                    yield (StyledText(text),)
                yield from self._draw_below(range(1, len(self._columns)), number)
                continue
            cells = [_wrap_cell(row[p], self._columns[p], room) for p, room in inline.items()]
            yield from self._draw_cells(number, inline, cells)
            yield from self._draw_below(below, number)

    def draw_blocks(self) -> Iterator[Line]:
        """Yield each row as a block, with one or more lines for each column."""
        for number in range(len(self._rows)):
            if number:
                yield ()
            for position, cell in enumerate(self._rows[number]):
                if cell not in ((), (EMPTY_CELL,)):
                    style = self._choose_style(number, position)
                    yield from self._draw_labelled(position, max(self._titles), cell, 0, style)

    def _find_widest(self, widths_by_row: list[list[int]], numbers: Iterable[int]) -> list[int]:
        """Return the largest width of each column in these rows and the titles."""
        widths = list(self._titles)
        for number in numbers:
            widths = list(map(max, widths, widths_by_row[number]))
        return widths

    def _measure_minimum(self, numbers: Iterable[int], full: Sequence[int]) -> list[int]:
        """Return the minimum widths for these rows, at which no name or word is broken."""
        readable = min(NARROW_ENOUGH, max(NARROWEST, self._width * 5 // 8))
        widths = self._find_widest(self._minimum, numbers)
        for position, column in enumerate(self._columns):
            if column.is_prose:
                widths[position] = min(full[position], max(readable, widths[position]))
        return widths

    def _draw_titles(self, widths: Mapping[int, int]) -> Iterator[Line]:
        titles = [StyledText(self._columns[position].title, "bold") for position in widths]
        if any(title.text for title in titles):
            yield self._join_pieces(widths, titles)

    def _draw_cells(
        self, number: int, widths: Mapping[int, int], cells: Sequence[Sequence[str]]
    ) -> Iterator[Line]:
        """Yield the lines of a row's cells at these positions."""
        styles = [self._choose_style(number, position) for position in widths]
        for texts in list(zip_longest(*cells, fillvalue="")) or [("",) * len(cells)]:
            yield self._join_pieces(widths, list(map(StyledText, texts, styles)))

    def _join_pieces(self, widths: Mapping[int, int], pieces: Iterable[StyledText]) -> Line:
        """Return one line of cells, without spaces at its end."""
        line: list[StyledText] = []
        space = ""
        for (position, width), piece in zip(widths.items(), pieces, strict=True):
            fill = " " * (width - measure_width(piece.text))
            if not piece.text:
                space += fill
            elif self._columns[position].right:
                line += [StyledText(space + fill), piece]
                space = ""
            else:
                line += [StyledText(space), piece]
                space = fill
            space += " " * COLUMN_GAP
        return tuple(piece for piece in line if piece.text)

    def _draw_below(self, below: Iterable[int], number: int) -> Iterator[Line]:
        """Yield the lines below a row: values with their titles, then prose."""
        row = self._rows[number]
        pairs, sentences = [], []
        for position in below:
            if self._columns[position].is_prose:
                sentences.append(position)
            elif row[position] not in ((), (EMPTY_CELL,)):
                pairs.append((self._columns[position].title, " ".join(row[position])))
        yield from _draw_pairs(pairs, self._width)
        label = max((self._titles[position] for position in sentences), default=0)
        for position in sentences:
            cell = row[position]
            if cell in ((), (EMPTY_CELL,)):
                continue
            if len(sentences) > 1:
                yield from self._draw_labelled(position, label, cell, INDENT)
                continue
            for part in cell:
                for line in wrap_text(part, self._width - INDENT):
                    yield (StyledText(" " * INDENT + line),)

    def _draw_labelled(
        self, position: int, label: int, cell: _Parts, indent: int, style: str = ""
    ) -> Iterator[Line]:
        """Yield a title and its text, next to it or, if a word or name would not fit, below it."""
        column, width = self._columns[position], self._width
        before = indent + label + COLUMN_GAP
        needed = max(measure_width(token) for part in cell for token in part.split(" "))
        if column.is_prose:
            needed = max(needed, min(NARROWEST // 2, *map(measure_width, cell)))
        if before + needed <= width:
            first = [StyledText(" " * indent), StyledText(column.title, "bold")]
            space = " " * (label - self._titles[position] + COLUMN_GAP)
            for text in _wrap_cell(cell, column, width - before):
                yield (*first, StyledText(space), StyledText(text, style))
                first, space = [], " " * before
        else:
            yield StyledText(" " * indent), StyledText(column.title, "bold")
            hang = _make_indent(indent + COLUMN_GAP, cell, width)
            for text in _wrap_cell(cell, column, width - len(hang)):
                yield StyledText(hang), StyledText(text, style)

    def _choose_style(self, number: int, position: int) -> str:
        is_state = self._columns[position].is_state
        return STYLES.get(" ".join(self._rows[number][position]), "") if is_state else ""


def _measure_cell(cell: _Parts, column: Column) -> int:
    if column.is_prose:
        return max(map(measure_width, cell), default=0)
    return measure_width(" ".join(cell))


def _measure_longest_part(cell: _Parts, column: Column) -> int:
    parts = " ".join(cell).split() if column.is_prose else cell
    return max(map(measure_width, parts), default=0)


def _draw_pairs(pairs: Iterable[tuple[str, str]], width: int) -> Iterator[Line]:
    line: list[StyledText] = []
    used = 0
    for title, text in pairs:
        pair = (StyledText(title, "bold"), StyledText(f" {text}"))
        needed = measure_width(title) + 1 + measure_width(text)
        if line and used + 3 + needed <= width:
            line += [StyledText("   "), *pair]
            used += 3 + needed
            continue
        if line:
            yield tuple(line)
            line = []
        if INDENT + needed > width:
            yield StyledText(" " * INDENT), pair[0]
            hang = _make_indent(INDENT + COLUMN_GAP, text.split(" "), width)
            for text_line in wrap_text(text, width - len(hang)):
                yield (StyledText(hang + text_line),)
        else:
            line, used = [StyledText(" " * INDENT), *pair], INDENT + needed
    if line:
        yield tuple(line)


def _make_indent(wanted: int, names: Iterable[str], width: int) -> str:
    return " " * max(0, min(wanted, width - max(map(measure_width, names))))


def _wrap_cell(cell: _Parts, column: Column, width: int) -> list[str]:
    parts, used = list[str](), 0
    for part in cell:
        needed = measure_width(part)
        if parts and not column.is_prose and used + 1 + needed <= width:
            parts[-1] += f" {part}"
            used += 1 + needed
        else:
            parts.append(part)
            used = needed
    return [line for part in parts for line in wrap_text(part, width)]


def _shorten_reasons(columns: Sequence[Column], rows: list[list[_Parts]]) -> Iterator[list[_Parts]]:
    """Yield the rows. The end of a long reason is omitted if the row above ends in the same way."""
    yield rows[0]
    for above, row in pairwise(rows):
        yield [_shorten_repeated(*cells) for cells in zip(columns, row, above, strict=True)]


def _shorten_repeated(column: Column, cell: _Parts, above: _Parts) -> _Parts:
    if not column.once or sum(map(measure_width, cell)) <= NARROWEST:
        return cell
    same = 0
    while same < min(len(cell), len(above)) and cell[-1 - same] == above[-1 - same]:
        same += 1
    return cell[: len(cell) - same] or (AS_ABOVE,)


def _break_line(line: str, width: int) -> list[str]:
    """Return the line in pieces of at most this width and at least one character.

    The last piece is empty if a character before it is wider than the width. The work is linear in
    the length of the line: a name from another host may have a megabyte.
    """
    if measure_width(line) <= width:
        return [line]
    pieces, start = [], 0
    while start < len(line):
        fitting, limit = start + 1, start + width
        # Characters without a width make a longer piece fit.
        while limit < len(line) and measure_width(line[start:limit]) <= width:
            fitting, limit = limit, 2 * limit - start
        # A longer piece is never narrower.
        ends = range(fitting, min(limit, len(line)) + 1)
        number = bisect(ends, width, key=lambda end: measure_width(line[start:end]))
        end = ends[max(0, number - 1)]
        pieces.append(line[start:end])
        start = end
    return pieces if measure_width(pieces[-1]) <= width else [*pieces, ""]
