"""Where the rules and templates that come with hbatune lie, in a checkout and in a wheel."""

from functools import cache
from pathlib import Path

_SHIPPED = Path(__file__).resolve().parent / "_shipped"


@cache
def shipped(folder: str) -> Path:
    """Return the shipped ``folder``, which is called as at the top of a checkout: ``rules``.

    In a checkout it is a link to the top-level folder of that name, in a wheel a copy of it.
    """
    return _SHIPPED / folder
