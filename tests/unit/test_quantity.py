"""One thing is not "1 things", wherever hbatune counts for people."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbatune.operations import context
from hbatune.plan.rows import Outcome, Restored
from hbatune.text.basic_output import format_count
from hbatune.text.notes import format_note, show_restored
from tests.unit.factory import machine

PACKAGE = Path(__file__).resolve().parents[2] / "hbatune"


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (1, ("adapter",), "1 adapter"),
        (0, ("adapter",), "0 adapters"),
        (2, ("hardware queue",), "2 hardware queues"),
        (2, ("pass", "passes"), "2 passes"),
        (1, ("pass", "passes"), "1 pass"),
    ],
)
def test_quantity_agrees_with_number(number: int, words: tuple[str, ...], said: str) -> None:
    assert format_count(number, *words) == said


def test_notes_use_singular_for_one() -> None:
    assert format_note(context.RunsAhead(1, 2.0, False)).startswith("1 run, which takes about 2 s")
    assert format_note(context.RunsAhead(2, 4.0, False)).startswith("2 runs, which take about 4 s")
    assert "comparing 1 endpoint with" in format_note(context.ComparisonsAhead(1, 8, 5.0, 60))
    assert "its 1 oldest result was" in format_note(context.HistoryFull(1))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (1, "1 value is as it was before the first apply."),
        (3, "All 3 values are as they were before the first apply."),
    ],
)
def test_rollback_summary_uses_singular(
    values: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Restored("sda", "sda", None, "nr_requests", 64, 256, Outcome.WRITTEN, found=256)
    show_restored([row] * values, machine())
    assert capsys.readouterr().out.splitlines()[-1] == said


def texts() -> Iterator[tuple[Path, ast.JoinedStr]]:
    for folder in ("cli", "text", "report"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield path, node


def nouns() -> set[str]:
    """Return the plural of each noun that anything is counted in."""
    found = set()
    for folder in ("cli", "text", "report"):
        for path in (PACKAGE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(func=ast.Name("format_count"), args=[_, *words]) if all(
                        isinstance(word, ast.Constant) for word in words
                    ):
                        [*_, last] = [ast.literal_eval(word) for word in words]
                        found.add(last if len(words) == 2 else f"{last}s")
    return found


def test_counted_nouns_use_quantity() -> None:
    known = nouns()
    assert {"adapters", "values", "passes", "endpoints"} <= known
    counted = re.compile(rf"^ ({'|'.join(sorted(known))})\b")
    for path, text in texts():
        for before, after in zip(text.values, text.values[1:], strict=False):
            match before, after:
                case ast.FormattedValue(format_spec=None), ast.Constant(value=str(words)):
                    assert not counted.match(words), f"{path.name}: {ast.unparse(text)}"
