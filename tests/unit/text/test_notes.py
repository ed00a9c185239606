"""Tests of hbatune/text/notes.py."""

from pathlib import Path
from typing import get_args

import pytest

from hbatune.act.journal import Journal
from hbatune.act.rollback_record import RollbackRecords
from hbatune.act.system import ToolResult
from hbatune.errors import HbatuneError
from hbatune.facts.services import HIDDEN_PROCESSES, Irqbalance
from hbatune.operations import context
from hbatune.operations.context import Event, EventNote, Message, Note, Task, TaskFailed
from hbatune.operations.situation import Traces
from hbatune.plan.rows import Outcome, Restored
from hbatune.shipped import load_texts
from hbatune.text.notes import format_note, show_note, show_restored
from tests.unit.machines import machine

FILE = Path("/etc/file")


RAN = ToolResult(("udevadm", "control"), 1, "no")


ERROR = HbatuneError("it broke", hint="mend it")


SENTENCES: list[Message] = [
    *(TaskFailed(task, ERROR) for task in Task),
    *(EventNote(event, FILE, 13) for event in Event if event is not Event.FILE_REMOVED),
    context.CommandFailed(RAN),
    context.CommandFailed(RAN, reloading=True),
    context.FollowsElsewhere(Irqbalance(812, None), FILE),
    context.FollowsElsewhere(HIDDEN_PROCESSES, FILE),
    context.HistoryFull(3),
    context.InitramfsStale(("mpt3sas",), None),
    context.RunsAhead(9, 90.0, write=True),
    context.RunsAhead(9, 90.0, file_size=1 << 30),
    context.RunsAhead(9, 90.0, file_size=1 << 30, cached=True),
    context.ComparisonsAhead(2, 100.0, 600),
    context.SearchesAhead(2, 90.0, 600.0),
    context.SearchLonger("sda", 30.0),
]


SHOWN: list[Note] = [
    Traces(Journal("boot"), RollbackRecords(), machine(), ()),
    context.RollbackResult((), machine(), finished=True),
    EventNote(Event.FILE_REMOVED, FILE),
]


def test_every_note_has_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert {type(note) for note in (*SENTENCES, *SHOWN)} == set(get_args(Note))
    for sentence_note in SENTENCES:
        assert format_note(sentence_note)
        show_note(sentence_note)
        assert capsys.readouterr().err == f"hbatune: {format_note(sentence_note)}\n"
    for note in SHOWN:
        show_note(note)
    assert capsys.readouterr().out.endswith(f"{FILE} was removed.\n")


def test_each_text_has_its_note() -> None:
    texts = load_texts("notes.toml")
    assert set(texts["Event"]) == {event.name for event in Event}
    assert set(texts["Task"]) <= {task.name for task in Task}


def test_notes_use_singular_for_one() -> None:
    assert format_note(context.RunsAhead(1, 2.0, False)).startswith("1 run, which takes about 2 s")
    assert format_note(context.RunsAhead(2, 4.0, False)).startswith("2 runs, which take about 4 s")
    assert "comparing 1 endpoint with" in format_note(context.ComparisonsAhead(1, 5.0, 60))
    assert "its 1 oldest result was" in format_note(context.HistoryFull(1))


@pytest.mark.parametrize(
    ("values", "summary"),
    [
        (1, "1 value restored."),
        (3, "All 3 values restored."),
    ],
)
def test_rollback_summary_uses_singular(
    values: int, summary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Restored("sda", "sda", None, "nr_requests", 64, 256, Outcome.WRITTEN, found=256)
    show_restored([row] * values, machine())
    assert capsys.readouterr().out.splitlines()[-1] == summary


@pytest.mark.parametrize(
    ("limit", "advice"),
    [("fewer tags", "set its former scheduler and roll back again"), (None, "")],
)
def test_refused_requests_have_fitting_advice(
    limit: str | None, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Outcome.REFUSED
    row = Restored("sda", "sda", None, "nr_requests", 64, 256, refused, errno=22, limit=limit)
    show_restored([row], machine())
    output = capsys.readouterr().out
    assert "Invalid argument" in output
    assert ("scheduler" in output) is bool(advice)
    assert advice in output
