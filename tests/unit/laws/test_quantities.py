"""Tests of hbatune/laws/quantities.py."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "hbatune"


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
