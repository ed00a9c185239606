"""What the rules never touch: what is no plain disk, and what was excluded by any of its names.

Where udev cannot say a name exactly, more is left alone than was meant, which the daemon tunes.
"""

import re
from collections.abc import Collection, Iterator

from hbatune.policy.config import Site
from hbatune.udevrules.classes import END
from hbatune.udevrules.line import (
    Line,
    Section,
    attr,
    differs,
    env,
    goto,
    line,
    literal,
    match,
    plain,
    set_env,
)

# What scsi_device and NVMe call a name that is world-wide (drivers/scsi/scsi_lib.c:
# scsi_vpd_lun_id; drivers/nvme/host/core.c: wwid_show).
_WORLD_WIDE = ("naa.", "eui.", "t10.", "uuid.", "nvme.")
_WWID = ".HBATUNE_WWID"
_KERNELS_OWN = re.compile(
    r"[sv]d[a-z]+|nvme\d+(c\d+)?(n\d+)?|(host|virtio|dm-|irq)\d+"
    r"|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
)
_ODD = "*[!] -[^-~]*"
"""Fits what has a backslash, or anything that is not printable ASCII."""


def hands_off(site: Site, excluded: Collection[str], *, asks_for_names: bool) -> Iterator[Section]:
    """Yield the lines that leave disks alone, those with these ids among them.

    ``asks_for_names`` is whether any rule depends on what a drive calls itself.
    """
    yield Section(
        "Hands off: maps and their paths, what is zoned, what has no medium.",
        (
            line(match("DEVPATH", "/devices/virtual/*"), goto(END)),
            line(env("DM_MULTIPATH_DEVICE_PATH", "1"), goto(END)),
            line(attr("queue/zoned", "?*"), differs("ATTR", "none", "queue/zoned"), goto(END)),
            line(attr("removable", "1"), attr("size", "0"), goto(END)),
        ),
    )
    if asks_for_names:
        yield Section(
            "Hands off: a name that is not all plain, which globs would read otherwise.",
            (
                *(
                    line(attr(path, glob), goto(END))
                    for path in ("device/vendor", "device/model")
                    for glob in (_ODD, " *")
                ),
            ),
        )
    yield Section("Excluded in [site], or rolled back.", tuple(_excluding(site, excluded)))


def _excluding(site: Site, excluded: Collection[str]) -> Iterator[Line]:
    """Yield lines that leave at least these alone: by what a name means, or its place."""
    for id in excluded:
        yield line(match("KERNELS", place(id)), goto(END))
    composite = False
    for name in site.exclude:
        if "@" in name:
            yield line(match("KERNELS", place(name)), goto(END))
            continue
        if name.startswith(_WORLD_WIDE):
            for path in ("device/wwid", "wwid"):
                yield line(attr(path, _loosely(name)), goto(END))
            continue
        kernel = name.removeprefix("/dev/")
        yield line(match("KERNELS", _loosely(kernel)), goto(END))
        composite = composite or not _KERNELS_OWN.fullmatch(kernel)
    if composite:  # a name made of vendor, model and serial number, which udev cannot see
        yield line(attr("device/wwid", "?*"), set_env(_WWID, "1"))
        yield line(attr("wwid", "?*"), set_env(_WWID, "1"))
        yield line(differs("ENV", "1", _WWID), goto(END))


def place(id: str) -> str:
    """Return what the device at the end of an id's path is called (``identity.path_name``)."""
    return _loosely(id.rpartition("@")[2].rpartition("/")[2])


def _loosely(text: str) -> str:
    """Return a glob that fits the text at least; blanks, escaped ones too, have become ``_``."""
    return "".join(literal(char) if plain(char) and char != "_" else "*" for char in text)
