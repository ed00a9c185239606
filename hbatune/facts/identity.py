"""Names that stay: what an endpoint's id is made of, out of strings that a drive may fill.

An id is ``STABLE@ADAPTER/PORT``: what the drive calls itself (WWN, EUI, serial number) and the
route to it (``facts.routes``). No number that a boot assigns is in it. Where that leaves two
targets with one id, each has its kernel address behind a ``~``: such an id is of this boot only.
"""

import re
from collections import Counter
from collections.abc import Iterable

UNNAMED = "unnamed"
"""What stands for the name of a drive that reports none."""

_OF_THIS_BOOT = re.compile(r"~[^~@/]+$")
# What SCSI and NVMe put before a name that is world-wide (drivers/scsi/scsi_lib.c:
# scsi_vpd_lun_id; drivers/nvme/host/core.c: wwid_show).
WORLD_WIDE = ("naa.", "eui.", "t10.", "uuid.", "nvme.")

# What udev's links, multipath and people put before the digits of a world-wide name.
_ANNOUNCED = re.compile(
    r"wwn-|naa\.|eui\.|0x|nvme-(?=eui\.|uuid\.|nvme\.)|uuid\.|dm-uuid-|(scsi-|mpath-)(?=3)"
)
_NAA = re.compile(r"3([0-9a-f]{16}|[0-9a-f]{32})")  # scsi_id(8): a 3 says that an NAA name follows
_BY_ID = "/dev/disk/by-id/"


def escape(text: str) -> str:
    """Return the text with whatever does not print as a backslash escape, reversibly.

    Control characters, direction marks and line separators of a model string would otherwise
    reach terminals, udev rules and file names.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def stable_name(wwid: str, *parts: str) -> str:
    """Return the world-wide name, or what else tells the device, as one word without blanks."""
    if wwid.strip():
        return _word(wwid)
    return "-".join(_word(part) for part in parts if part.strip()) or UNNAMED


def stable_part(id: str) -> str:
    """Return what an endpoint's id says before its route: the whole id of a map, which has none."""
    head, at, _ = id.rpartition("@")
    return head if at else id


def route_part(id: str) -> str:
    """Return the route in an id, without what holds for this boot only; empty for a map."""
    return lasting(id).rpartition("@")[2] if "@" in id else ""


def lasting(id: str) -> str:
    """Return the part of an id that means the same in the next boot."""
    return _OF_THIS_BOOT.sub("", id)


def of_this_boot(id: str, address: str) -> str:
    """Return an id that several targets share with one target's kernel address behind it."""
    return f"{id}~{address}"


def shared(ids: Iterable[str]) -> frozenset[str]:
    """Return the ids that occur more than once."""
    return frozenset(id for id, count in Counter(ids).items() if count > 1)


def canonical(name: str) -> str:
    """Return a stable name in the one spelling that stands for all that people and links use.

    Case does not count, nor what announces a world-wide name: ``naa.5000C5…``, ``0x5000c5…``,
    ``wwn-0x5000c5…``, ``/dev/disk/by-id/scsi-35000c5…`` and a map's ``mpath-35000c5…`` are one.
    """
    text = name.removeprefix(_BY_ID).lower()
    while found := _ANNOUNCED.match(text):
        text = text[found.end() :]
    naa = _NAA.fullmatch(text)
    return naa[1] if naa else text


def _word(text: str) -> str:
    """Collapse blanks, which shells and udev split at, to one underscore."""
    return escape("_".join(part for part in text.split(" ") if part))
