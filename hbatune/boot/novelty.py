"""Whether a disk is new: an `add` says nothing, since udev is asked to announce all disks again.

A disk was seen where these rules have been through with it, which udev's database keeps until the
kernel takes the disk away, or where hbatune itself has marked its sequence number (``act.seen``).
The database outlives the switch from an initramfs, where these rules are not: a disk that was
found there is new at its first `add` behind it.
"""

from collections.abc import Iterator
from pathlib import Path

from hbatune.boot.line import Line, Section, env, line, match, set_env
from hbatune.facts.saved import SEEN

KNOWN = ".HBATUNE_KNOWN"
"""Whether the disk has been seen before this event."""
_NUMBER = "DISKSEQ"
"""The disk's sequence number, a property of every event since Linux 5.15 (block/genhd.c)."""


def section(marks: Path) -> Section:
    """Return the lines that tell; ``marks`` is the folder of hbatune's own."""
    known = set_env(KNOWN, "1")
    # No value of a match but TEST's is substituted; without a number it would name the folder.
    marked = match("TEST", f"{marks}/$env{{{_NUMBER}}}")
    lines = (line(env(SEEN, "?*"), known), line(env(_NUMBER, "?*"), marked, known))
    return Section("Whether this very disk was seen before.", lines)


def marking() -> Iterator[Line]:
    """Yield what marks the disk as seen."""
    yield line(set_env(SEEN, f"$env{{{_NUMBER}}}"))
    yield line(env(SEEN, ""), set_env(SEEN, "unnumbered"))
