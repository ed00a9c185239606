"""What the device at hand lets a setting be: pure functions over its facts.

The limits are planned, not hit: the kernel answers some of them with EINVAL, some by silently
setting something else, and some by doing nothing at all.
"""

from collections.abc import Mapping

from msgspec import Struct

from hbatune.facts.model import TAGS, Attribute, Control, Endpoint, Kind, Missing, TargetKind
from hbatune.facts.place import MULTIPATH_UUID
from hbatune.facts.targets import target_of
from hbatune.settings.table import (
    HOLDER_SECTORS,
    HOLDER_UUIDS,
    MAX_HW_SECTORS,
    MAX_SCHEDULER_REQUESTS,
    SETTINGS,
    SLAVE_SECTORS,
    Value,
    choices,
)

Attributes = Mapping[str, Attribute | Missing]
"""What was read of a device, by path below its directory."""

PAGE_KB = 4
READ_ONLY = "read-only in this driver"
_BELOW_MAP = "lowering it on a path of a live map fails I/O"
_IMAX_LOW = 5000  # lpfc_hw4.h: LPFC_MIN_IMAX; 0 is automatic


class Legal(Struct, frozen=True):
    """The value to set in place of the wanted one, and why where they differ."""

    value: Value
    limit: str | None = None


class Fixed(Struct, frozen=True):
    """Nobody can set it on this device."""

    limit: str


def resolve_endpoint(
    endpoint: Endpoint, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return what ``wanted`` becomes on this endpoint, under the scheduler that is planned."""
    attribute = endpoint.attributes.get(SETTINGS[name].path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        return Fixed(READ_ONLY)
    if name == "queue_depth":
        assert isinstance(wanted, int)
        return _depth(wanted, endpoint)
    found = target_of(endpoint).attributes
    if name == "max_sectors_kb" and endpoint.kind is Kind.PATH and not _map_sectors(found):
        assert isinstance(wanted, int)
        assert isinstance(current, int)
        if wanted < current:
            return Fixed(_BELOW_MAP)
    return legal(name, wanted, current, found, scheduler)


def legal(
    name: str,
    wanted: Value,
    current: Value,
    attributes: Attributes,
    scheduler: Value | None,
) -> Legal | Fixed:
    """Return what may be written of ``wanted`` to a block device with these attributes.

    This is the one place that says which writes to a queue are legal: plans ask it with the
    attributes that were surveyed and the ``scheduler`` that is planned, workers with those that
    they have read just before a write and the scheduler that is in force.
    """
    if name == "scheduler":
        return _scheduler(wanted, attributes.get(SETTINGS[name].path))
    if not isinstance(wanted, int) or not isinstance(current, int):
        return Legal(wanted)
    if name == "nr_requests":
        return _requests(wanted, current, attributes, scheduler)
    if name == "max_sectors_kb":
        return _max_sectors(wanted, attributes)
    if name == "read_ahead_kb" and wanted % PAGE_KB:
        return Legal(wanted - wanted % PAGE_KB, f"whole pages of {PAGE_KB} KiB")
    return Legal(wanted)


def resolve_control(
    control: Control, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return what ``wanted`` becomes on an NVMe controller or a SCSI host."""
    setting = SETTINGS[name]
    if setting.at_load:
        if wanted == current:
            return Legal(wanted)
        return Fixed(f"an option of the driver's module: takes {name}={wanted} when it is loaded")
    attribute = control.attributes.get(setting.path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        nvme = setting.on is TargetKind.CONTROLLER
        return Fixed("the controller says that it cannot be changed" if nvme else READ_ONLY)
    if name == "lpfc_fcp_imax" and isinstance(wanted, int) and 0 < wanted < _IMAX_LOW:
        return Legal(_IMAX_LOW, f"the driver takes {_IMAX_LOW} at least")
    return Legal(wanted)


def _scheduler(wanted: Value, attribute: object) -> Legal | Fixed:
    if isinstance(attribute, Attribute) and not choices(attribute.text):
        # Writes succeed and do nothing (block/elevator.c: elv_iosched_store).
        return Fixed("this device passes I/O on and has no scheduler")
    return Legal(wanted)


def _requests(
    wanted: int, current: int, attributes: Attributes, scheduler: Value | None
) -> Legal | Fixed:
    if scheduler != "none":
        return _at_most(wanted, MAX_SCHEDULER_REQUESTS, "{} with a scheduler")
    tags = _number(attributes.get(TAGS))
    if tags is None:
        return Fixed("the size of the tag set is not known")
    # With `none` the number is the size of the tag set that all LUNs of the adapter share
    # (block/blk-mq.c: blk_mq_update_nr_requests): lowering it for one lowers it for all, and it
    # stays low when the scheduler comes back. A switch to `none` sets it to the whole tag set.
    now = current if scheduler_of(attributes) == "none" else tags
    if wanted < now:
        return Legal(now, f"never lowered with scheduler none: {now} is the adapter's")
    return _at_most(wanted, tags, "tag set of {} with scheduler none")


def scheduler_of(attributes: Attributes) -> Value | None:
    """Return the scheduler in force, None where the device has none or it cannot be read."""
    setting = SETTINGS["scheduler"]
    found = attributes.get(setting.path)
    if not isinstance(found, Attribute):
        return None
    try:
        return setting.parse(found.text)
    except ValueError:
        return None


def _depth(wanted: int, endpoint: Endpoint) -> Legal | Fixed:
    if endpoint.depth_trap is not None:
        return Fixed(endpoint.depth_trap)
    if not isinstance(endpoint.depth_cap, int):
        return Fixed("the adapter's can_queue is not known")
    return _at_most(wanted, endpoint.depth_cap, "the device takes {} at most")


def _max_sectors(wanted: int, attributes: Attributes) -> Legal | Fixed:
    # A map sends requests of its own largest size down any path; one that a path does not take
    # fails (block/blk-mq.c: blk_insert_cloned_request). The map takes its limits over from its
    # paths only when its table is loaded.
    least = max(_map_sectors(attributes).items(), key=lambda each: each[1], default=None)
    if least is not None and wanted < least[1]:
        return Fixed(f"{_BELOW_MAP}: {least[0]} sends up to {least[1]} KiB")
    paths = _sectors(attributes, SLAVE_SECTORS)
    most = min(paths.items(), key=lambda each: each[1], default=None)
    if most is not None and wanted > most[1]:
        return Legal(most[1], f"its path {most[0]} takes {most[1]} KiB at most")
    hardware = _number(attributes.get(MAX_HW_SECTORS))
    if hardware is None:
        return Fixed("the hardware's limit is not known")
    return _at_most(wanted, hardware, "the hardware takes {} at most")


def _map_sectors(attributes: Attributes) -> dict[str, int]:
    """Return the largest request of each multipath map that stands on the disk, in KiB."""
    maps = multipath_maps(attributes)
    return {
        name: size for name, size in _sectors(attributes, HOLDER_SECTORS).items() if name in maps
    }


def multipath_maps(attributes: Attributes) -> frozenset[str]:
    """Return the kernel names of the multipath maps that stand on the disk."""
    found = _matched(attributes, HOLDER_UUIDS)
    return frozenset(name for name, text in found.items() if text.startswith(MULTIPATH_UUID))


def _sectors(attributes: Attributes, pattern: str) -> dict[str, int]:
    found = _matched(attributes, pattern)
    return {name: int(text) for name, text in found.items() if text.isdecimal()}


def _matched(attributes: Attributes, pattern: str) -> dict[str, str]:
    """Return the texts of the files that fit ``FOLDER/*/LEAF``, by what the ``*`` stands for."""
    folder, _, leaf = pattern.partition("*")
    return {
        path[len(folder) : -len(leaf)]: found.text
        for path, found in attributes.items()
        if path.startswith(folder) and path.endswith(leaf) and isinstance(found, Attribute)
    }


def _number(found: Attribute | Missing | None) -> int | None:
    text = found.text if isinstance(found, Attribute) else ""
    return int(text) if text.isdecimal() else None


def _at_most(wanted: int, ceiling: int, limit: str) -> Legal:
    return Legal(ceiling, limit.format(ceiling)) if wanted > ceiling else Legal(wanted)
