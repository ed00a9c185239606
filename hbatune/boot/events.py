"""Selects the events that are tuned: a disk as it appears, a multipath map as it is activated.

An `add` does not say that a disk is new, since udev can be asked to announce all disks again.
A disk counts as seen once these rules have run for it, which udev's database keeps until the
kernel removes the disk, or once hbatune itself has marked its sequence number (``act.seen``).
The database outlives the switch from an initramfs, which does not have these rules: a disk that
was found there is new at its first `add` after the switch.

A dm-multipath map is tuned as it is activated or gets another table, which is a `change` event.
Its protocol and medium follow from its paths, of which udev knows nothing: only rules whose one
condition is that it is a map are udev's. The visible heads of native NVMe multipath stay with the
daemon.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from hbatune.boot import tuning
from hbatune.boot.classes import END
from hbatune.boot.line import (
    RuleLine,
    RuleSection,
    attr,
    differs,
    env,
    goto,
    label,
    line,
    match,
    set_env,
)
from hbatune.facts.devices import SEEN
from hbatune.facts.model import Kind
from hbatune.facts.routes import MULTIPATH_UUID
from hbatune.policy.model import Match, Multipath
from hbatune.settings.table import SETTINGS, Cause

KNOWN = ".HBATUNE_KNOWN"
"""Whether the disk has been seen before this event."""
_NUMBER = "DISKSEQ"
"""The disk's sequence number, a property of every event since Linux 5.15 (block/genhd.c)."""


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
    unwished = [set_env(tuning.wish(each), "") for each in kept]
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
