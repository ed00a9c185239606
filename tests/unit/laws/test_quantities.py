"""Tests of hbatune/laws/quantities.py."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "hbatune"
VERBS = {"are", "are outliers", "drift", "have"}
"""Words that follow a count of hosts, and names in other sentences."""


def texts() -> Iterator[tuple[Path, ast.JoinedStr]]:
    for folder in ("cli", "text", "report"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield path, node


def nouns() -> set[str]:
    """Return the plural of each noun that format_count is called with."""
    plurals = set()
    for folder in ("cli", "text", "report"):
        for path in (PACKAGE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(func=ast.Name("format_count"), args=[_, *arguments]) if all(
                        isinstance(argument, ast.Constant) for argument in arguments
                    ):
                        [*_, last] = [ast.literal_eval(argument) for argument in arguments]
                        plurals.add(last if len(arguments) == 2 else f"{last}s")
    return plurals


def test_counted_nouns_use_quantity() -> None:
    plurals = nouns() - VERBS
    assert {"adapters", "values", "passes", "endpoints"} <= plurals
    counted = re.compile(rf"^ ({'|'.join(sorted(plurals))})\b")
    for path, text in texts():
        for before, after in zip(text.values, text.values[1:], strict=False):
            match before, after:
                case ast.FormattedValue(format_spec=None), ast.Constant(value=str(words)):
                    assert not counted.match(words), f"{path.name}: {ast.unparse(text)}"
