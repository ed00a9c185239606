"""Locate the rules and templates that come with hbatune, in a checkout and in a wheel."""

from functools import cache
from pathlib import Path

_SHIPPED = Path(__file__).resolve().parent / "_shipped"


@cache
def find_shipped(folder: str) -> Path:
    """Return the shipped ``folder``, named like the top-level directory of a checkout: ``rules``.

    In a checkout it is a link to the top-level directory of that name, in a wheel a copy of it.
    """
    return _SHIPPED / folder
