"""What the device at hand lets a setting be: pure functions over its facts.

The limits are planned, not hit: the kernel answers some of them with EINVAL, some by silently
setting something else, and some by doing nothing at all.
"""

from msgspec import Struct

from hbatune.facts.model import Attribute, Control, Endpoint, Kind, TargetKind
from hbatune.settings.table import MAX_HW_SECTORS, MAX_SCHEDULER_REQUESTS, SETTINGS, Value, choices

PAGE_KB = 4
READ_ONLY = "read-only in this driver"
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
    if name == "scheduler":
        return _scheduler(wanted, attribute)
    assert isinstance(wanted, int)
    assert isinstance(current, int)
    if name == "nr_requests":
        return _requests(wanted, current, endpoint, scheduler)
    if name == "queue_depth":
        return _depth(wanted, endpoint)
    if name == "max_sectors_kb":
        return _max_sectors(wanted, current, endpoint)
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
    wanted: int, current: int, endpoint: Endpoint, scheduler: Value | None
) -> Legal | Fixed:
    if scheduler != "none":
        return _at_most(wanted, MAX_SCHEDULER_REQUESTS, "{} with a scheduler")
    if not isinstance(endpoint.tags, int):
        return Fixed("the size of the tag set is not known")
    # With `none` the number is the size of the tag set that all LUNs of the adapter share
    # (block/blk-mq.c: blk_mq_update_nr_requests): lowering it for one lowers it for all, and it
    # stays low when the scheduler comes back. A switch to `none` sets it to the whole tag set.
    now = current if _runs_without_scheduler(endpoint) else endpoint.tags
    if wanted < now:
        return Legal(now, f"never lowered with scheduler none: {now} is the adapter's")
    return _at_most(wanted, endpoint.tags, "tag set of {} with scheduler none")


def _runs_without_scheduler(endpoint: Endpoint) -> bool:
    attribute = endpoint.attributes.get(SETTINGS["scheduler"].path)
    if not isinstance(attribute, Attribute):
        return False
    try:
        return SETTINGS["scheduler"].parse(attribute.text) == "none"
    except ValueError:
        return False


def _depth(wanted: int, endpoint: Endpoint) -> Legal | Fixed:
    if endpoint.depth_trap is not None:
        return Fixed(endpoint.depth_trap)
    if not isinstance(endpoint.depth_cap, int):
        return Fixed("the adapter's can_queue is not known")
    return _at_most(wanted, endpoint.depth_cap, "the device takes {} at most")


def _max_sectors(wanted: int, current: int, endpoint: Endpoint) -> Legal | Fixed:
    if endpoint.kind is Kind.PATH and wanted < current:
        # Larger clones of the map then fail with an I/O error (block/blk-mq.c:
        # blk_insert_cloned_request); the map takes its limits over only at a table load.
        return Fixed("lowering it on a path of a live map fails I/O")
    hardware = endpoint.attributes.get(MAX_HW_SECTORS)
    if not isinstance(hardware, Attribute) or not hardware.text.isdecimal():
        return Fixed("the hardware's limit is not known")
    return _at_most(wanted, int(hardware.text), "the hardware takes {} at most")


def _at_most(wanted: int, ceiling: int, limit: str) -> Legal:
    return Legal(ceiling, limit.format(ceiling)) if wanted > ceiling else Legal(wanted)
