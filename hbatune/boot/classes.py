"""How udev tells what a disk is: the same classification as ``facts.classify``, in its own words.

What udev cannot see (the designators of page 83h, a driver that hbatune does not know) makes a
disk unknown here, and the daemon's to tune.
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
    Line,
    Part,
    Section,
    attr,
    differs,
    env,
    goto,
    label,
    line,
    match,
    set_env,
)
from hbatune.facts.evidence import Evidence
from hbatune.facts.families import families
from hbatune.facts.family import Family
from hbatune.facts.model import Protocol

END, TOLD = "hbatune_end", "hbatune_told"
_PCI, _PORT = ".HBATUNE_PCI", ".HBATUNE_PORT"
_CHANNELS = range(256)

# GT/s of each generation of PCI Express (drivers/pci/probe.c: pci_speed_string).
_SPEEDS = {"2.5": 1, "5": 2, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6, "128.0": 7}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)

# As place.py believes them, in its order; what is behind USB is nobody's.
_TRANSPORTS = (
    ("*/nvme/nvme[0-9]*/*|*/nvme-fabrics/ctl/nvme[0-9]*/*", Protocol.NVME),
    ("*/virtio[0-9]*/*", Protocol.VIRTIO),
    ("*/ata[0-9]*/*", Protocol.SATA),
    ("*/rport-[0-9]*/*", Protocol.FC),
    ("*/session[0-9]*/*", Protocol.ISCSI),
)
_BRANDS = "LSI|AVAGO|BROADCOM"
_NO_RAID = "N/A|JBOD|Hidden"


def sections(linked: Collection[str]) -> Iterator[Section]:
    """Yield the lines that tell family, protocol and medium.

    They tell the PCI link, too, of the families that are ``linked``.
    """
    yield Section("What it is: nobody knows yet.", tuple(_unknown()))
    yield Section("Which driver its adapter has.", tuple(_families()))
    yield Section("How the adapter's PCI Express link runs.", tuple(_links(linked)))
    yield Section("What it speaks, by the way to it.", tuple(_transports()))
    yield Section("What it speaks, by what a SCSI disk says of itself.", tuple(_scsi()))
    yield Section("What it stores on.", tuple(_media()))


def _unknown() -> Iterator[Line]:
    yield line(*(set_env(name, UNKNOWN) for name in (FAMILY, PROTOCOL, MEDIUM, GEN, WIDTH)))
    yield line(set_env(TRI_MODE, "0"))


def _families() -> Iterator[Line]:
    for family in families():
        drivers = match("DRIVERS", "|".join(sorted(family.drivers)))
        yield line(drivers, set_env(FAMILY, family.name))


def _links(linked: Collection[str]) -> Iterator[Line]:
    """Yield what is read at the very function that the driver is bound to."""
    for family in (each for each in families() if each.name in linked):
        drivers = match("DRIVERS", "|".join(sorted(family.drivers)))
        own = env(FAMILY, family.name)
        for speed, generation in _SPEEDS.items():
            runs = match("ATTRS", f"{speed} GT/s*", "current_link_speed")
            yield line(own, drivers, runs, set_env(GEN, str(generation)))
        for width in _WIDTHS:
            runs = match("ATTRS", str(width), "current_link_width")
            yield line(own, drivers, runs, set_env(WIDTH, str(width)))


def _transports() -> Iterator[Line]:
    yield line(match("DEVPATH", "*/usb[0-9]*/*"), goto(END))
    for path, protocol in _TRANSPORTS:
        yield _told(protocol, match("DEVPATH", path))


def _scsi() -> Iterator[Line]:
    yield line(differs("KERNEL", SCSI), goto(END))
    yield line(env(FAMILY, UNKNOWN), goto(END))
    virtual = [f.name for f in families() if f.protocol(Evidence()) is Protocol.VIRTUAL]
    yield _told(Protocol.VIRTUAL, env(FAMILY, "|".join(virtual)))
    yield line(match("SUBSYSTEMS", "pci"), set_env(_PCI, "1"))
    yield line(match("DEVPATH", "*/end_device-*"), set_env(_PORT, "1"))
    yield line(_not(_PCI), _not(_PORT), goto(END))
    yield _told(Protocol.NVME, attr("device/vendor", "NVMe"))
    yield _told(Protocol.SATA, attr("device/vendor", "ATA"))
    yield _told(Protocol.SATA, match("TEST", "device/vpd_pg89"))
    raid = "device/raid_level"
    volume = (_not(_PORT), attr(raid, "?*"), differs("ATTR", _NO_RAID, raid))
    yield _told(Protocol.VOLUME, *volume)
    for family in families():
        yield from _by_channel(family)
    yield _told(Protocol.VOLUME, attr("device/vendor", _BRANDS))
    yield from _by_port()
    yield _told(Protocol.SAS, _not(_PORT), attr("device/sas_address", "?*"))
    yield line(goto(END))


def _by_channel(family: Family) -> Iterator[Line]:
    """Yield what a family knows of its SCSI channels."""
    by_protocol: dict[Protocol, list[int]] = {}
    for channel in _CHANNELS:
        if (protocol := family.protocol(Evidence(channel=channel))) is not None:
            by_protocol.setdefault(protocol, []).append(channel)
    own = env(FAMILY, family.name)
    for protocol, channels in by_protocol.items():
        if protocol is Protocol.VIRTUAL:
            continue
        if len(channels) == len(_CHANNELS):
            yield _told(protocol, own)
        elif len(channels) > len(_CHANNELS) // 2:
            others = "|".join(f"*:{each}:*:*" for each in _CHANNELS if each not in channels)
            yield _told(
                protocol,
                own,
                match("SUBSYSTEMS", "scsi"),
                match("KERNELS", "*:*:*:*"),
                differs("KERNELS", others),
            )
        else:
            yield _told(protocol, own, match("KERNELS", "|".join(f"*:{c}:*:*" for c in channels)))


def _by_port() -> Iterator[Line]:
    """Yield what the SAS transport class says of the drive's port; udev starts no shell for it."""
    port = match("KERNELS", "end_device-*")
    said = match("PROGRAM", "/bin/cat /sys/class/sas_device/$id/target_port_protocols")
    yield _told(Protocol.SAS, env(_PORT, "1"), port, said, match("RESULT", "*ssp*"))
    yield _told(Protocol.SATA, env(_PORT, "1"), port, said, match("RESULT", "*sata*|*stp*"))
    yield line(env(_PORT, "1"), goto(END))


def _media() -> Iterator[Line]:
    # The kernel has set `rotational` from page B1h before the event (drivers/scsi/sd.c:
    # sd_read_block_characteristics), and nothing of ours has changed it yet.
    spoken = env(PROTOCOL, Protocol.NVME)
    yield label(TOLD)
    yield line(
        differs("ENV", Protocol.NVME, PROTOCOL),
        attr("queue/rotational", "0"),
        set_env(MEDIUM, "ssd"),
    )
    yield line(
        differs("ENV", Protocol.NVME, PROTOCOL),
        attr("queue/rotational", "1"),
        set_env(MEDIUM, "hdd"),
    )
    yield line(spoken, set_env(MEDIUM, "nvme"))
    yield line(spoken, match("KERNEL", SCSI), set_env(TRI_MODE, "1"))


def _told(protocol: Protocol, *matches: Part) -> Line:
    return line(*matches, set_env(PROTOCOL, protocol), goto(TOLD))


def _not(flag: str) -> Part:
    return differs("ENV", "1", flag)


DISKS = "|".join((SCSI, NVME, OTHER))
"""The kernel's names of what udev tunes."""
