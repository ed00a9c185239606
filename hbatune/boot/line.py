"""One line of a udev rules file as a value: its matches, and its assignments (udev(7))."""

import re

from msgspec import Struct

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:/@+=-]+", re.ASCII)
_WILD = {"*": "[*]", "?": "[?]", "[": "[[]"}


class RulePart(Struct, frozen=True):
    """One ``KEY{name}op"value"``; ``op`` is ``==`` or ``!=`` for a match, ``=`` for an assignment.

    The value of a match is a glob, or several with ``|`` between them.
    """

    key: str
    op: str
    value: str
    name: str | None = None


class RuleLine(Struct, frozen=True):
    """A rule: its parts, matches first."""

    parts: tuple[RulePart, ...]


class RuleSection(Struct, frozen=True):
    """Lines that belong together, with the comment above them."""

    title: str
    lines: tuple[RuleLine, ...]


def line(*parts: RulePart) -> RuleLine:
    """Return the parts as one rule."""
    return RuleLine(parts)


def match(key: str, value: str, name: str | None = None) -> RulePart:
    """Match a key against globs."""
    return RulePart(key, "==", value, name)


def differs(key: str, value: str, name: str | None = None) -> RulePart:
    """Match if the key does not fit the globs."""
    return RulePart(key, "!=", value, name)


def attr(path: str, value: str) -> RulePart:
    """Match an attribute of the disk; a missing one matches nothing."""
    return match("ATTR", value, path)


def env(name: str, value: str) -> RulePart:
    """Match a property of the event; one that is not set is empty."""
    return match("ENV", value, name)


def set_env(name: str, value: str) -> RulePart:
    """Set a property; one whose name begins with a dot is not kept in udev's database."""
    return RulePart("ENV", "=", value, name)


def write(path: str, value: str) -> RulePart:
    """Write to an attribute of the disk."""
    return RulePart("ATTR", "=", value, path)


def goto(label: str) -> RulePart:
    """Go on at a label further down."""
    return RulePart("GOTO", "=", label)


def label(name: str) -> RuleLine:
    """Return the destination of a ``goto``, a rule of its own."""
    return RuleLine((RulePart("LABEL", "=", name),))


def plain(text: str) -> bool:
    """Whether the text stands for itself alone in a value, after ``literal``."""
    return bool(_PLAIN.fullmatch(text))


def literal(text: str) -> str:
    """Return the glob that fits this text alone. An alternative (``|``) cannot be escaped."""
    return "".join(_WILD.get(char, char) for char in text)


def below(number: int) -> str:
    """Return globs that fit the decimal numbers from 0 to ``number`` - 1, for there is no ``<``.

    Numbers as the kernel prints them, without leading zeros.
    """
    digits = str(number)
    globs = [
        "[0-9]" if length == 1 else "[1-9]" + "[0-9]" * (length - 1)
        for length in range(1, len(digits))
    ]  # fewer digits
    for at, digit in enumerate(digits):
        least = 1 if at == 0 and len(digits) > 1 else 0
        if int(digit) > least:
            globs.append(
                digits[:at] + _digits(least, int(digit) - 1) + "[0-9]" * (len(digits) - at - 1)
            )
    return "|".join(globs)


def _digits(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"
