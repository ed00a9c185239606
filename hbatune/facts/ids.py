"""Ids: names that outlive a boot, made of strings that a drive may report. Pure.

An id is ``STABLE@ADAPTER/PORT``: the drive's own name (WWN, EUI, serial number) and the route to it
(``facts.routes``). If two targets would share an id, each gets its kernel address after a ``~``,
and the id is valid for this boot only.
"""

import re
from operator import attrgetter

from hbatune.facts.model import Endpoint, Machine

# The name of a drive that reports none.
UNNAMED = "unnamed"
_OF_THIS_BOOT = r"~[^~@/]+$"
# The SCSI and NVMe prefixes of a world-wide name (drivers/scsi/scsi_lib.c: scsi_vpd_lun_id;
# drivers/nvme/host/core.c: wwid_show).
WORLD_WIDE = ("naa.", "eui.", "t10.", "uuid.", "nvme.")

# Names that identify no drive: a world-wide name of zeros or F, or zeros after the maker's number
# (SPC-4 7.8.6.6: 24 bits after the type), the kernel's name for NVMe with an empty serial number
# (drivers/nvme/host/sysfs.c: wwid_show), and serial numbers that a maker has not filled in.
_FILLER = (
    r"(naa\.|eui\.|0x)[0-9a-f]{0,7}(0{9,}|f{9,})|uuid\.[0f-]{9,}|nvme\.[0-9a-f]+-(20|30)*-.*"
    r"|(t10\..* )?(0+|f{4,}|x{4,}|0?123456789(0|abcdef)?|none|null|n/a|unknown|default\sstring"
    r"|to\sbe\sfilled\sby\so\.e\.m\.)|"
)

# The prefixes that udev's links, multipath and people put before a world-wide name's digits.
_ANNOUNCED = r"wwn-|naa\.|eui\.|0x|nvme-(?=eui\.|uuid\.|nvme\.)|uuid\.|dm-uuid-|(scsi-|mpath-)(?=3)"
_NAA = r"3([0-9a-f]{16}|[0-9a-f]{32})"  # scsi_id(8): an NAA name follows a 3
_BY_ID = "/dev/disk/by-id/"


def escape_text(text: str) -> str:
    """Return the text with characters that do not print as backslash escapes, reversibly.

    A model string may have control characters, direction marks and line separators.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        char if char.isprintable() and char != "\\" else ascii(char)[1:-1] for char in text
    )


def make_stable_name(wwid: str, *parts: str) -> str:
    """Return the world-wide name, or else the other parts, as one word. Zeros do not count."""
    if not _is_blank(wwid):
        return _join_words(wwid)
    return "-".join(_join_words(part) for part in parts if not _is_blank(part)) or UNNAMED


def _is_blank(name: str) -> bool:
    return re.fullmatch(_FILLER, name.strip(), re.IGNORECASE) is not None


def is_nameless(disk: Endpoint) -> bool:
    """Return whether a disk's id consists only of vendor, model and NVMe's namespace number."""
    namespace = disk.target.rpartition("n")[2]
    nameless = (make_stable_name("", disk.vendor, disk.model, part) for part in ("", namespace))
    return extract_stable_part(disk.id) in (UNNAMED, *nameless)


def extract_stable_part(id: str) -> str:
    """Return the part of an endpoint's id before the route; a map's id has no route."""
    head, separator, _ = id.rpartition("@")
    return head if separator else id


def extract_route(id: str) -> str:
    """Return the route in an id, without its boot-specific suffix; empty for a map."""
    return extract_lasting_part(id).rpartition("@")[2] if "@" in id else ""


def extract_lasting_part(id: str) -> str:
    """Return the part of an id that means the same in the next boot."""
    return re.sub(_OF_THIS_BOOT, "", id) if "~" in id else id


def list_spellings(id: str) -> tuple[str, ...]:
    """Return an id, the part of it that outlives a boot, and the part before the route."""
    return id, extract_lasting_part(id), extract_stable_part(id)


def normalise_name(name: str) -> str:
    """Return a stable name in a single spelling, for all spellings that people and links use.

    Case and the prefix of a world-wide name are ignored: ``naa.5000C5…``, ``0x5000c5…``,
    ``wwn-0x5000c5…``, ``/dev/disk/by-id/scsi-35000c5…`` and a map's ``mpath-35000c5…`` are one.
    """
    # Repeated, since prefixes are stacked: dm-uuid-mpath-3…, wwn-0x….
    text = name.removeprefix(_BY_ID).lower()
    while prefix := re.match(_ANNOUNCED, text):
        text = text[prefix.end() :]
    naa = re.fullmatch(_NAA, text)
    return naa[1] if naa else text


def _join_words(text: str) -> str:
    """Collapse blanks, which shells and udev split at, to one underscore."""
    return escape_text("_".join(filter(None, text.split(" "))))


class Renaming:
    """The present meaning, on one machine, of ids recorded earlier."""

    def __init__(self, machine: Machine) -> None:
        targets = (*machine.endpoints, *machine.controls, *machine.vectors)
        self._present = frozenset(map(attrgetter("id"), targets))
        self._by_diskseq = {
            e.diskseq: e.id for e in machine.endpoints if isinstance(e.diskseq, int)
        }

    def of_this_boot(self, id: str, diskseq: int | None = None) -> str:
        """Return the present id of a target of this boot, or the same id if it was removed."""
        if id in self._present or diskseq is None:
            return id
        # Its name changed: the disk could not report it then, or cannot now.
        return self._by_diskseq.get(diskseq, id)

    def that_lasts(self, id: str) -> tuple[str, ...]:
        """Return the ids of all targets that an id of any boot matches, or the same id."""
        if id in self._present:
            return (id,)
        lasting = extract_lasting_part(id)
        matches = sorted(p for p in self._present if extract_lasting_part(p) == lasting)
        return tuple(matches) or (id,)
