"""The engine of tables: at no width is a name, a value or a state cut, and no word is lost."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hbatune.text.tables as layout
from hbatune.text.tables import (
    AS_ABOVE,
    EMPTY_CELL,
    INDENT,
    NARROW_ENOUGH,
    NARROWEST,
    Cell,
    Column,
    Table,
    format_table,
    make_columns,
    measure_width,
    wrap_text,
)

ROW = ("sda", "nr_requests", "256", "1023", "drift", "more requests can be merged (D0-2)")
COLUMNS = make_columns(
    "id TARGET | id SETTING | number CURRENT | number WANTED | state STATE | reason WHY"
)


def text(table: Table, width: int | None) -> list[str]:
    return ["".join(piece.text for piece in line) for line in format_table(table, width)]


def test_wide_table_rows_are_lines() -> None:
    assert text(Table(COLUMNS, [ROW]), 100) == [
        "TARGET  SETTING      CURRENT  WANTED  STATE  WHY",
        "sda     nr_requests      256    1023  drift  more requests can be merged (D0-2)",
    ]


def test_narrow_prose_moves_below() -> None:
    long = [*ROW[:5], f"{ROW[5]} " * 3]
    lines = text(Table(COLUMNS, [long]), 110)
    assert lines[2].startswith(" " * 45), "the rest of the sentence, in its column"
    below = text(Table(COLUMNS, [long]), 70)
    assert below[0].endswith("STATE")
    assert all(line.startswith(" " * INDENT + "") for line in below[2:])
    assert " ".join(" ".join(below[2:]).split()) == long[5].strip()


def test_unfitting_values_move_below() -> None:
    lines = text(Table(COLUMNS, [ROW]), 38)
    assert lines[:3] == [
        "TARGET  SETTING      CURRENT  WANTED",
        "sda     nr_requests      256    1023",
        "    STATE drift",
    ]


def test_narrow_table_becomes_blocks() -> None:
    why = f"{ROW[5]}, as the document says"
    rows: list[Sequence[Cell]] = [(*ROW[:5], why), ("sdb", *ROW[1:5], why)]
    lines = text(Table(COLUMNS, rows), 26)
    assert lines[:5] == [
        "TARGET   sda",
        "SETTING  nr_requests",
        "CURRENT  256",
        "WANTED   1023",
        "STATE    drift",
    ]
    first, second = "\n".join(lines).split("\n\n")
    assert "merged" in first
    assert second.endswith(AS_ABOVE), "the common part is printed once"


@pytest.mark.parametrize("wide", [0, 1, 3, 6])
def test_few_wide_rows_stand_alone(wide: int) -> None:
    def name(number: int) -> str:
        return f"{number}-{'x' * 50}" if number < wide else f"sd{number}"

    rows: list[Sequence[Cell]] = [(name(number), *ROW[1:]) for number in range(8)]
    lines = text(Table(COLUMNS, rows), 56)
    name_lines = {number: lines.index(name(number)) for number in range(8) if name(number) in lines}
    if wide < 4:
        assert lines[0].split() == ["TARGET", "SETTING", "CURRENT", "WANTED", "STATE"]
        assert sorted(name_lines) == list(range(wide)), "alone on their lines"
        assert all("SETTING nr_requests" in lines[at + 1] for at in name_lines.values())
    else:
        assert lines.count("SETTING  nr_requests") == 8, "one block a row"


def test_terminal_shares_equal_prose() -> None:
    why = f"{ROW[5]}, as the document says"
    rows: list[Sequence[Cell]] = [("sda", *ROW[1:5], why), ("sdb", *ROW[1:5], why)]
    beside = text(Table(COLUMNS, rows), 120)
    assert beside[1].endswith(why)
    assert beside[2].endswith(AS_ABOVE)
    below = text(Table(COLUMNS, rows), 60)
    assert " ".join(below).count(ROW[5]) == 1
    assert [line.strip() for line in below if line.startswith(" ")] == [why, AS_ABOVE]
    assert all(line.endswith(why) for line in text(Table(COLUMNS, rows), None)[1:])


def test_paragraphs_share_only_end() -> None:
    columns = make_columns("id TARGET | reason FOUND")
    advice = "look at the cable, and then at the card"
    rows: list[Sequence[Cell]] = [("sda", ("3 errors", advice)), ("sdb", ("4 errors", advice))]
    for width in (12, 80):
        joined = " ".join(" ".join(text(Table(columns, rows), width)).split())
        assert joined.count("look") == 1
        assert joined.index("3 errors") < joined.index("look") < joined.index("4 errors")


def test_lists_wrap_between_names() -> None:
    names = ("oradata01", "oradata02", "oradata03", "redo a")
    lines = text(Table(make_columns("id TARGET | value N"), [(names, "1")]), 26)
    assert lines == ["TARGET                   N", "oradata01 oradata02      1", "oradata03 redo a"]


def test_pipe_output_has_no_width() -> None:
    rows: list[Sequence[Cell]] = [(("sda", "sdb"), ("limit", "why " * 50 + "end"))]
    lines = text(Table(make_columns("id TARGET | text WHY"), rows), None)
    assert len(lines) == 2
    assert lines[1].startswith("sda sdb  limit; why why")
    stacked = Table(make_columns("id TARGET | paragraphs WHY"), rows)
    assert len(text(stacked, None)) == 3


def test_wide_characters_count_double() -> None:
    rows: list[Sequence[Cell]] = [("日本", "1"), ("e\u0301", "2")]
    lines = text(Table(make_columns("id A | number N"), rows), 40)
    assert [measure_width(line) for line in lines] == [7, 7, 7]


def test_empty_table_prints_nothing() -> None:
    assert text(Table(COLUMNS), 80) == text(Table(COLUMNS), None) == []


@pytest.mark.parametrize(
    ("sentence", "width", "hang", "lines"),
    [
        ("one two three", 7, 0, ["one two", "three"]),
        ("one two three", 7, 2, ["one two", "  three"]),
        ("  one two", 7, 4, ["  one", "    two"]),
        ("  one two", 6, 4, ["  one", "   two"]),
        ("abcdefgh", 3, 0, ["abc", "def", "gh"]),
        ("", 10, 0, [""]),
        ("a  b", 10, 0, ["a  b"]),
        ("at most 10 % of it", 10, 0, ["at most", "10 % of it"]),
        ("日本語", 5, 0, ["日本", "語"]),
        ("run `sudo hbatune check`", 24, 0, ["run `sudo hbatune check`"]),
        ("now run `sudo hbatune check`.", 26, 0, ["now run", "`sudo hbatune check`."]),
        ("it is (`hbatune check`), see", 23, 2, ["it is", "  (`hbatune check`),", "  see"]),
        ("run `hbatune check sda`", 14, 0, ["run `hbatune", "check sda`"]),
        ("ST`1 and ST`2 `now`", 11, 0, ["ST`1 and", "ST`2 `now`"]),
        ("a `stray one at the end", 11, 0, ["a `stray", "one at the", "end"]),
    ],
)
def test_sentences_break_between_words(
    sentence: str, width: int, hang: int, lines: list[str]
) -> None:
    assert wrap_text(sentence, width, hang) == lines


WORD = st.text("abcdefg", min_size=1, max_size=14)
SENTENCE = st.lists(WORD, max_size=20).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Draw a table; each cell that is not prose is a word of its own, with its place in it."""
    kinds = draw(st.lists(st.sampled_from(["", "prose", "state"]), min_size=1, max_size=9))
    columns = [
        Column(
            f"C{place}",
            is_prose=kind == "prose",
            is_state=kind == "state",
            right=draw(st.booleans()),
            once=draw(st.booleans()),
        )
        for place, kind in enumerate(kinds)
    ]
    rows: list[Sequence[Cell]] = []
    for number in range(draw(st.integers(1, 5))):
        row: list[Cell] = []
        for place, kind in enumerate(kinds):
            if kind == "prose":
                row.append(draw(SENTENCE | st.lists(SENTENCE, max_size=3)))
            else:
                cell_text = f"r{number}c{place}"
                more = [f"{cell_text}n{at}{draw(WORD)}" for at in range(draw(st.integers(0, 3)))]
                row.append(
                    draw(st.sampled_from([f"{cell_text}-{draw(WORD)}", more, EMPTY_CELL, ""]))
                )
        rows.append(row)
    return Table(columns, rows)


@given(tables(), st.integers(24, 200))
def test_any_width_preserves_text(table: Table, width: int) -> None:
    lines = text(table, width)
    assert all(measure_width(line) <= width for line in lines)
    joined = "\n".join(lines)
    assert "…" not in joined
    words = joined.split()
    last_index = 0
    for number, row in enumerate(table.rows):
        for cell, column in zip(row, table.columns, strict=True):
            parts = [cell] if isinstance(cell, str) else list(cell)
            if column.is_prose:
                for part in parts:
                    assert set(part.split()) <= set(words)
                continue
            for part in parts:
                if part.startswith("r"):
                    assert words.count(part) == 1, "whole, and once"
                    # In the order of the rows, so that each stands with its own.
                    assert words.index(part) >= last_index or number == 0
        mine = [words.index(token) for token in words if token.startswith(f"r{number}c")]
        last_index = max([last_index, *mine])


@given(tables())
def test_pipe_rows_are_single_lines(table: Table) -> None:
    lines = text(table, None)
    assert len(lines) == 1 + len(table.rows)
    for line, row in zip(lines[1:], table.rows, strict=True):
        for cell in row:
            for part in [cell] if isinstance(cell, str) else cell:
                assert part.strip() in line


@given(st.lists(st.text("ab`日\u0301", min_size=1, max_size=30), max_size=12), st.integers(2, 40))
def test_wrapping_preserves_characters(words: list[str], width: int) -> None:
    lines = wrap_text(" ".join(words), width)
    assert all(measure_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(words)


def test_prose_column_has_minimum_width() -> None:
    columns = make_columns("id TARGET | text WHY")
    rows: list[Sequence[Cell]] = [("x" * 40, "word " * 40)]
    for width in range(45, 120):
        lines = text(Table(columns, rows), width)
        if lines[0].endswith("WHY"):
            assert width - 42 >= min(NARROW_ENOUGH, max(NARROWEST, width * 5 // 8))


def break_slowly(text: str, width: int) -> list[str]:
    """Break a text as ``_break_line`` does, by trying each prefix."""
    pieces = []
    while measure_width(text) > width:
        counts = range(2, len(text) + 1)
        fitting = max((n for n in counts if measure_width(text[:n]) <= width), default=1)
        pieces.append(text[:fitting])
        text = text[fitting:]
    return [*pieces, text]


WIDE = st.text("ab%漢字é\u0301\ufe0f\u200d❤👩🚀", max_size=60)


@given(WIDE, st.integers(1, 30))
def test_long_words_break_as_before(text: str, width: int) -> None:
    assert layout._break_line(text, width) == break_slowly(text, width)


# Many words may share a line with a long one that needs no columns.
NARROW = "a" + "\u0301" * 200_000


@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "漢" * 200_000, "e\u0301" * 200_000, "y " * 200_000, NARROW + " y" * 39],
)
def test_fitting_is_linear(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = 0

    def count_measured(part: str) -> int:
        nonlocal measured
        measured += len(part)
        return measure_width(part)

    monkeypatch.setattr(layout, "measure_width", count_measured)
    for column in ("id", "value", "text"):
        table = Table(make_columns(f"id TARGET | {column} NAME"), [["sda", text]])
        assert sum(1 for _ in format_table(table, 80)) > measure_width(text) // 80
    # Three tables, each of which measures a character when it fits columns and breaks words.
    assert measured < 3 * 25 * len(text)


def test_names_on_a_line_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = 0

    def count_measured(part: str) -> int:
        nonlocal measured
        measured += len(part)
        return measure_width(part)

    monkeypatch.setattr(layout, "measure_width", count_measured)
    names = [NARROW, *["y"] * 39]
    table = Table(make_columns("id TARGET | id NAME"), [["sda", names]])
    assert len(list(format_table(table, 200))) == 2
    assert measured < 12 * len(NARROW)
