"""Locate the rules and templates that come with hbatune, and read the texts among them."""

from functools import cache
from pathlib import Path
from typing import Any

_SHIPPED = Path(__file__).resolve().parent / "_shipped"


@cache
def find_shipped(folder: str) -> Path:
    """Return the shipped ``folder``, named like the top-level directory of a checkout: ``rules``.

    In a checkout it is a link to the top-level directory of that name, in a wheel a copy of it.
    """
    return _SHIPPED / folder


@cache
def load_texts(name: str) -> dict[str, Any]:
    """Return the texts of ``templates/NAME.toml`` by topic and key."""
    import tomllib  # `status` prints none of them

    return tomllib.loads((find_shipped("templates") / f"{name}.toml").read_text(encoding="utf-8"))
