"""Names that somebody else chose: nowhere do they become more than text.

Files that are generated have such tests of their own (``test_render_*``).
"""

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.cli.command import run_command
from hbatune.facts.attributes import _decode_text
from hbatune.facts.ids import escape_text, make_stable_name
from hbatune.plan.make import make_plan
from hbatune.policy.profile import Exactly
from hbatune.text import terminal
from hbatune.text.documents import make_diff_document
from hbatune.text.tables import Column, Table, make_columns, measure_width
from hbatune.text.terminal import make_printable, print_heading, print_line, print_note, show_table
from tests.unit.hostile_names import hostile
from tests.unit.machines import endpoint, machine
from tests.unit.profiles import profile
from tests.unit.terminals import Terminal

COLOURS = ("\x1b[1m", "\x1b[0m", "\x1b[2m", "\x1b[1;31m", "\x1b[31m", "\x1b[33m", "\x1b[36m")


def plain(text: str) -> bool:
    """Whether nothing in the text moves a cursor or changes a colour."""
    return all(char.isprintable() or char == "\n" for char in text)


@given(st.binary(max_size=40))
def test_kernel_bytes_decode_to_text(data: bytes) -> None:
    assert escape_text(_decode_text(data)).isprintable()
    json.dumps(_decode_text(data)).encode()


@given(hostile, hostile)
def test_id_is_printable_without_spaces(wwid: str, serial: str) -> None:
    name = make_stable_name(wwid, serial)
    assert name.isprintable()
    assert " " not in name


@given(hostile)
def test_piped_output_is_plain_text(text: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        show_table(
            Table(
                [Column(text), *make_columns("text B")],
                [[text, text], [(text, text), text]],
            )
        )
        print_heading(text)
        print_line(text)
        print_note(text)
    assert plain(out.getvalue())
    assert plain(err.getvalue())
    assert out.getvalue().count("\n") == 5, "each row and each sentence is one line"


@given(hostile, st.sampled_from([20, 40, 80]))
def test_terminal_tables_preserve_text(text: str, width: int) -> None:
    out = Terminal()
    with redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        show_table(
            Table(make_columns("id A | text B"), [[text, text], [(text, "x"), (text, text)]])
        )
        print_heading(text)
        print_line(text, hang=4)
    output = out.getvalue()
    for colour in COLOURS:
        output = output.replace(colour, "")
    assert plain(output)
    assert all(measure_width(line) <= width for line in output.split("\n"))
    # Broken into lines perhaps, but all of it: what is left without spaces is the same.
    assert "".join(make_printable(text).split()) in "".join(output.split())


def test_messages_wrap_only_on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for stream, lines in ((Terminal(), 3), (io.StringIO(), 1)):
        with redirect_stderr(stream):
            print_note(
                "an earlier run was interrupted: settings may be half-way; roll back or complete"
            )
        printed = stream.getvalue().splitlines()
        assert len(printed) == lines
        assert all(line.startswith(" " * 9) for line in printed[1:])


@given(hostile)
def test_json_round_trips_hostile_text(text: str) -> None:
    server = machine(endpoint(model=text, id=text))
    plan = make_plan(server, profile(("nr_requests", Exactly(64))))
    out = io.StringIO()
    with redirect_stdout(out):
        terminal.show_json(make_diff_document(plan, plan.rows, server, ()))
    assert {row["id"] for row in json.loads(out.getvalue())["rows"]} == {text}


@pytest.mark.parametrize("text", ["\x1b[31mx", "x\ny", "\u202ex", "{0}", "%s", "[bold]x"])
def test_wrong_profile_name_prints_plainly(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["profiles", text]) == 2
    errors = capsys.readouterr().err
    assert plain(errors)
    assert len(errors.splitlines()) <= 2


def test_device_newline_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("firmware 1.0\n\x1bb")
    assert capsys.readouterr().out == "firmware 1.0\\n\\x1bb\n"


@pytest.mark.parametrize("width", [30, 60, 80, 100, None])
def test_next_commands_are_never_broken(
    width: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "get_width", lambda stream=None: width)
    long = "hbatune explain sda nr_requests --profile oltp"
    terminal.show_next(
        [("hbatune diff", "see the 2 values and why"), (long, "one of them in full")]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Next   hbatune diff")
    assert [line for line in lines if line.startswith(f"       {long}")]
    purposes = [line for line in lines if line.endswith("one of them in full")]
    assert len(purposes) == 1
    assert (long in purposes[0]) is (width in (80, 100, None))
    assert all(len(line) <= width for line in lines if width and long not in line)
