"""The one exception of this package, with everything a person needs to find the mistake."""

import json
import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from hbatune.errors import UsageError

_LONGEST = 80


class PolicyError(UsageError):
    """A file of rules or configuration that cannot be used.

    ``file``, ``line`` (counted from 1, where known), ``place`` (the table, and a rule's name),
    ``key``, ``found`` and ``allowed`` are what the message was made of.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        place: str | None = None,
        key: str | None = None,
        found: str | None = None,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.file = None if file is None else printable(file)
        self.line = line
        self.place = place
        self.key = key
        self.found = found
        self.allowed = allowed
        parts = [
            self.file,
            None if line is None else f"line {line}",
            place,
            None if key is None else f"key `{key}`",
            problem,
        ]
        super().__init__(": ".join(part for part in parts if part), hint=hint)


def printable(name: Path | str) -> str:
    """Return a file's name as text without bytes that a terminal would obey or choke on."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def quoted(value: object) -> str:
    """Return a value from a file as short ASCII text, strings in double quotes."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int):
        text = str(value) if value.bit_length() < 256 else "a very large integer"
    elif isinstance(value, str):
        text = json.dumps(value[: 2 * _LONGEST])
    elif isinstance(value, list):
        text = "[" + ", ".join(quoted(item) for item in value[:8]) + "]"
    elif isinstance(value, dict):
        text = "a table"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the hint that names the word most like ``word``, if one is like it."""
    close = get_close_matches(word[:_LONGEST], list(known), n=1)
    return f"did you mean {quoted(close[0])}?" if close else None
