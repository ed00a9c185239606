"""The lines of a udev rules file, and the events and disks to which they apply.

The lines of a udev rules file (udev(7)), as values, and those that write to a disk, in order.

A line has matches and assignments. A disk's current values are saved before any of them is written.
udev reads an attribute once in an event and remembers it, so that a value which an earlier line
has changed still looks as it was: settings that such a write resets are written in any case.

The scope of the rules: the events that are tuned, and the disks that are never touched.

An `add` does not say that a disk is new, since udev can be asked to announce all disks again.
A disk counts as seen once these rules have run for it, which udev's database keeps until the
kernel removes the disk, or once hbatune itself has marked its sequence number (``act.marks``).
The database outlives the switch from an initramfs, which does not have these rules: a disk that
was found there is new at its first `add` after the switch.

A dm-multipath map is tuned as it is activated or gets another table, which is a `change` event.
Its protocol and medium follow from its paths, of which udev knows nothing: only rules whose one
condition is that it is a map are udev's. The visible heads of native NVMe multipath stay with the
daemon.

All but plain disks are left alone, and so are those excluded by any name. Where udev cannot express
a name exactly, the rules leave more disks alone than was meant; the daemon tunes the rest.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.devices import is_link
from hbatune.facts.ids import WORLD_WIDE, canonical, lasting, stable_part
from hbatune.facts.model import Kind, TargetKind
from hbatune.facts.routes import MULTIPATH_UUID
from hbatune.facts.udev import SEEN
from hbatune.policy.config import Site
from hbatune.policy.profile import Match, Multipath
from hbatune.settings.setting import UdevWriter
from hbatune.settings.table import (
    ASYNC_DEPTH,
    SCHEDULER_TUNABLES,
    SETTINGS,
    Cause,
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
    found = (reset for reset in SETTINGS[name].resets if reset in planned)
    return tuple(set_env(f"{_RESET}{each.upper()}", "1") for each in found)


def _active(scheduler: str) -> str:
    return f"*{literal('[')}{scheduler}]*"


def _attr(name: str, globs: str) -> RulePart:
    return match("ATTR", globs, SETTINGS[name].path)


def _set(name: str, text: str) -> RulePart:
    return write(SETTINGS[name].path, text)


KNOWN = ".HBATUNE_KNOWN"
"""Whether the disk has been seen before this event."""
_NUMBER = "DISKSEQ"
"""The disk's sequence number, a property of every event since Linux 5.15 (block/genhd.c)."""

_WWIDS = ("device/wwid", "wwid")  # of a SCSI disk, of an NVMe namespace
_WWID = ".HBATUNE_WWID"
# Not a device by that name, or one whose name changes from boot to boot.
_NO_DEVICE = re.compile(r"iscsi|nvme-.*|.*-usb-.*|(nvme|virtio|host|irq)\d+|")
_KERNELS_OWN = re.compile(
    r"[sv]d[a-z]+|nvme\d+(c\d+)?(n\d+)?|(host|virtio|dm-|irq)\d+"
    r"|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
)
_ODD = "*[!] -[^-~]*"
"""Fits a text with a backslash, or with anything that is not printable ASCII."""


def seen_section(marks: Path) -> RuleSection:
    """Return the lines that check whether a disk was seen; ``marks`` is hbatune's own folder."""
    known = set_env(KNOWN, "1")
    # No value of a match but TEST's is substituted; without a number it would name the folder.
    marked = match("TEST", f"{marks}/$env{{{_NUMBER}}}")
    lines = (line(env(SEEN, "?*"), known), line(env(_NUMBER, "?*"), marked, known))
    return RuleSection("Whether this very disk was seen before.", lines)


def mark_seen() -> Iterator[RuleLine]:
    """Yield the lines that mark the disk as seen, by its number, or without one on old kernels."""
    yield line(set_env(SEEN, f"$env{{{_NUMBER}}}"))
    yield line(env(SEEN, ""), set_env(SEEN, "unnumbered"))


MAPS, TUNE = "hbatune_maps", "hbatune_tune"
NAMES = "dm-*"
"""The kernel's names of maps."""
PATH_EVENT = env("DM_ACTION", "PATH_*")
"""Matches an event about one path (drivers/md/dm-uevent.c), which loads no table."""


def is_for_maps(when: Match) -> bool | None:
    """Whether a rule is for every map or for none of them, None if udev cannot see that."""
    if when.kind and Kind.MAP not in when.kind:
        return False
    if when.multipath and Multipath.DM not in when.multipath:
        return False
    return True if replace(when, kind=(), multipath=()) == Match() else None


def is_only_for_maps(when: Match) -> bool:
    """Whether a rule is for dm-multipath maps alone, neither for paths nor for heads of NVMe."""
    return when.kind == (Kind.MAP,) and when.multipath == (Multipath.DM,)


def activated_map() -> RuleLine:
    """Return the line that sends a map whose table has just come into use to its own lines.

    device-mapper's own rules set DM_ACTIVATION: a plain `change` has none, but the `add` of a map
    that the initramfs has activated does (dmsetup's 55-dm.rules).
    """
    event = (
        match("ACTION", "add|change"),
        env("DM_ACTIVATION", "1"),
        env("DM_UUID", f"{MULTIPATH_UUID}*"),
    )
    return line(match("KERNEL", NAMES), *event, goto(MAPS))


def maps_section(wishes: Iterable[RuleLine], settings: Collection[str]) -> RuleSection:
    """Return the lines of maps, which disks skip; both continue after them.

    For a map that is known only those of the ``settings`` are wished for that a new table resets.
    """
    zoned = line(attr("queue/zoned", "?*"), differs("ATTR", "none", "queue/zoned"), goto(END))
    known = env(KNOWN, "1")
    # A coldplug, and a path that failed or came back: neither loads a table.
    same = (line(known, match("ACTION", "add"), goto(END)), line(known, PATH_EVENT, goto(END)))
    kept = (each for each in settings if Cause.LOADED not in SETTINGS[each].reset_by)
    unwished = [set_env(wish(each), "") for each in kept]
    lines = (
        line(goto(TUNE)),
        label(MAPS),
        *same,
        *mark_seen(),
        zoned,
        *wishes,
        *([line(known, *unwished)] if unwished else []),
        label(TUNE),
    )
    return RuleSection("Maps, as they are activated.", lines)


def hands_off(
    site: Site, excluded: Collection[str], reverted: Collection[str], *, asks_for_names: bool
) -> Iterator[RuleSection]:
    """Yield the lines that leave disks alone, those with the ``excluded`` ids among them.

    ``reverted`` are ids that later lines ask for (``disks_of``).
    ``asks_for_names`` is whether any rule depends on a drive's vendor or model.
    """
    yield RuleSection(
        "Hands off: maps and their paths, what is zoned, what has no medium.",
        (
            line(match("DEVPATH", "/devices/virtual/*"), goto(END)),
            line(env("DM_MULTIPATH_DEVICE_PATH", "1"), goto(END)),
            line(attr("queue/zoned", "?*"), differs("ATTR", "none", "queue/zoned"), goto(END)),
            line(attr("removable", "1"), attr("size", "0"), goto(END)),
        ),
    )
    if asks_for_names:
        yield RuleSection(
            "Hands off: a name that is not all plain, which globs would read otherwise.",
            (
                *(
                    line(attr(path, glob), goto(END))
                    for path in ("device/vendor", "device/model")
                    for glob in (_ODD, " *")
                ),
            ),
        )
    yield RuleSection(
        "Which disks have a world-wide name.", tuple(_marks(site, excluded, reverted))
    )
    yield RuleSection("Excluded in [site], or rolled back.", tuple(_excluding(site, excluded)))


def disks_of(id: str) -> Iterator[tuple[RulePart, ...]]:
    """Yield matches for at least the disk with this id, in any boot: by its name and adapter.

    udev cannot see a name that is not world-wide: then every disk of that adapter without a
    world-wide name is matched. ``hands_off`` marks those.
    """
    name, behind = stable_part(lasting(id)), _behind(id)
    if name.startswith(WORLD_WIDE):
        for path in _WWIDS:
            yield attr(path, _loosely(name)), *behind
    else:
        yield differs("ENV", "1", _WWID), *behind


def _behind(id: str) -> tuple[RulePart, ...]:
    """Return a match for the adapter in an id, nothing if udev knows no device by its name."""
    adapter = id.rpartition("@")[2].partition("/")[0]
    nowhere = "@" not in id or _NO_DEVICE.fullmatch(adapter)
    return () if nowhere else (match("KERNELS", _in_any_case(adapter)),)


def _marks(site: Site, excluded: Iterable[str], reverted: Iterable[str]) -> Iterator[RuleLine]:
    """Yield the lines that mark disks with a world-wide name, if any other line depends on it."""
    ids = (*excluded, *reverted)
    parts = chain.from_iterable((*map(_disks_named, site.exclude), *map(disks_of, ids)))
    if any(part.name == _WWID for each in parts for part in each):
        for path in _WWIDS:
            yield line(attr(path, "?*"), set_env(_WWID, "1"))


def _excluding(site: Site, excluded: Collection[str]) -> Iterator[RuleLine]:
    """Yield lines that leave at least these disks alone."""
    found = (*map(_disks_named, site.exclude), *map(disks_of, excluded))
    for parts in dict.fromkeys(chain.from_iterable(found)):
        yield line(*parts, goto(END))


def _disks_named(name: str) -> Iterator[tuple[RulePart, ...]]:
    """Yield matches for at least the disks that a name in [site] means."""
    stable, behind = stable_part(name), _behind(name)
    digits = canonical(stable)
    file = stable.removeprefix("/dev/")
    kernel = file.replace("/", "!")  # as in sysfs
    own = not behind and _KERNELS_OWN.fullmatch(kernel) is not None
    if not own and not digits.startswith("/"):
        # The attribute begins with the kind of name (naa., eui., t10.), which people leave out.
        before = "" if digits.startswith(WORLD_WIDE) else "*."
        for path in _WWIDS:
            yield attr(path, before + _in_any_case(digits)), *behind
        if stable.lower().startswith(WORLD_WIDE):
            return
    if "@" not in name:
        yield (match("KERNELS", _loosely(kernel)),)
    if is_link(stable):  # udev's own rules have said by now which links the disk gets
        yield (match("SYMLINK", _loosely(file)),)
    elif not own:
        # Made of vendor, model and serial number, which udev cannot see.
        yield differs("ENV", "1", _WWID), *behind


def _in_any_case(text: str) -> str:
    """Return a glob that fits the text at least, in upper or lower case."""
    return "".join(
        f"[{char.lower()}{char.upper()}]" if char.isascii() and char.isalpha() else _loosely(char)
        for char in text
    )


def _loosely(text: str) -> str:
    """Return a glob that fits the text at least; blanks, escaped ones too, have become ``_``."""
    return "".join(literal(char) if plain(char) and char != "_" else "*" for char in text)
