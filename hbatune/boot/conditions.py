"""Classify a disk in udev, and translate conditions of rules, exactly or as far as udev can see.

The tables of ``facts.classify`` are written out as rules. Some evidence is invisible to udev: the
designators of page 83h, a parallel bus, a driver that hbatune does not know. It makes a disk
unknown here, and leaves it to the daemon.

Each condition becomes two lists of alternatives: parts that match if it holds for ``sure``, and
parts that match if it is ``possible``. If the two differ, udev cannot decide, and the rule's
setting is left to the daemon.
"""

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import NamedTuple

from hbatune.boot.lines import (
    END_LABEL,
    RuleLine,
    RulePart,
    RuleSection,
    escape_glob,
    exclude_key,
    is_plain,
    jump_to,
    make_label,
    make_line,
    match_attribute,
    match_key,
    match_property,
    set_property,
)
from hbatune.facts.classify import (
    EMULATED_TRANSPORTS,
    FAMILY_SIGN,
    MEDIUM_BY_ROTATIONAL,
    PROTOCOL_BY_TRANSPORT,
    PROTOCOL_SIGNS,
    SAS_ARRAYS,
    UNRELIABLE_MEDIUM,
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

# Disks with the strings that rules may require (facts/endpoints.py reads no others).
_VENDOR = (SCSI,)
_MODEL = (SCSI, NVME)

Parts = tuple[RulePart, ...]

CLASSIFIED_LABEL = "hbatune_classified"
_PCI, _PORT = ".HBATUNE_PCI", ".HBATUNE_PORT"
_CHANNELS = range(256)  # a family's rule is a function, called for each channel

_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


class UdevCondition(NamedTuple):
    """The alternatives in which a rule's ``when`` holds for sure, and may possibly hold."""

    sure: tuple[Parts, ...]
    possible: tuple[Parts, ...]

    @property
    def exact(self) -> bool:
        """Whether udev can decide in every case."""
        return self.sure == self.possible


_ALWAYS = UdevCondition(((),), ((),))
_NEVER = UdevCondition((), ())


def build_condition(criteria: Match) -> UdevCondition:
    """Return the condition of a rule's ``when`` for a disk that is not a path of a map.

    udev tunes only such disks.
    """
    if criteria.kind and Kind.DISK not in criteria.kind:
        return _NEVER
    if criteria.multipath and Multipath.NONE not in criteria.multipath:
        return _NEVER
    return _combine(_translate_criteria(criteria))


def has_name_criteria(criteria: Match) -> bool:
    """Return whether it depends on the drive's vendor or model."""
    return bool(criteria.vendor or criteria.model)


def _translate_criteria(criteria: Match) -> Iterator[UdevCondition]:
    if criteria.family:
        yield _match_family(criteria.family)
    if criteria.protocol:
        yield _match_protocol(criteria.protocol)
    if criteria.medium:
        yield _match_words(MEDIUM, criteria.medium)
    if criteria.storage:
        yield _match_words(STORAGE, criteria.storage)
    if criteria.tri_mode is not None:
        yield _match_words(TRI_MODE, ("1" if criteria.tri_mode else "0",))
    yield from _match_link(criteria.link)
    if criteria.vendor:
        yield _match_names("device/vendor", criteria.vendor, _VENDOR)
    if criteria.model:
        yield _match_names("device/model", criteria.model, _MODEL)


def _combine(conditions: Iterable[UdevCondition]) -> UdevCondition:
    """Return the condition in which all of them hold."""
    operands = list(conditions)
    sure = _combine_alternatives([operand.sure for operand in operands])
    possible = _combine_alternatives([operand.possible for operand in operands])
    return UdevCondition(sure, possible)


def _combine_alternatives(alternatives: Iterable[tuple[Parts, ...]]) -> tuple[Parts, ...]:
    """Return every combination of alternatives, except those with two names for one disk."""
    combined = (tuple(dict.fromkeys(sum(choice, ()))) for choice in product(*alternatives))
    return tuple(parts for parts in combined if sum(part.key == "KERNEL" for part in parts) < 2)


def _match_words(name: str, words: Iterable[str]) -> UdevCondition:
    parts = ((match_property(name, "|".join(words)),),)
    return UdevCondition(parts, parts)


def _match_protocol(words: tuple[Protocol, ...]) -> UdevCondition:
    """Return the condition on the protocol; udev may know only that it is one of two."""
    sure = [_join_protocols(doubt) for doubt in _find_doubts() if set(doubt) <= set(words)]
    possible = [_join_protocols(doubt) for doubt in _find_doubts() if set(doubt) & set(words)]
    return UdevCondition(
        ((match_property(PROTOCOL, "|".join((*words, *sure))),),),
        ((match_property(PROTOCOL, "|".join((*words, *possible))),),),
    )


@cache
def _find_doubts() -> tuple[tuple[Protocol, ...], ...]:
    """Return the protocols between which udev cannot decide, for all families."""
    combinations = {
        channel for family in families() for channel in _group_channels(family) if len(channel) > 1
    }
    return tuple(sorted(combinations))


def _join_protocols(protocols: Iterable[Protocol]) -> str:
    """Return the word for a disk with one of these protocols, if udev cannot distinguish them."""
    return "+".join(protocols)


def _match_or_unknown(name: str, words: tuple[str, ...]) -> UdevCondition:
    """Return the condition on a property that may be unknown.

    If it is, the rule may or may not be for the disk.
    """
    sure = ((match_property(name, "|".join(words)),),) if words else ()
    return UdevCondition(sure, ((match_property(name, "|".join((*words, UNKNOWN))),),))


def _match_family(names: tuple[str, ...]) -> UdevCondition:
    # udev knows only the shipped drivers. A rule may name others, which count as unknown here.
    shipped_names = {family.name for family in families()}
    return _match_or_unknown(FAMILY, tuple(name for name in names if name in shipped_names))


def _match_link(link: LinkMatch) -> Iterator[UdevCondition]:
    if link.gen:
        yield _match_or_unknown(GEN, tuple(map(str, link.gen)))
    if link.width:
        yield _match_or_unknown(WIDTH, tuple(map(str, link.width)))


def _match_names(path: str, globs: tuple[str, ...], disk_names: tuple[str, ...]) -> UdevCondition:
    """Return the condition on a drive's vendor or model.

    Disks without such a string count as having an empty one, as in the plan.
    """
    if any(not glob.strip("*") for glob in globs):  # "*" also matches the empty string
        return _ALWAYS
    exact = [_escape_glob(glob) for glob in globs if _is_expressible(glob)]
    sure: list[Parts] = []
    possible: list[Parts] = []
    for disk_name in (SCSI, NVME, OTHER):
        kernel = RulePart("KERNEL", "==", disk_name)
        if disk_name not in disk_names:
            if any(fnmatchcase("", glob) for glob in globs):
                sure.append((kernel,))
                possible.append((kernel,))
            continue
        fits = (kernel, match_attribute(path, "|".join(exact)))
        if exact:
            sure.append(fits)
        # A glob that udev cannot express could match any disk of this type.
        possible.append(fits if len(exact) == len(globs) else (kernel,))
    return UdevCondition(tuple(sure), tuple(possible))


def _is_expressible(glob: str) -> bool:
    """Return whether a glob means the same to udev: no sets, no blank at an end (udev cuts it)."""
    return glob == glob.strip() and is_plain(glob.replace("*", "x").replace("?", "x"))


def _escape_glob(glob: str) -> str:
    return "".join(char if char in "*?" else escape_glob(char) for char in glob)


def make_class_sections(linked: Collection[str]) -> Iterator[RuleSection]:
    """Yield the lines that determine family, protocol and medium.

    For the ``linked`` families they also determine the PCI link, which costs many lines.
    """
    yield RuleSection("What it is: not known yet.", tuple(_reset_properties()))
    yield RuleSection("Which driver its adapter has.", tuple(_detect_family()))
    yield RuleSection("How the adapter's PCI Express link runs.", tuple(_detect_link(linked)))
    yield RuleSection("What it speaks, by the way to it.", tuple(_classify_by_transport()))
    yield RuleSection(
        "What it speaks, by what a SCSI disk says of itself.", tuple(_classify_scsi())
    )
    yield RuleSection("What it stores on.", tuple(_detect_medium()))
    yield RuleSection("Where its data is.", tuple(_detect_storage()))


def _reset_properties() -> Iterator[RuleLine]:
    yield make_line(
        *(set_property(name, UNKNOWN) for name in (FAMILY, PROTOCOL, MEDIUM, GEN, WIDTH))
    )
    yield make_line(set_property(TRI_MODE, "0"), set_property(STORAGE, Storage.LOCAL))


def _detect_family() -> Iterator[RuleLine]:
    for family in families():
        drivers = match_key("DRIVERS", "|".join(sorted(family.drivers)))
        yield make_line(drivers, set_property(FAMILY, family.name))


def _detect_link(linked: Collection[str]) -> Iterator[RuleLine]:
    """Yield the lines that read the link of the function that the driver is bound to.

    DRIVERS and ATTRS in one line must match at the same parent (udev(7)), so the link of a bridge
    above the adapter is not used for the adapter.
    """
    for family in families():
        if family.name not in linked:
            continue
        drivers = match_key("DRIVERS", "|".join(sorted(family.drivers)))
        is_family = match_property(FAMILY, family.name)
        for speed, generation in GENERATIONS.items():
            texts = dict.fromkeys((f"{speed:.1f}", f"{speed:g}"))  # 5.0, and 5 on older kernels
            globs = "|".join(f"{text} GT/s*" for text in texts)
            runs = match_key("ATTRS", globs, "current_link_speed")
            yield make_line(is_family, drivers, runs, set_property(GEN, str(generation)))
        for width in _WIDTHS:
            runs = match_key("ATTRS", str(width), "current_link_width")
            yield make_line(is_family, drivers, runs, set_property(WIDTH, str(width)))


def _classify_by_transport() -> Iterator[RuleLine]:
    # Transports that hypervisors emulate have a lower priority than the names of their disks.
    emulated = False
    for transport in sorted(
        TRANSPORTS, key=lambda transport: transport.name in EMULATED_TRANSPORTS
    ):
        path = match_key("DEVPATH", transport.globs)
        if transport.name in EMULATED_TRANSPORTS and not emulated:
            emulated = True
            yield from _classify_virtual()
        protocol = PROTOCOL_BY_TRANSPORT.get(transport.name)
        if protocol is Protocol.UNKNOWN:
            yield make_line(path, jump_to(END_LABEL))
        elif protocol is not None:
            yield _classify(protocol, path)


def _classify_virtual() -> Iterator[RuleLine]:
    for sign in VIRTUAL_SIGNS:
        for glob in sign.words:
            path = f"device/{sign.field}"
            yield _classify(sign.protocol, match_key("KERNEL", SCSI), match_attribute(path, glob))


def _detect_storage() -> Iterator[RuleLine]:
    """Yield the lines that locate the data, as ``facts.classify.classify_storage`` does."""
    has_protocol = match_property(PROTOCOL, f"{Protocol.FC}|{Protocol.ISCSI}")
    yield make_line(has_protocol, set_property(STORAGE, Storage.ARRAY))
    has_protocol = match_property(PROTOCOL, f"{Protocol.VIRTIO}|{Protocol.VIRTUAL}")
    yield make_line(has_protocol, set_property(STORAGE, Storage.VIRTUAL))
    has_protocol = match_property(PROTOCOL, Protocol.SAS)
    yield make_line(
        has_protocol,
        match_attribute("device/access_state", "?*"),
        set_property(STORAGE, Storage.ARRAY),
    )
    for vendors, models in SAS_ARRAYS:
        identity = (
            match_attribute("device/vendor", vendors),
            match_attribute("device/model", models),
        )
        yield make_line(has_protocol, *identity, set_property(STORAGE, Storage.ARRAY))
    native = (match_key("KERNEL", NVME), match_property(PROTOCOL, Protocol.NVME))
    cloud = match_key("ATTRS", "|".join(VIRTUAL_NVME), "model")
    yield make_line(*native, cloud, set_property(STORAGE, Storage.VIRTUAL))
    fabric = match_key("DEVPATH", "*/nvme-fabrics/ctl/*")
    yield make_line(*native, fabric, set_property(STORAGE, Storage.FABRIC))


def _classify_scsi() -> Iterator[RuleLine]:
    yield make_line(exclude_key("KERNEL", SCSI), jump_to(END_LABEL))
    yield make_line(match_property(FAMILY, UNKNOWN), jump_to(END_LABEL))
    virtual = [f.name for f in families() if f.protocol(Evidence()) is Protocol.VIRTUAL]
    yield _classify(Protocol.VIRTUAL, match_property(FAMILY, "|".join(virtual)))
    # Flags, since SUBSYSTEMS!= is true as soon as any parent differs: only a flag can express the
    # absence of a parent.
    yield make_line(match_key("SUBSYSTEMS", "pci"), set_property(_PCI, "1"))
    [sas] = (transport for transport in TRANSPORTS if transport.name == "sas")
    yield make_line(match_key("DEVPATH", sas.globs), set_property(_PORT, "1"))
    yield make_line(_match_unset(_PCI), _match_unset(_PORT), jump_to(END_LABEL))
    for sign in PROTOCOL_SIGNS:
        if sign is FAMILY_SIGN:
            for family in families():
                yield from _classify_by_channel(family)
        elif (parts := _match_sign(sign)) is not None:
            yield _classify(sign.protocol, *parts)
    yield make_line(jump_to(END_LABEL))


def _match_sign(sign: Sign) -> tuple[RulePart, ...] | None:
    """Return the parts that match if a sign holds, or None if udev cannot see its field.

    For a drive behind a SAS port only the port counts: a controller that shows its ports presents
    no volumes, and ``facts.endpoints`` also reads only the port.
    """
    globs = "|".join(sign.words)
    match sign.field:
        case "vendor":
            return (match_attribute("device/vendor", globs),)
        case "sat":
            return (match_key("TEST", "device/vpd_pg89"),)
        case "raid_level" | "sas_address":
            path = f"device/{sign.field}"
            present = (_match_unset(_PORT), match_attribute(path, "?*"))
            return (*present, exclude_key("ATTR", globs, path)) if sign.but else present
        case "port_protocols":
            # In the drive's port of the SAS transport class, below the parent that both keys match.
            # udev substitutes its name for $id (udev-rules.c: token_match_attr), and reads the file
            # itself. A PROGRAM would be a process for each disk.
            port = match_key("KERNELS", "end_device-*")
            listed = "|".join(f"*{word}*" for word in sign.words)
            protocols = match_key("ATTRS", listed, "sas_device/$id/target_port_protocols")
            return (match_property(_PORT, "1"), port, protocols)
        case _:
            return None


def _classify_by_channel(family: Family) -> Iterator[RuleLine]:
    """Yield the lines that distinguish a family's protocols by SCSI channel."""
    is_family = match_property(FAMILY, family.name)
    if family.protocol(Evidence(channel=0, access="optimized")) is not family.protocol(
        Evidence(channel=0)
    ):
        served = family.protocol(Evidence(channel=0, access="optimized")) or UNKNOWN
        yield _classify(served, is_family, match_attribute("device/access_state", "?*"))
    for protocols, channels in _group_channels(family).items():
        protocol = _join_protocols(protocols)
        if protocol == Protocol.VIRTUAL:
            continue
        if len(channels) == len(_CHANNELS):
            yield _classify(protocol, is_family)
        elif len(channels) > len(_CHANNELS) // 2:
            # The other channels are fewer, and make a shorter line. The positive matches bind the
            # negated one to the SCSI device. Without them it would be true of any other parent.
            excluded = "|".join(
                f"*:{channel}:*:*" for channel in _CHANNELS if channel not in channels
            )
            yield _classify(
                protocol,
                is_family,
                match_key("SUBSYSTEMS", "scsi"),
                match_key("KERNELS", "*:*:*:*"),
                exclude_key("KERNELS", excluded),
            )
        else:
            included = "|".join(f"*:{channel}:*:*" for channel in channels)
            yield _classify(protocol, is_family, match_key("KERNELS", included))


def _group_channels(family: Family) -> dict[tuple[Protocol, ...], list[int]]:
    """Return the channels by the protocols that the family may use on a disk there.

    There are two protocols if the designators of page 83h decide, which udev cannot read.
    """
    by_protocols: dict[tuple[Protocol, ...], list[int]] = {}
    for channel in _CHANNELS:
        protocols = {
            family.protocol(Evidence(channel=channel, sas_designator=has_designator))
            for has_designator in (False, True)
        }
        words = {protocol for protocol in protocols if protocol is not None}
        if words:
            by_protocols.setdefault(tuple(sorted(words)), []).append(channel)
    return by_protocols


def _detect_medium() -> Iterator[RuleLine]:
    # The kernel has set `rotational` from page B1h before the event (drivers/scsi/sd.c:
    # sd_read_block_characteristics), and hbatune has not changed it yet.
    is_nvme = match_property(PROTOCOL, Protocol.NVME)
    yield make_label(CLASSIFIED_LABEL)
    for rotational, medium in MEDIUM_BY_ROTATIONAL.items():
        excluded = [
            Protocol.NVME,
            *(protocol for protocol, unsaid in (UNRELIABLE_MEDIUM,) if unsaid is medium),
        ]
        is_medium = match_attribute("queue/rotational", str(int(rotational)))
        yield make_line(
            exclude_key("ENV", "|".join(excluded), PROTOCOL),
            is_medium,
            set_property(MEDIUM, medium),
        )
    yield make_line(is_nvme, set_property(MEDIUM, "nvme"))
    yield make_line(is_nvme, match_key("KERNEL", SCSI), set_property(TRI_MODE, "1"))


def _classify(protocol: str, *matches: RulePart) -> RuleLine:
    return make_line(*matches, set_property(PROTOCOL, protocol), jump_to(CLASSIFIED_LABEL))


def _match_unset(flag: str) -> RulePart:
    return exclude_key("ENV", "1", flag)


DISKS = "|".join((SCSI, NVME, OTHER))
"""The kernel's names of the disks that udev tunes."""
