"""The lines of a udev rules file (udev(7)), as values, and those that write to a disk, in order.

A line has matches and assignments. A disk's current values are saved before any of them is written.
udev reads an attribute once in an event and remembers it, so that a value which an earlier line
has changed still looks as it was: settings that such a write resets are written in any case.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from hbatune.facts.model import TargetKind
from hbatune.facts.udev import SEEN
from hbatune.settings.setting import UdevWriter
from hbatune.settings.table import (
    ASYNC_DEPTH,
    SCHEDULER_TUNABLES,
    SETTINGS,
    disturbed,
    kind_of,
    property_of,
    setting,
)

END = "hbatune_end"
"""The label at the end of the file: a line that goes there leaves the device alone."""

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:/@+=-]+", re.ASCII)
_WILD = {"*": "[*]", "?": "[?]", "[": "[[]"}

LEFT = ".HBATUNE_SCHEDULER_LEFT"
"""Whether the daemon may want another scheduler than udev knows of."""
QUEUED = ".HBATUNE_QUEUED"
"""Whether the disk has a scheduler other than none; only then is nr_requests written."""
_ANY = ".HBATUNE_ANY"
_RESET = ".HBATUNE_RESET_"

Values = Mapping[str, Collection[str]]
"""By setting, the texts that some rule may want."""


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


def wish(name: str) -> str:
    """Return the property that holds the value that the rules want for a setting."""
    return f".HBATUNE_{name.upper()}"


def saved(values: Collection[str]) -> tuple[str, ...]:
    """Return the settings whose old values are saved: all that a write may change.

    Of a scheduler's tunables only async_depth is saved: it is the only one that may change while
    the scheduler stays, and a switch of the scheduler replaces all of them.
    """
    names = disturbed(values)  # not only the written ones: a scheduler switch resets others
    return tuple(ASYNC_DEPTH if name == SCHEDULER_TUNABLES else name for name in names)


def remembering() -> RuleSection:
    """Return the lines that keep mark and old values in udev's database.

    Without them any event would drop them. They cover all settings, since the profile before this
    one may have saved others.
    """
    disks = (name for name in SETTINGS if kind_of(name) is TargetKind.ENDPOINT)
    names = (SEEN, *map(property_of, (*disks, ASYNC_DEPTH)))
    lines = (line(RulePart("IMPORT", "==", name, "db")) for name in names)
    title = "That it was seen and what was there before, through every later event."
    return RuleSection(title, tuple(lines))


def write_sections(values: Values) -> Iterator[RuleSection]:
    """Yield the lines that save and write, in the order of the settings."""
    yield RuleSection("Nothing to set: nothing to save.", tuple(_any(values)))
    yield RuleSection("What is there now, before the first write.", tuple(_saving(values)))
    # udev carries out assignments in the order of the text (nr_requests before the scheduler would
    # be reset by it).
    ordered = sorted(values, key=lambda name: SETTINGS[name].order)
    yield RuleSection(
        "In order: one write undoes what another one resets.",
        tuple(each for name in ordered for each in _writes(name, sorted(values[name]), ordered)),
    )


def _any(values: Values) -> Iterator[RuleLine]:
    for name in values:
        yield line(env(wish(name), "?*"), set_env(_ANY, "1"))
    yield line(differs("ENV", "1", _ANY), goto(END))


def _saving(values: Values) -> Iterator[RuleLine]:
    """Yield the lines that save a value, before a wanted setting changes it.

    Only where nothing is saved yet: the first baseline is the baseline.
    """
    for name in saved(values):
        kept, path = property_of(name), setting(name).path
        unsaved = (attr(path, "?*"), env(kept, ""))
        for cause in values:
            if name in saved((cause,)):
                yield line(env(wish(cause), "?*"), *unsaved, set_env(kept, f"$attr{{{path}}}"))


def _writes(name: str, texts: Sequence[str], planned: Sequence[str]) -> Iterator[RuleLine]:
    for text in texts:
        match SETTINGS[name].udev:
            case UdevWriter.BRACKETED:
                yield from _scheduler(name, text, planned)
            case UdevWriter.LOWER:
                yield line(env(wish(name), text), _attr(name, below(int(text))), _set(name, text))
            case UdevWriter.SCHEDULED:
                yield from _different(name, text, planned, env(QUEUED, "1"))
            case UdevWriter.DIFFERENT:
                yield from _different(name, text, planned)
    if SETTINGS[name].udev is UdevWriter.BRACKETED:
        yield from _scheduler_in_use(name)


def _scheduler(name: str, text: str, planned: Sequence[str]) -> Iterator[RuleLine]:
    wanted, path = env(wish(name), text), SETTINGS[name].path
    if text != "none":
        # If it is not offered yet, the write loads its module; a rule cannot see whether it did.
        yield line(wanted, attr(path, f"*{text}*"), set_env(QUEUED, "1"))
    another = (attr(path, f"*{literal('[')}*"), differs("ATTR", _active(text), path))
    yield line(wanted, *another, _set(name, text), *_resets(name, planned))


def _scheduler_in_use(name: str) -> Iterator[RuleLine]:
    """Yield the line that sees whether a disk has a scheduler that no rule changes."""
    path = SETTINGS[name].path
    active = (attr(path, f"*{literal('[')}*"), differs("ATTR", _active("none"), path))
    settled = (env(wish(name), ""), differs("ENV", "1", LEFT))
    yield line(*settled, *active, set_env(QUEUED, "1"))


def _different(
    name: str, text: str, planned: Sequence[str], *needs: RulePart
) -> Iterator[RuleLine]:
    wanted, there = env(wish(name), text), _attr(name, "?*")
    resets = _resets(name, planned)
    path, most = SETTINGS[name].path, SETTINGS[name].most_in
    if most:
        needs = (*needs, differs("ATTR", below(int(text)), most))
    yield line(*needs, wanted, there, differs("ATTR", text, path), _set(name, text), *resets)
    # udev remembers the old text: a value that an earlier write has reset looks right, and the
    # line above passes over it.
    if any(name in SETTINGS[other].resets for other in planned):
        again = (_attr(name, text), env(f"{_RESET}{name.upper()}", "1"))
        yield line(*needs, wanted, *again, _set(name, text))


def _resets(name: str, planned: Sequence[str]) -> tuple[RulePart, ...]:
    found = (each for each in SETTINGS[name].resets if each in planned)
    return tuple(set_env(f"{_RESET}{each.upper()}", "1") for each in found)


def _active(scheduler: str) -> str:
    return f"*{literal('[')}{scheduler}]*"


def _attr(name: str, globs: str) -> RulePart:
    return match("ATTR", globs, SETTINGS[name].path)


def _set(name: str, text: str) -> RulePart:
    return write(SETTINGS[name].path, text)
