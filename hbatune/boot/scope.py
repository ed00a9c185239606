"""The scope of the rules: the events that are tuned, and the disks that are never touched.

An `add` does not say that a disk is new, since udev can be asked to announce all disks again.
A disk counts as seen once these rules have run for it, which udev's database keeps until the
kernel removes the disk, or once hbatune itself has marked its sequence number (``act.seen``).
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
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from hbatune.boot.lines import (
    END,
    RuleLine,
    RulePart,
    RuleSection,
    attr,
    differs,
    env,
    goto,
    label,
    line,
    literal,
    match,
    plain,
    set_env,
    wish,
)
from hbatune.facts.devices import is_link
from hbatune.facts.ids import WORLD_WIDE, canonical, lasting, stable_part
from hbatune.facts.model import Kind
from hbatune.facts.routes import MULTIPATH_UUID
from hbatune.facts.udev import SEEN
from hbatune.policy.config import Site
from hbatune.policy.model import Match, Multipath
from hbatune.settings.table import SETTINGS, Cause

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
