"""One line of a udev rules file as a value: what has to match, and what is then done (udev(7))."""

import re

from msgspec import Struct

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:/@+=-]+", re.ASCII)
_WILD = {"*": "[*]", "?": "[?]", "[": "[[]"}


class Part(Struct, frozen=True):
    """One ``KEY{name}op"value"``; ``op`` is ``==`` or ``!=`` for a match, ``=`` for an assignment.

    The value of a match is a glob, or several with ``|`` between them.
    """

    key: str
    op: str
    value: str
    name: str | None = None


class Line(Struct, frozen=True):
    """A rule: its parts, matches first."""

    parts: tuple[Part, ...]


class Section(Struct, frozen=True):
    """Lines that belong together, with what is said above them."""

    title: str
    lines: tuple[Line, ...]


def line(*parts: Part) -> Line:
    """Return the parts as one rule."""
    return Line(parts)


def match(key: str, value: str, name: str | None = None) -> Part:
    """Match a key against globs."""
    return Part(key, "==", value, name)


def differs(key: str, value: str, name: str | None = None) -> Part:
    """Match where the key does not fit the globs."""
    return Part(key, "!=", value, name)


def attr(path: str, value: str) -> Part:
    """Match an attribute of the disk; one that is not there matches nothing."""
    return match("ATTR", value, path)


def env(name: str, value: str) -> Part:
    """Match a property of the event; one that is not set is empty."""
    return match("ENV", value, name)


def set_env(name: str, value: str) -> Part:
    """Set a property; one whose name begins with a dot is not kept in udev's database."""
    return Part("ENV", "=", value, name)


def write(path: str, value: str) -> Part:
    """Write to an attribute of the disk."""
    return Part("ATTR", "=", value, path)


def goto(label: str) -> Part:
    """Go on at a label further down."""
    return Part("GOTO", "=", label)


def label(name: str) -> Line:
    """Where a ``goto`` leads to."""
    return Line((Part("LABEL", "=", name),))


def plain(text: str) -> bool:
    """Whether the text means nothing but itself in a value, once ``literal`` has been at it."""
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
