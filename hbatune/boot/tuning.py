"""The lines that write to a disk, in order, after its current values have been saved.

udev reads an attribute once in an event and remembers it, so that a value which an earlier line
has changed still looks as it was: settings that such a write resets are written in any case.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from hbatune.boot.classes import END
from hbatune.boot.line import (
    RuleLine,
    RulePart,
    RuleSection,
    attr,
    below,
    differs,
    env,
    goto,
    line,
    literal,
    match,
    set_env,
    write,
)
from hbatune.facts.devices import SEEN
from hbatune.facts.model import TargetKind
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

LEFT = ".HBATUNE_SCHEDULER_LEFT"
"""Whether the daemon may want another scheduler than udev knows of."""
QUEUED = ".HBATUNE_QUEUED"
"""Whether the disk has a scheduler other than none; only then is nr_requests written."""
_ANY = ".HBATUNE_ANY"
_RESET = ".HBATUNE_RESET_"

Values = Mapping[str, Collection[str]]
"""By setting, the texts that some rule may want."""


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


def sections(values: Values) -> Iterator[RuleSection]:
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
    path = SETTINGS[name].path
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
