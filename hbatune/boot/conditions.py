"""Classify a disk in udev, and translate conditions of rules, exactly or as far as udev can see.

The tables of ``facts.classify`` are written out as rules. Some evidence is invisible to udev: the
designators of page 83h, a parallel bus, a driver that hbatune does not know. It makes a disk
unknown here, and leaves it to the daemon.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import chain, product
from operator import attrgetter
from typing import NamedTuple

from hbatune.boot import lines
from hbatune.boot.lines import END, RuleLine, RuleSection, match_key, match_property, set_property
from hbatune.facts import classify, routes
from hbatune.facts.classify import Evidence, Sign
from hbatune.facts.families import families
from hbatune.facts.family import Family
from hbatune.facts.model import GENERATIONS, Kind, Medium, Protocol
from hbatune.policy.profile import Match, Multipath

FAMILY, PROTOCOL, MEDIUM = ".HBATUNE_FAMILY", ".HBATUNE_PROTOCOL", ".HBATUNE_MEDIUM"
TRI_MODE, GEN, WIDTH = ".HBATUNE_TRI_MODE", ".HBATUNE_GEN", ".HBATUNE_WIDTH"
STORAGE = ".HBATUNE_STORAGE"
UNKNOWN = "unknown"
# A tri-mode drive's flag in sysfs is not evidence, and udev cannot read the drive's page
# (facts/classify.py: classify_medium).
_TRI_MODE_DOUBT = (Medium.HDD, Medium.NVME)

SCSI, NVME = "sd*", "nvme*"
"""The kernel's names of SCSI disks and NVMe namespaces."""

CLASSIFIED_LABEL = "hbatune_classified"
_PCI, _PORT = ".HBATUNE_PCI", ".HBATUNE_PORT"
_CHANNELS = range(256)  # a family's rule is a function, called for each channel

_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


class UdevCondition(NamedTuple):
    """The alternatives in which a rule's ``when`` holds for sure, and may possibly hold."""

    sure: tuple[RuleLine, ...]
    possible: tuple[RuleLine, ...]

    @property
    def exact(self) -> bool:
        """Whether udev can decide in every case."""
        return self.sure == self.possible


_ALWAYS = UdevCondition(((),), ((),))


def build_condition(criteria: Match) -> UdevCondition:
    """Return the condition of a rule's ``when`` for the disks that udev tunes: no paths of maps."""
    if criteria.kind and Kind.DISK not in criteria.kind:
        return UdevCondition((), ())
    if criteria.multipath and Multipath.NONE not in criteria.multipath:
        return UdevCondition((), ())
    sure, possible = _ALWAYS
    for condition in _translate_criteria(criteria):
        sure = _combine_alternatives(sure, condition.sure)
        possible = _combine_alternatives(possible, condition.possible)
    return UdevCondition(sure, possible)


def _translate_criteria(criteria: Match) -> Iterator[UdevCondition]:
    if criteria.family:
        # udev knows only the shipped drivers. A rule may name others, which count as unknown here.
        shipped_names = set(map(attrgetter("name"), families()))
        names = [name for name in criteria.family if name in shipped_names]
        yield _match_words(FAMILY, names, [UNKNOWN])
    if criteria.protocol:
        yield _match_doubtful(PROTOCOL, criteria.protocol, _find_doubts())
    if criteria.medium:
        yield _match_doubtful(MEDIUM, criteria.medium, (_TRI_MODE_DOUBT,))
    if criteria.storage:
        yield _match_words(STORAGE, criteria.storage)
    if criteria.tri_mode is not None:
        yield _match_words(TRI_MODE, [str(int(criteria.tri_mode))])
    if criteria.rotational is not None:
        is_rotational = lines.match_attribute("queue/rotational", str(int(criteria.rotational)))
        yield UdevCondition(((is_rotational,),), ((is_rotational,),))
    if criteria.use:  # a disk is used later
        yield UdevCondition((), ((),))
    if criteria.link.gen:
        yield _match_words(GEN, map(str, criteria.link.gen), [UNKNOWN])
    if criteria.link.width:
        yield _match_words(WIDTH, map(str, criteria.link.width), [UNKNOWN])
    # The disks with the strings that rules may require (facts/endpoints.py reads no others).
    if criteria.vendor:
        yield _match_names("device/vendor", criteria.vendor, (SCSI,))
    if criteria.model:
        yield _match_names("device/model", criteria.model, (SCSI, NVME))


def _combine_alternatives(
    first: tuple[RuleLine, ...], second: tuple[RuleLine, ...]
) -> tuple[RuleLine, ...]:
    """Return every combination of alternatives, except those with two names for one disk."""
    combinations = []
    for pair in product(first, second):
        parts = tuple(dict.fromkeys(sum(pair, ())))
        if list(map(attrgetter("key"), parts)).count("KERNEL") < 2:
            combinations.append(parts)
    return tuple(combinations)


def _match_words(name: str, words: Iterable[str], doubtful: Iterable[str] = ()) -> UdevCondition:
    """Return the condition that a property is one of these words; udev cannot decide others."""
    sure = "|".join(words)
    possible = "|".join(filter(None, (sure, *doubtful)))
    sure_lines = ((match_property(name, sure),),) if sure else ()
    return UdevCondition(sure_lines, ((match_property(name, possible),),))


def _match_doubtful(
    name: str, words: Iterable[str], doubts: Iterable[tuple[str, ...]]
) -> UdevCondition:
    """Return the condition on a property of which udev may know only that it is one of two."""
    sure, doubtful = list[str](words), list[str]()
    for doubt in doubts:
        if set(doubt) <= set(words):
            sure.append("+".join(doubt))
        elif set(doubt) & set(words):
            doubtful.append("+".join(doubt))
    return _match_words(name, sure, doubtful)


@cache
def _find_doubts() -> tuple[tuple[Protocol, ...], ...]:
    """Return the protocols between which udev cannot decide, for all families."""
    groups = set(chain.from_iterable(map(_group_channels, families())))
    return tuple(sorted(protocols for protocols in groups if len(protocols) > 1))


def _match_names(path: str, globs: tuple[str, ...], disk_names: tuple[str, ...]) -> UdevCondition:
    """Return the condition on a vendor or model; disks without the string have an empty one."""
    exact: list[str] = []
    for glob in globs:
        if not glob.strip("*"):  # also matches the empty string
            return _ALWAYS
        # Means the same to udev: it has no sets, and no blank at an end, which udev cuts.
        if glob == glob.strip() and lines.is_plain(glob.replace("*", "x").replace("?", "x")):
            exact.append(glob)
    sure, possible = list[RuleLine](), list[RuleLine]()
    for disk_name in disk_names:
        kernel = match_key("KERNEL", disk_name)
        fits = (kernel, lines.match_attribute(path, "|".join(exact)))
        if exact:
            sure.append(fits)
        # A glob that udev cannot express could match any disk of this type.
        possible.append(fits if len(exact) == len(globs) else (kernel,))
    return UdevCondition(tuple(sure), tuple(possible))


def make_class_sections(linked: Collection[str]) -> Iterator[RuleSection]:
    """Yield the lines that classify disks, and for ``linked`` families also their PCI link."""
    drivers = [(_match_drivers(f), set_property(FAMILY, f.name)) for f in families()]
    yield RuleSection("Which driver its adapter has.", tuple(drivers))
    for title, section_lines in (
        ("The state of the adapter's PCI Express link.", _detect_link(linked)),
        ("The protocol, from the transport.", _classify_by_transport()),
        ("The protocol, from a SCSI disk's own report.", _classify_scsi()),
    ):
        yield RuleSection(title, tuple(section_lines))


def _match_drivers(family: Family) -> lines.RulePart:
    return match_key("DRIVERS", "|".join(sorted(family.drivers)))


def _detect_link(linked: Collection[str]) -> Iterator[RuleLine]:
    """Yield the lines that read the link of the function that the driver is bound to.

    DRIVERS and ATTRS in one line must match at the same parent (udev(7)), not at a bridge.
    """
    for family in families():
        if family.name not in linked:
            continue
        is_family = (match_property(FAMILY, family.name), _match_drivers(family))
        for speed, generation in GENERATIONS.items():
            globs = dict.fromkeys((f"{speed:.1f} GT/s*", f"{speed:g} GT/s*"))  # 5 on older kernels
            runs = match_key("ATTRS", "|".join(globs), "current_link_speed")
            yield *is_family, runs, set_property(GEN, str(generation))
        for width in _WIDTHS:
            runs = match_key("ATTRS", str(width), "current_link_width")
            yield *is_family, runs, set_property(WIDTH, str(width))


def _classify_by_transport() -> Iterator[RuleLine]:
    emulated = classify.EMULATED_TRANSPORTS
    is_first = True
    # Transports that hypervisors emulate have a lower priority than the names of their disks.
    for transport in sorted(routes.TRANSPORTS, key=lambda transport: transport.name in emulated):
        if transport.name in emulated and is_first:
            is_first = False
            for sign in classify.VIRTUAL_SIGNS:
                for glob in sign.words:
                    name = lines.match_attribute(f"device/{sign.field}", glob)
                    yield _classify(sign.protocol, match_key("KERNEL", SCSI), name)
        path = match_key("DEVPATH", transport.globs)
        protocol = classify.PROTOCOL_BY_TRANSPORT.get(transport.name)
        if protocol is Protocol.UNKNOWN:
            yield path, END
        elif protocol is not None:
            yield _classify(protocol, path)


def _classify_scsi() -> Iterator[RuleLine]:
    yield lines.exclude_key("KERNEL", SCSI), END
    yield match_property(FAMILY, UNKNOWN), END
    virtual = [f.name for f in families() if f.protocol(Evidence()) is Protocol.VIRTUAL]
    yield _classify(Protocol.VIRTUAL, match_property(FAMILY, "|".join(virtual)))
    # Flags, since SUBSYSTEMS!= is true as soon as any parent differs: only a flag can express the
    # absence of a parent.
    yield match_key("SUBSYSTEMS", "pci"), set_property(_PCI, "1")
    [sas] = (transport for transport in routes.TRANSPORTS if transport.name == "sas")
    yield match_key("DEVPATH", sas.globs), set_property(_PORT, "1")
    yield lines.exclude_key("ENV", "1", _PCI), lines.exclude_key("ENV", "1", _PORT), END
    for sign in classify.PROTOCOL_SIGNS:
        if sign is classify.FAMILY_SIGN:
            for family in families():
                yield from _classify_by_channel(family)
        elif (parts := _match_sign(sign)) is not None:
            yield _classify(sign.protocol, *parts)
    yield (END,)


def _match_sign(sign: Sign) -> RuleLine | None:
    """Return the parts that match if a sign holds, or None if udev cannot see its field.

    For a drive behind a SAS port only the port counts: a controller that shows its ports presents
    no volumes, and ``facts.endpoints`` also reads only the port.
    """
    match sign.field:
        case "vendor":
            return (lines.match_attribute("device/vendor", "|".join(sign.words)),)
        case "sat":
            return (match_key("TEST", "device/vpd_pg89"),)
        case "raid_level" | "sas_address":
            path = f"device/{sign.field}"
            present = (lines.exclude_key("ENV", "1", _PORT), lines.match_attribute(path, "?*"))
            excluded = lines.exclude_key("ATTR", "|".join(sign.words), path)
            return (*present, excluded) if sign.but else present
        case "port_protocols":
            # In the drive's port of the SAS transport class, below the parent that both keys match.
            # udev substitutes its name for $id (udev-rules.c: token_match_attr), and reads the file
            # itself. A PROGRAM would be a process for each disk.
            port = match_key("KERNELS", "end_device-*")
            listed = f"*{'*|*'.join(sign.words)}*"
            protocols = match_key("ATTRS", listed, "sas_device/$id/target_port_protocols")
            return match_property(_PORT, "1"), port, protocols
        case _:
            return None


def _classify_by_channel(family: Family) -> Iterator[RuleLine]:
    """Yield the lines that distinguish a family's protocols by SCSI channel."""
    is_family = match_property(FAMILY, family.name)
    served = family.protocol(Evidence(channel=0, access="optimized"))
    if served is not family.protocol(Evidence(channel=0)):
        has_state = lines.match_attribute("device/access_state", "?*")
        yield _classify(served or UNKNOWN, is_family, has_state)
    for protocols, channels in _group_channels(family).items():
        protocol = "+".join(protocols)
        if protocol == Protocol.VIRTUAL:
            continue
        if len(channels) == len(_CHANNELS):
            yield _classify(protocol, is_family)
        elif len(channels) > len(_CHANNELS) // 2:
            # The other channels are fewer, and make a shorter line. The positive matches bind the
            # negated one to the SCSI device. Without them it would be true of any other parent.
            others = sorted(set(_CHANNELS).difference(channels))
            scsi = (match_key("SUBSYSTEMS", "scsi"), match_key("KERNELS", "*:*:*:*"))
            excluded = lines.exclude_key("KERNELS", _format_channels(others))
            yield _classify(protocol, is_family, *scsi, excluded)
        else:
            yield _classify(protocol, is_family, match_key("KERNELS", _format_channels(channels)))


def _format_channels(channels: Iterable[int]) -> str:
    return "|".join(f"*:{channel}:*:*" for channel in channels)


def _group_channels(family: Family) -> dict[tuple[Protocol, ...], list[int]]:
    """Return the channels by the protocols that the family may use on a disk there.

    There are two protocols if the designators of page 83h decide, which udev cannot read. udev's
    word for such a disk joins the two.
    """
    by_protocols: dict[tuple[Protocol, ...], list[int]] = {}
    for channel in _CHANNELS:
        evidence = [Evidence(channel=channel, sas_designator=is_sas) for is_sas in (False, True)]
        protocols = set(filter(None, map(family.protocol, evidence)))
        if protocols:
            by_protocols.setdefault(tuple(sorted(protocols)), []).append(channel)
    return by_protocols


def _classify(protocol: str, *matches: lines.RulePart) -> RuleLine:
    return *matches, set_property(PROTOCOL, protocol), lines.jump_to(CLASSIFIED_LABEL)
