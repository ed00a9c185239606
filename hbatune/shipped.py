"""Locate and read the files that come with hbatune, in a checkout and in a wheel."""

from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any  # slow to import

_SHIPPED = Path(__file__).resolve().parent / "_shipped"


@cache
def find_shipped(folder: str) -> Path:
    """Return a shipped folder: in a checkout a link to the top-level one, in a wheel a copy."""
    return _SHIPPED / folder


@cache
def load_texts(file: str) -> "dict[str, Any]":
    """Return the texts for people in a TOML ``file`` of the shipped templates."""
    import tomllib  # most commands need none of these texts

    return tomllib.loads((find_shipped("templates") / file).read_text(encoding="utf-8"))


def find_message(member: Enum) -> str:
    """Return the text of an enumeration's member, from the table of its class."""
    return str(load_texts("messages.toml")[type(member).__name__][member.name])


def fill_message(table: str, name: str, **facts: object) -> str:
    """Return the text of this ``name`` in a table of messages.toml, filled with the facts."""
    message: str = load_texts("messages.toml")[table][name]
    return message.format(**facts)
