"""Globs, such as those of vendors and models: case counts, and few of them cost anything."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

_SPECIAL = frozenset("*?[")


def fits(text: str, globs: Iterable[str]) -> bool:
    """Whether one of the globs fits the text."""
    return any(_fits(text, glob) for glob in globs)


def _fits(text: str, glob: str) -> bool:
    """Whether a glob fits; nearly all are a word or its beginning, and not worth a pattern."""
    if not _SPECIAL.isdisjoint(glob[:-1]):
        return fnmatchcase(text, glob)
    match glob[-1:]:
        case "*":
            return text.startswith(glob[:-1])
        case "?" | "[":
            return fnmatchcase(text, glob)
    return text == glob
