"""Classifies a disk in udev, and translates conditions of rules: exactly, or as far as it sees.

The tables of ``facts.classify`` are written out as rules. Evidence that udev cannot see (the
designators of page 83h, a parallel bus, a driver that hbatune does not know) makes a disk unknown
here, and leaves it to the daemon.

Each condition becomes two lists of alternatives: parts that match if it holds for ``sure``, and
parts that match wherever it is ``possible``. Where the two differ udev cannot decide, and the
rule's setting is left to the daemon.
"""

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import NamedTuple

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
)
from hbatune.facts.classify import (
    BY_FAMILY,
    BY_ROTATIONAL,
    BY_TRANSPORT,
    EMULATED,
    SAS_ARRAYS,
    SIGNS,
    UNSAID,
    VIRTUAL_NVME,
    VIRTUAL_SIGNS,
    Evidence,
    Sign,
)
from hbatune.facts.families import families
from hbatune.facts.family import Family
from hbatune.facts.model import GENERATIONS, Kind, Protocol, Storage
from hbatune.facts.routes import TRANSPORTS
from hbatune.policy.profile import LinkMatch, Match, Multipath

FAMILY, PROTOCOL, MEDIUM = ".HBATUNE_FAMILY", ".HBATUNE_PROTOCOL", ".HBATUNE_MEDIUM"
TRI_MODE, GEN, WIDTH = ".HBATUNE_TRI_MODE", ".HBATUNE_GEN", ".HBATUNE_WIDTH"
STORAGE = ".HBATUNE_STORAGE"
UNKNOWN = "unknown"

SCSI, NVME, OTHER = "sd*", "nvme*", "vd*"
"""The kernel's names of SCSI disks, NVMe namespaces and disks of virtio."""

# Which of them have the strings that rules may ask for (facts/endpoints.py reads no others).
_VENDOR = (SCSI,)
_MODEL = (SCSI, NVME)

Parts = tuple[RulePart, ...]

CLASSIFIED = "hbatune_classified"
_PCI, _PORT = ".HBATUNE_PCI", ".HBATUNE_PORT"
_CHANNELS = range(256)  # a family's rule is a function: it is asked about each one

_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


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
        yield _protocol(when.protocol)
    if when.medium:
        yield _exactly(MEDIUM, when.medium)
    if when.storage:
        yield _exactly(STORAGE, when.storage)
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


def _protocol(words: tuple[Protocol, ...]) -> UdevCondition:
    """Return the condition on the protocol, of which udev may know only that it is one of two."""
    sure = [_either(doubt) for doubt in _doubts() if set(doubt) <= set(words)]
    possible = [_either(doubt) for doubt in _doubts() if set(doubt) & set(words)]
    return UdevCondition(
        ((env(PROTOCOL, "|".join((*words, *sure))),),),
        ((env(PROTOCOL, "|".join((*words, *possible))),),),
    )


@cache
def _doubts() -> tuple[tuple[Protocol, ...], ...]:
    """Return the protocols between which udev cannot decide, for all families."""
    found = {channel for family in families() for channel in _channels(family) if len(channel) > 1}
    return tuple(sorted(found))


def _either(protocols: Iterable[Protocol]) -> str:
    """Return the word for a disk that speaks one of these, as far as udev can see."""
    return "+".join(protocols)


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


def class_sections(linked: Collection[str]) -> Iterator[RuleSection]:
    """Yield the lines that determine family, protocol and medium.

    For the ``linked`` families they also determine the PCI link, which costs many lines.
    """
    yield RuleSection("What it is: not known yet.", tuple(_unknown()))
    yield RuleSection("Which driver its adapter has.", tuple(_families()))
    yield RuleSection("How the adapter's PCI Express link runs.", tuple(_links(linked)))
    yield RuleSection("What it speaks, by the way to it.", tuple(_transports()))
    yield RuleSection("What it speaks, by what a SCSI disk says of itself.", tuple(_scsi()))
    yield RuleSection("What it stores on.", tuple(_media()))
    yield RuleSection("Where its data is.", tuple(_storage()))


def _unknown() -> Iterator[RuleLine]:
    yield line(*(set_env(name, UNKNOWN) for name in (FAMILY, PROTOCOL, MEDIUM, GEN, WIDTH)))
    yield line(set_env(TRI_MODE, "0"), set_env(STORAGE, Storage.LOCAL))


def _families() -> Iterator[RuleLine]:
    for family in families():
        drivers = match("DRIVERS", "|".join(sorted(family.drivers)))
        yield line(drivers, set_env(FAMILY, family.name))


def _links(linked: Collection[str]) -> Iterator[RuleLine]:
    """Yield the lines that read the link of the function that the driver is bound to.

    DRIVERS and ATTRS in one line have to match at the same parent (udev(7)), so that the link of
    a bridge above the adapter is not taken for the adapter's.
    """
    for family in (each for each in families() if each.name in linked):
        drivers = match("DRIVERS", "|".join(sorted(family.drivers)))
        own = env(FAMILY, family.name)
        for speed, generation in GENERATIONS.items():
            texts = dict.fromkeys((f"{speed:.1f}", f"{speed:g}"))  # 5.0, and 5 on older kernels
            globs = "|".join(f"{text} GT/s*" for text in texts)
            runs = match("ATTRS", globs, "current_link_speed")
            yield line(own, drivers, runs, set_env(GEN, str(generation)))
        for width in _WIDTHS:
            runs = match("ATTRS", str(width), "current_link_width")
            yield line(own, drivers, runs, set_env(WIDTH, str(width)))


def _transports() -> Iterator[RuleLine]:
    # The transports that hypervisors emulate count after the names of their disks.
    emulated = False
    for transport in sorted(TRANSPORTS, key=lambda each: each.name in EMULATED):
        path = match("DEVPATH", transport.globs)
        if transport.name in EMULATED and not emulated:
            emulated = True
            yield from _hypervisors()
        protocol = BY_TRANSPORT.get(transport.name)
        if protocol is Protocol.UNKNOWN:
            yield line(path, goto(END))
        elif protocol is not None:
            yield _classified(protocol, path)


def _hypervisors() -> Iterator[RuleLine]:
    for sign in VIRTUAL_SIGNS:
        for glob in sign.words:
            path = f"device/{sign.field}"
            yield _classified(sign.protocol, match("KERNEL", SCSI), attr(path, glob))


def _storage() -> Iterator[RuleLine]:
    """Yield the lines that say where the data is, as ``facts.classify.storage`` does."""
    spoken = env(PROTOCOL, f"{Protocol.FC}|{Protocol.ISCSI}")
    yield line(spoken, set_env(STORAGE, Storage.ARRAY))
    spoken = env(PROTOCOL, f"{Protocol.VIRTIO}|{Protocol.VIRTUAL}")
    yield line(spoken, set_env(STORAGE, Storage.VIRTUAL))
    spoken = env(PROTOCOL, Protocol.SAS)
    yield line(spoken, attr("device/access_state", "?*"), set_env(STORAGE, Storage.ARRAY))
    for vendors, models in SAS_ARRAYS:
        named = (attr("device/vendor", vendors), attr("device/model", models))
        yield line(spoken, *named, set_env(STORAGE, Storage.ARRAY))
    native = (match("KERNEL", NVME), env(PROTOCOL, Protocol.NVME))
    cloud = match("ATTRS", "|".join(VIRTUAL_NVME), "model")
    yield line(*native, cloud, set_env(STORAGE, Storage.VIRTUAL))
    fabric = match("DEVPATH", "*/nvme-fabrics/ctl/*")
    yield line(*native, fabric, set_env(STORAGE, Storage.FABRIC))


def _scsi() -> Iterator[RuleLine]:
    yield line(differs("KERNEL", SCSI), goto(END))
    yield line(env(FAMILY, UNKNOWN), goto(END))
    virtual = [f.name for f in families() if f.protocol(Evidence()) is Protocol.VIRTUAL]
    yield _classified(Protocol.VIRTUAL, env(FAMILY, "|".join(virtual)))
    # Flags, since SUBSYSTEMS!= is true as soon as any one parent differs: the absence of a parent
    # can only be expressed this way.
    yield line(match("SUBSYSTEMS", "pci"), set_env(_PCI, "1"))
    [sas] = (each for each in TRANSPORTS if each.name == "sas")
    yield line(match("DEVPATH", sas.globs), set_env(_PORT, "1"))
    yield line(_not(_PCI), _not(_PORT), goto(END))
    for sign in SIGNS:
        if sign is BY_FAMILY:
            for family in families():
                yield from _by_channel(family)
        elif (seen := _seen(sign)) is not None:
            yield _classified(sign.protocol, *seen)
    yield line(goto(END))


def _seen(sign: Sign) -> tuple[RulePart, ...] | None:
    """Return the parts that match if a sign holds; None if udev cannot see its field.

    A drive below a SAS port is judged by the port alone: a controller that shows its ports
    makes up no volumes, and ``facts.endpoints`` reads nothing else of it, either.
    """
    globs = "|".join(sign.words)
    match sign.field:
        case "vendor":
            return (attr("device/vendor", globs),)
        case "sat":
            return (match("TEST", "device/vpd_pg89"),)
        case "raid_level" | "sas_address":
            path = f"device/{sign.field}"
            there = (_not(_PORT), attr(path, "?*"))
            return (*there, differs("ATTR", globs, path)) if sign.but else there
        case "port_protocols":
            # In the drive's port of the SAS transport class, below the parent that both keys match:
            # udev puts its name in the place of $id (udev-rules.c: token_match_attr), and reads the
            # file itself, where a PROGRAM would be a process for each disk.
            port = match("KERNELS", "end_device-*")
            listed = "|".join(f"*{word}*" for word in sign.words)
            protocols = match("ATTRS", listed, "sas_device/$id/target_port_protocols")
            return (env(_PORT, "1"), port, protocols)
        case _:
            return None


def _by_channel(family: Family) -> Iterator[RuleLine]:
    """Yield the lines that tell a family's protocols by SCSI channel."""
    own = env(FAMILY, family.name)
    if family.protocol(Evidence(channel=0, access="optimized")) is not family.protocol(
        Evidence(channel=0)
    ):
        served = family.protocol(Evidence(channel=0, access="optimized")) or UNKNOWN
        yield _classified(served, own, attr("device/access_state", "?*"))
    for protocols, channels in _channels(family).items():
        protocol = _either(protocols)
        if protocol == Protocol.VIRTUAL:
            continue
        if len(channels) == len(_CHANNELS):
            yield _classified(protocol, own)
        elif len(channels) > len(_CHANNELS) // 2:
            # The other channels are fewer, and make a shorter line. The positive matches bind the
            # negated one to the SCSI device: alone it would be true of any other parent.
            others = "|".join(f"*:{each}:*:*" for each in _CHANNELS if each not in channels)
            yield _classified(
                protocol,
                own,
                match("SUBSYSTEMS", "scsi"),
                match("KERNELS", "*:*:*:*"),
                differs("KERNELS", others),
            )
        else:
            yield _classified(
                protocol, own, match("KERNELS", "|".join(f"*:{c}:*:*" for c in channels))
            )


def _channels(family: Family) -> dict[tuple[Protocol, ...], list[int]]:
    """Return the channels by the protocols that a disk there may speak, by the family's knowledge.

    Two where the designators of page 83h decide, which udev cannot read.
    """
    found: dict[tuple[Protocol, ...], list[int]] = {}
    for channel in _CHANNELS:
        seen = (Evidence(channel=channel, sas_designator=each) for each in (False, True))
        words = {word for each in seen if (word := family.protocol(each)) is not None}
        if words:
            found.setdefault(tuple(sorted(words)), []).append(channel)
    return found


def _media() -> Iterator[RuleLine]:
    # The kernel has set `rotational` from page B1h before the event (drivers/scsi/sd.c:
    # sd_read_block_characteristics), and nothing of ours has changed it yet.
    spoken = env(PROTOCOL, Protocol.NVME)
    yield label(CLASSIFIED)
    for rotational, medium in BY_ROTATIONAL.items():
        others = [Protocol.NVME, *(spoken for spoken, unsaid in (UNSAID,) if unsaid is medium)]
        turns = attr("queue/rotational", str(int(rotational)))
        yield line(differs("ENV", "|".join(others), PROTOCOL), turns, set_env(MEDIUM, medium))
    yield line(spoken, set_env(MEDIUM, "nvme"))
    yield line(spoken, match("KERNEL", SCSI), set_env(TRI_MODE, "1"))


def _classified(protocol: str, *matches: RulePart) -> RuleLine:
    return line(*matches, set_env(PROTOCOL, protocol), goto(CLASSIFIED))


def _not(flag: str) -> RulePart:
    return differs("ENV", "1", flag)


DISKS = "|".join((SCSI, NVME, OTHER))
"""The kernel's names of the disks that udev tunes."""
