"""Every command of hbatune that a message, a template or a dashboard names is one."""

import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest

from hbatune.cli import COMMANDS
from hbatune.cli.parser import make_full_parser
from hbatune.errors import UsageError

CHECKOUT = Path(__file__).resolve().parents[3]
PATTERNS = (
    *("hbatune/**/*.py", "templates/*", "rules/**/*.toml", "systemd/*", "udev/*", "cockpit/*.*"),
    *("ansible/**/*.yml", "ansible/**/*.py", "metrics/*"),
)
PLACEHOLDER = re.compile(r"\{\{?[^{}]*\}?\}|(?<![\w-])[A-Z]{2,}(?:\.\.\.)?(?!\w)")
"""A field of a message, a template or a word in capitals."""
VALUES = ("sda", "oltp", "1", "list")
"""A target or file, a profile, a number and a command: values for a placeholder."""
NO_COMMANDS = {
    "autotune --write",  # the writer of a file, which names no target
    "has failed with exit code ${answer.code}",
    '${words.join(" ")}',
}


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a file; of Python the literals, with {} for each value in them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield re.sub(r"\\?\n\s*(?:#|//|\*)?\s*", " ", text)
        return
    pieces = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            pieces.update(map(id, node.values))
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in pieces:
            yield " ".join(str(node.value).split())


def list_commands() -> Iterator[tuple[str, str]]:
    """Yield each file with each command in backticks, without ``sudo hbatune``."""
    for pattern in PATTERNS:
        paths = [path for path in CHECKOUT.glob(pattern) if path.is_file()]
        assert paths, pattern
        for path in sorted(paths):
            for text in texts_of(path):
                for command in re.findall(r"`(?:sudo )?hbatune ([^`]+)`", text):
                    yield str(path.relative_to(CHECKOUT)), command


COMMANDS_BY_FILE = sorted(set(list_commands()))
PARSER = make_full_parser()


def parses(words: list[str]) -> bool:
    if len(words) == 1:  # the command as such
        return words[0] in (*COMMANDS, "--version", "--help")
    try:
        with redirect_stderr(StringIO()):
            PARSER.parse_args(words)
    except UsageError:
        return False
    return True


@pytest.mark.parametrize(("file", "command"), COMMANDS_BY_FILE)
def test_printed_command_parses(file: str, command: str) -> None:
    if command in NO_COMMANDS:
        return
    filled = (PLACEHOLDER.sub(value, command) for value in VALUES)
    assert any(parses(shlex.split(text)) for text in filled), f"{file}: hbatune {command}"


def test_unknown_commands_are_noticed() -> None:
    assert len(COMMANDS_BY_FILE) > 100
    for command in ("prob sda", "probe depth-sweep sda --nosuch", "diff --profile", "nosuch"):
        assert not parses(command.split())
