"""Translates the conditions of rules for udev: exactly, or as far as udev can see.

Each condition becomes two lists of alternatives: parts that match if it holds for ``sure``, and
parts that match wherever it is ``possible``. Where the two differ udev cannot decide, and the
rule's setting is left to the daemon.
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from hbatune.boot.line import RulePart, attr, env, literal, plain
from hbatune.facts.families import families
from hbatune.facts.model import Kind
from hbatune.policy.model import LinkMatch, Match, Multipath

FAMILY, PROTOCOL, MEDIUM = ".HBATUNE_FAMILY", ".HBATUNE_PROTOCOL", ".HBATUNE_MEDIUM"
TRI_MODE, GEN, WIDTH = ".HBATUNE_TRI_MODE", ".HBATUNE_GEN", ".HBATUNE_WIDTH"
UNKNOWN = "unknown"

SCSI, NVME, OTHER = "sd*", "nvme*", "vd*"
"""The kernel's names of SCSI disks, NVMe namespaces and disks of virtio."""

# Which of them have the strings that rules may ask for (facts/endpoints.py reads no others).
_VENDOR = (SCSI,)
_MODEL = (SCSI, NVME)

Parts = tuple[RulePart, ...]


class UdevCondition(NamedTuple):
    """The alternatives in which a rule's ``when`` holds for sure, and may hold at all."""

    sure: tuple[Parts, ...]
    possible: tuple[Parts, ...]

    @property
    def exact(self) -> bool:
        """Whether udev can decide in every case."""
        return self.sure == self.possible


_ALWAYS = UdevCondition(((),), ((),))
_NEVER = UdevCondition((), ())


def condition(when: Match) -> UdevCondition:
    """Return a rule's ``when`` for a disk that is no path of a map: udev tunes only such disks."""
    if when.kind and Kind.DISK not in when.kind:
        return _NEVER
    if when.multipath and Multipath.NONE not in when.multipath:
        return _NEVER
    return _all(_conditions(when))


def asks_for_names(when: Match) -> bool:
    """Whether it depends on the drive's vendor or model."""
    return bool(when.vendor or when.model)


def _conditions(when: Match) -> Iterator[UdevCondition]:
    if when.family:
        yield _family(when.family)
    if when.protocol:
        yield _exactly(PROTOCOL, when.protocol)
    if when.medium:
        yield _exactly(MEDIUM, when.medium)
    if when.tri_mode is not None:
        yield _exactly(TRI_MODE, ("1" if when.tri_mode else "0",))
    yield from _link(when.link)
    if when.vendor:
        yield _named("device/vendor", when.vendor, _VENDOR)
    if when.model:
        yield _named("device/model", when.model, _MODEL)


def _all(conditions: Iterable[UdevCondition]) -> UdevCondition:
    """Return the condition in which all of them hold."""
    found = list(conditions)
    sure = _products([each.sure for each in found])
    return UdevCondition(sure, _products([each.possible for each in found]))


def _products(alternatives: Iterable[tuple[Parts, ...]]) -> tuple[Parts, ...]:
    """Return every combination of alternatives, except those with two names for one disk."""
    combined = (tuple(dict.fromkeys(sum(each, ()))) for each in product(*alternatives))
    return tuple(parts for parts in combined if sum(part.key == "KERNEL" for part in parts) < 2)


def _exactly(name: str, words: Iterable[str]) -> UdevCondition:
    parts = ((env(name, "|".join(words)),),)
    return UdevCondition(parts, parts)


def _perhaps_unknown(name: str, words: tuple[str, ...]) -> UdevCondition:
    """Return the condition on a property that may be unknown.

    If it is, the rule may or may not be for the disk.
    """
    sure = ((env(name, "|".join(words)),),) if words else ()
    return UdevCondition(sure, ((env(name, "|".join((*words, UNKNOWN))),),))


def _family(names: tuple[str, ...]) -> UdevCondition:
    # udev knows only the shipped drivers; a rule may name others, which count as unknown here.
    known = {family.name for family in families()}
    return _perhaps_unknown(FAMILY, tuple(name for name in names if name in known))


def _link(link: LinkMatch) -> Iterator[UdevCondition]:
    if link.gen:
        yield _perhaps_unknown(GEN, tuple(map(str, link.gen)))
    if link.width:
        yield _perhaps_unknown(WIDTH, tuple(map(str, link.width)))


def _named(path: str, globs: tuple[str, ...], ways: tuple[str, ...]) -> UdevCondition:
    """Return the condition on a drive's vendor or model.

    Disks without such a string count as having an empty one, as in the plan.
    """
    if any(not glob.strip("*") for glob in globs):  # "*" fits the empty string, too
        return _ALWAYS
    exact = [_glob(glob) for glob in globs if _expressible(glob)]
    sure: list[Parts] = []
    possible: list[Parts] = []
    for way in (SCSI, NVME, OTHER):
        kernel = RulePart("KERNEL", "==", way)
        if way not in ways:
            if any(fnmatchcase("", glob) for glob in globs):
                sure.append((kernel,))
                possible.append((kernel,))
            continue
        fits = (kernel, attr(path, "|".join(exact)))
        if exact:
            sure.append(fits)
        # A glob that udev cannot express could fit any disk of this kind.
        possible.append(fits if len(exact) == len(globs) else (kernel,))
    return UdevCondition(tuple(sure), tuple(possible))


def _expressible(glob: str) -> bool:
    """Whether a glob means the same to udev: no sets, no blank at an end, which udev cuts off."""
    return glob == glob.strip() and plain(glob.replace("*", "x").replace("?", "x"))


def _glob(glob: str) -> str:
    return "".join(char if char in "*?" else literal(char) for char in glob)
