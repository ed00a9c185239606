"""Ids: names that outlive a boot, made of strings that a drive may fill. Pure.

An id is ``STABLE@ADAPTER/PORT``: the drive's own name (WWN, EUI, serial number) and the route to
it (``facts.routes``). No number that a boot assigns is in it. If that leaves two targets with one
id, each has its kernel address behind a ``~``: such an id is of this boot only.

Journals and configurations of earlier versions have ids with numbers that a boot assigns
(``STABLE@PCI/H:C:T:L``, ``STABLE@PCI/nvme0``, ``NAMES@PCI/irq34``, ``host0@PCI``). Their meaning
on this machine follows from the present kernel addresses.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from hbatune.facts.model import Control, Endpoint, Kind, Machine, TargetKind, Vector
from hbatune.facts.routes import name_of, place

UNNAMED = "unnamed"
"""Stands for the name of a drive that reports none."""

_OF_THIS_BOOT = r"~[^~@/]+$"
# The prefixes of SCSI and NVMe for a name that is world-wide (drivers/scsi/scsi_lib.c:
# scsi_vpd_lun_id; drivers/nvme/host/core.c: wwid_show).
WORLD_WIDE = ("naa.", "eui.", "t10.", "uuid.", "nvme.")

# The prefixes of udev's links, multipath and people for the digits of a world-wide name.
_ANNOUNCED = r"wwn-|naa\.|eui\.|0x|nvme-(?=eui\.|uuid\.|nvme\.)|uuid\.|dm-uuid-|(scsi-|mpath-)(?=3)"
_NAA = r"3([0-9a-f]{16}|[0-9a-f]{32})"  # scsi_id(8): a 3 says that an NAA name follows
_BY_ID = "/dev/disk/by-id/"

# Ids of the former form, and those of controllers and vectors among them.
_FORMER = r".*@(.*/)?(\d+:\d+:\d+:\d+|(nvme|virtio|irq|host)\d+)|(host|nvme)\d+(@[^/]+)?"
_CONTROL = r"(?P<kind>host|nvme)\d+@(?P<adapter>[^/]+)"
_VECTOR = r"(?P<names>.*)@(?P<adapter>[^/]+)/irq\d+"


def escape(text: str) -> str:
    """Return the text with characters that do not print as backslash escapes, reversibly.

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
    """Return the world-wide name, or else the other identifying parts, as one word."""
    if wwid.strip():
        return _word(wwid)
    return "-".join(_word(part) for part in parts if part.strip()) or UNNAMED


def stable_part(id: str) -> str:
    """Return the part of an endpoint's id before the route; a map's id has no route."""
    head, at, _ = id.rpartition("@")
    return head if at else id


def route_part(id: str) -> str:
    """Return the route in an id, without the part of this boot only; empty for a map."""
    return lasting(id).rpartition("@")[2] if "@" in id else ""


def lasting(id: str) -> str:
    """Return the part of an id that means the same in the next boot."""
    return re.sub(_OF_THIS_BOOT, "", id) if "~" in id else id


def of_this_boot(id: str, address: str) -> str:
    """Return an id that several targets share with one target's kernel address behind it."""
    return f"{id}~{address}"


def shared(ids: Iterable[str]) -> frozenset[str]:
    """Return the ids that occur more than once."""
    return frozenset(id for id, count in Counter(ids).items() if count > 1)


def canonical(name: str) -> str:
    """Return a stable name in one spelling for all that people and links use.

    Case does not count, nor the prefix of a world-wide name: ``naa.5000C5…``, ``0x5000c5…``,
    ``wwn-0x5000c5…``, ``/dev/disk/by-id/scsi-35000c5…`` and a map's ``mpath-35000c5…`` are one.
    """
    # Repeated, since prefixes are stacked: dm-uuid-mpath-3…, wwn-0x….
    text = name.removeprefix(_BY_ID).lower()
    while found := re.match(_ANNOUNCED, text):
        text = text[found.end() :]
    naa = re.fullmatch(_NAA, text)
    return naa[1] if naa else text


def _word(text: str) -> str:
    """Collapse blanks, which shells and udev split at, to one underscore."""
    return escape("_".join(part for part in text.split(" ") if part))


def is_former(id: str) -> bool:
    """Whether an id has the former form, with numbers that a boot assigns."""
    return re.fullmatch(_FORMER, id, re.DOTALL) is not None


def former_id(it: Endpoint | Vector | Control) -> str:
    """Return the former id of a target; a map's has not changed."""
    match it:
        case Vector():
            return f"{'+'.join(it.names) or 'unused'}@{it.adapter}/irq{it.irq}"
        case Control():
            return it.target if it.target == it.adapter else f"{it.target}@{it.adapter}"
        case Endpoint(kind=Kind.MAP):
            return lasting(it.id)
        case Endpoint():
            return f"{stable_part(it.id)}@{_former_route(it.sysfs)}"


def former_ids(machine: Machine) -> dict[str, str]:
    """Return the present id of each target, by its former id.

    Former ids that several targets would share are left out: they name none for certain.
    """
    found: dict[str, list[str]] = {}
    for it in _everything(machine):
        found.setdefault(former_id(it), []).append(it.id)
    return {former: ids[0] for former, ids in found.items() if len(ids) == 1}


class Renaming:
    """The present meaning, on one machine, of ids noted earlier in either form."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    # Each made when an id asks for it: most machines have no notes, and thousands of LUNs.

    @cached_property
    def _now(self) -> frozenset[str]:
        return frozenset(each.id for each in _everything(self._machine))

    @cached_property
    def _former(self) -> dict[str, str]:
        return former_ids(self._machine)

    @cached_property
    def _by_diskseq(self) -> dict[int, str]:
        found = self._machine.endpoints
        return {each.diskseq: each.id for each in found if isinstance(each.diskseq, int)}

    def of_this_boot(self, id: str, diskseq: int | None = None) -> str:
        """Return the present id of a target noted in this boot, the same id if it is gone.

        A disk that has another name now, because it could not report it then or cannot now, is
        recognized by its ``diskseq``.
        """
        if id in self._now:
            return id
        same = self._by_diskseq.get(diskseq) if diskseq is not None else None
        return same or self._former.get(id, id)

    def that_lasts(self, id: str) -> tuple[str, ...]:
        """Return the present ids for one noted in any boot, the same id if nothing matches.

        If it is not certain which of several targets was meant, all of them are returned.
        """
        if id in self._now:
            return (id,)
        if id in self._former:
            return (self._former[id],)
        alike = tuple(sorted(each for each in self._now if lasting(each) == lasting(id)))
        if alike:
            return alike
        moved = self._moved(id) if is_former(id) else None
        return (moved or id,)

    def _moved(self, id: str) -> str | None:
        """Return the only target that a former id can mean, by its parts that outlive a boot."""
        if found := re.fullmatch(_CONTROL, id):
            kind = TargetKind.HOST if found["kind"] == "host" else TargetKind.CONTROLLER
            return _only(
                control.id
                for control in self._machine.controls
                if control.kind is kind and control.adapter == found["adapter"]
            )
        if found := re.fullmatch(_VECTOR, id, re.DOTALL):
            return _only(
                vector.id
                for vector in self._machine.vectors
                if vector.adapter == found["adapter"] and "+".join(vector.names) == found["names"]
            )
        name, adapter = stable_part(id), id.rpartition("@")[2].partition("/")[0]
        named = [
            endpoint for endpoint in self._machine.endpoints if stable_part(endpoint.id) == name
        ]
        # On the same adapter first, then on any, since a drive may have been moved; one without a
        # name could be any of those that are unnamed now.
        there = _only(each.id for each in named if each.adapter == adapter)
        return there or (None if name == UNNAMED else _only(each.id for each in named))


def _everything(machine: Machine) -> Iterator[Endpoint | Control | Vector]:
    yield from machine.endpoints
    yield from machine.controls
    yield from machine.vectors


def _only(ids: Iterable[str]) -> str | None:
    found = list(ids)
    return found[0] if len(found) == 1 else None


def unmapped(ids: Iterable[str], known: Mapping[str, object]) -> tuple[str, ...]:
    """Return the ids of the former form that are not among those ``known``."""
    return tuple(dict.fromkeys(id for id in ids if id not in known and is_former(id)))


def _former_route(directory: str) -> str:
    """Return the adapter, and H:C:T:L or controller, of the disk with this sysfs directory."""
    found = place(directory)
    branch = found.branch
    leaf = found.address or (branch.controller and name_of(branch.controller))
    if not leaf and branch.adapter:
        leaf = name_of(branch.bound or directory)
    return "/".join(dict.fromkeys(part for part in (branch.adapter, leaf) if part)) or name_of(
        directory
    )
