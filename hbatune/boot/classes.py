"""Classifies a disk in udev: the tables of ``facts.classify``, written out as rules.

Evidence that udev cannot see (the designators of page 83h, a parallel bus, a driver that hbatune
does not know) makes a disk unknown here, and leaves it to the daemon.
"""

from collections.abc import Collection, Iterator

from hbatune.boot.conditions import (
    FAMILY,
    GEN,
    MEDIUM,
    NVME,
    OTHER,
    PROTOCOL,
    SCSI,
    TRI_MODE,
    UNKNOWN,
    WIDTH,
)
from hbatune.boot.line import (
    RuleLine,
    RulePart,
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
from hbatune.facts.classify import BY_FAMILY, BY_ROTATIONAL, BY_TRANSPORT, SIGNS, Evidence, Sign
from hbatune.facts.families import families
from hbatune.facts.family import Family
from hbatune.facts.model import GENERATIONS, Protocol
from hbatune.facts.routes import TRANSPORTS

END, CLASSIFIED = "hbatune_end", "hbatune_classified"
_PCI, _PORT = ".HBATUNE_PCI", ".HBATUNE_PORT"
_CHANNELS = range(256)  # a family's rule is a function: it is asked about each one

_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


def sections(linked: Collection[str]) -> Iterator[RuleSection]:
    """Yield the lines that determine family, protocol and medium.

    For the ``linked`` families they also determine the PCI link, which costs many lines.
    """
    yield RuleSection("What it is: not known yet.", tuple(_unknown()))
    yield RuleSection("Which driver its adapter has.", tuple(_families()))
    yield RuleSection("How the adapter's PCI Express link runs.", tuple(_links(linked)))
    yield RuleSection("What it speaks, by the way to it.", tuple(_transports()))
    yield RuleSection("What it speaks, by what a SCSI disk says of itself.", tuple(_scsi()))
    yield RuleSection("What it stores on.", tuple(_media()))


def _unknown() -> Iterator[RuleLine]:
    yield line(*(set_env(name, UNKNOWN) for name in (FAMILY, PROTOCOL, MEDIUM, GEN, WIDTH)))
    yield line(set_env(TRI_MODE, "0"))


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
    for transport in TRANSPORTS:
        path = match("DEVPATH", transport.globs)
        protocol = BY_TRANSPORT.get(transport.name)
        if protocol is Protocol.UNKNOWN:
            yield line(path, goto(END))
        elif protocol is not None:
            yield _classified(protocol, path)


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
            # In the drive's port of the SAS transport class; udev starts no shell for it.
            port = match("KERNELS", "end_device-*")
            read = "/bin/cat /sys/class/sas_device/$id/target_port_protocols"
            listed = "|".join(f"*{word}*" for word in sign.words)
            return (
                *(env(_PORT, "1"), port),
                *(match("PROGRAM", read), match("RESULT", listed)),
            )
        case _:
            return None


def _by_channel(family: Family) -> Iterator[RuleLine]:
    """Yield the lines that tell a family's protocols by SCSI channel."""
    by_protocol: dict[Protocol, list[int]] = {}
    for channel in _CHANNELS:
        if (protocol := family.protocol(Evidence(channel=channel))) is not None:
            by_protocol.setdefault(protocol, []).append(channel)
    own = env(FAMILY, family.name)
    for protocol, channels in by_protocol.items():
        if protocol is Protocol.VIRTUAL:
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


def _media() -> Iterator[RuleLine]:
    # The kernel has set `rotational` from page B1h before the event (drivers/scsi/sd.c:
    # sd_read_block_characteristics), and nothing of ours has changed it yet.
    spoken = env(PROTOCOL, Protocol.NVME)
    yield label(CLASSIFIED)
    for rotational, medium in BY_ROTATIONAL.items():
        turns = attr("queue/rotational", str(int(rotational)))
        yield line(differs("ENV", Protocol.NVME, PROTOCOL), turns, set_env(MEDIUM, medium))
    yield line(spoken, set_env(MEDIUM, "nvme"))
    yield line(spoken, match("KERNEL", SCSI), set_env(TRI_MODE, "1"))


def _classified(protocol: Protocol, *matches: RulePart) -> RuleLine:
    return line(*matches, set_env(PROTOCOL, protocol), goto(CLASSIFIED))


def _not(flag: str) -> RulePart:
    return differs("ENV", "1", flag)


DISKS = "|".join((SCSI, NVME, OTHER))
"""The kernel's names of the disks that udev tunes."""
