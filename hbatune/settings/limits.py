"""The limits that a device imposes on a setting: pure functions, named by the table's entries.

Limits are planned, not found by trial: the kernel may answer with EINVAL, silently set another
value, or do nothing at all. Each function is called twice: by the plan, with the surveyed
attributes, and by the worker just before it writes, with newly read attributes.

The limits of an interrupt are the CPUs that it may use: the spread over the CPUs near its adapter.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps

from hbatune.facts import names
from hbatune.facts.model import (
    TAG_COUNT_FILE,
    Attribute,
    Kind,
    Missing,
    Processors,
    Reason,
    Role,
    Vector,
)
from hbatune.facts.routes import MULTIPATH_UUID
from hbatune.settings.setting import (
    LOCAL_CPUS,
    Attributes,
    Device,
    FixedSetting,
    LegalValue,
    Limit,
    Value,
    VectorCpus,
    parse_choices,
    parse_selected,
    read_with,
)

SCHEDULER_FILE = "queue/scheduler"

LOADABLE_SCHEDULERS = frozenset({"kyber", "bfq"})
"""Schedulers that distributions build as modules, which a write of their name loads
(block/elevator.c: elv_iosched_load_module). The other schedulers are built in or missing."""

MAX_HW_SECTORS = "queue/max_hw_sectors_kb"
"""The largest request that the adapter accepts, in KiB; a fact, not a setting."""

HOLDER_UUIDS, HOLDER_SECTORS = "holders/*/dm/uuid", "holders/*/queue/max_sectors_kb"
"""The devices on a disk: dm UUIDs, which identify multipath maps, and largest requests in KiB."""

SLAVE_SECTORS = "slaves/*/queue/max_sectors_kb"
"""The largest request of each path of a map, in KiB."""

SCSI_TIMEOUT = "device/timeout"
"""The timeout of a command of a SCSI disk, in s: the queue's io_timeout in another unit."""

RECONNECT_DELAY = "reconnect_delay"
"""Seconds between two attempts to reconnect a lost NVMe controller."""

MAX_SCHEDULER_REQUESTS = 2048
"""The maximum number of requests with a scheduler (block/blk-mq.h: MAX_SCHED_RQ); else EINVAL."""

PAGE_KB = 4
_BELOW_MAP = "lowering it on a path of a live map fails I/O"

INFERRED_NOTE = (
    "; inferred from the driver and the vector's name: this kernel says so only at a write"
)

_Rank = tuple[int, int, int]


def limit_numbers(limit: Callable[[int, int, Device], LegalValue | FixedSetting]) -> Limit:
    """Convert a limit of numbers to one that accepts values of other types unchanged."""

    @wraps(limit)
    def checked(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
        if isinstance(wanted, int) and isinstance(current, int):
            return limit(wanted, current, device)
        return LegalValue(wanted)

    return checked


def limit_to_file(path: str, limit: str) -> Limit:
    """Return the limit to the number in the file at ``path``.

    ``limit`` is the reason as text, with ``{}`` for the number.
    """

    def checked(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
        attribute = device.attributes.get(path)
        maximum = _parse_number(attribute)
        if maximum is None:
            return FixedSetting(f"{path} is not known", _is_unread(attribute))
        return _limit_value(wanted, maximum, limit)

    # docs/settings.md prints a limit's docstring.
    checked.__doc__ = f"At most what `{path}` says."
    return limit_numbers(checked)


def limit_minimum_or_zero(minimum: int) -> Limit:
    """Return the limit of a number that is 0 or at least ``minimum``."""

    def checked(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
        if 0 < wanted < minimum:
            return LegalValue(minimum, f"the driver takes {minimum} at least")
        return LegalValue(wanted)

    checked.__doc__ = f"At least {minimum}, or 0."
    return limit_numbers(checked)


def limit_to_offered(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
    """One that the kernel has; a device that passes I/O on, such as a bio-based map, has none."""
    attribute = device.attributes.get(SCHEDULER_FILE)
    if not isinstance(attribute, Attribute):
        return LegalValue(wanted)
    schedulers = parse_choices(attribute.text)
    if not schedulers:
        # Writes succeed without effect (block/elevator.c: elv_iosched_store).
        return FixedSetting("this device passes I/O on and has no scheduler")
    # The file lists the loaded schedulers; the write of another name loads its module, if any.
    if wanted not in schedulers and wanted not in LOADABLE_SCHEDULERS:
        return FixedSetting(f"this kernel offers {', '.join(schedulers)} here")
    return LegalValue(wanted)


@limit_numbers
def limit_requests(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """2048 with a scheduler; with `none` the adapter's tag set, below which it is never lowered."""
    if device.scheduler != "none":
        return _limit_value(wanted, MAX_SCHEDULER_REQUESTS, "{} with a scheduler")
    attribute = device.attributes.get(TAG_COUNT_FILE)
    tags = _parse_number(attribute)
    if tags is None:
        return FixedSetting("the size of the tag set is not known", _is_unread(attribute))
    # With `none` the number is the size of the tag set that all LUNs of the adapter share
    # (block/blk-mq.c: blk_mq_update_nr_requests). Lowering it for one LUN lowers it for all, and it
    # stays low after a switch to another scheduler. A switch to `none` sets it to the entire tag
    # set.
    in_effect = current if find_scheduler(device.attributes) == "none" else tags
    if wanted < in_effect:
        return LegalValue(
            in_effect, f"never lowered with scheduler none: {in_effect} is the adapter's"
        )
    return _limit_value(wanted, tags, "tag set of {} with scheduler none")


@limit_numbers
def limit_depth(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """At most the adapter's `can_queue`, or the driver's limit for a LUN if that is less."""
    endpoint = device.endpoint
    if endpoint is None:  # the kernel answers a write above the maximum with EINVAL, or lowers it
        return LegalValue(wanted)
    if endpoint.depth_trap is not None:
        return FixedSetting(endpoint.depth_trap)
    if not isinstance(endpoint.depth_cap, int):
        return FixedSetting("the adapter's can_queue is not known", _is_unread(endpoint.depth_cap))
    return _limit_value(wanted, endpoint.depth_cap, "the device takes {} at most")


@limit_numbers
def limit_max_sectors(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """At most the limit of the hardware and of each path; a path of a live map is not lowered.

    A map sends requests of its own largest size down any path; a request that is too large for
    the path fails.
    """
    # block/blk-mq.c: blk_insert_cloned_request. The map copies its limits from its paths only when
    # its table is loaded.
    attributes, endpoint = device.attributes, device.endpoint
    largest_map = max(
        _get_map_sectors(attributes).items(), key=lambda sizes: sizes[1], default=None
    )
    if largest_map is not None and wanted < largest_map[1]:
        return FixedSetting(f"{_BELOW_MAP}: {largest_map[0]} sends up to {largest_map[1]} KiB")
    # A path of a map whose size could not be read: a smaller value could fail the map's I/O.
    unseen = endpoint is not None and endpoint.kind is Kind.PATH and largest_map is None
    if unseen and wanted < current:
        return FixedSetting(_BELOW_MAP)
    paths = _get_sectors(attributes, SLAVE_SECTORS)
    smallest_path = min(paths.items(), key=lambda sizes: sizes[1], default=None)
    if smallest_path is not None and wanted > smallest_path[1]:
        return LegalValue(
            smallest_path[1], f"its path {smallest_path[0]} takes {smallest_path[1]} KiB at most"
        )
    hardware = _parse_number(attributes.get(MAX_HW_SECTORS))
    if hardware is None:
        return FixedSetting(
            "the hardware's limit is not known", _is_unread(attributes.get(MAX_HW_SECTORS))
        )
    return _limit_value(wanted, hardware, "the hardware takes {} at most")


@limit_numbers
def limit_to_pages(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """Whole pages of 4 KiB: the kernel rounds down."""
    excess = wanted % PAGE_KB
    return (
        LegalValue(wanted - excess, f"whole pages of {PAGE_KB} KiB")
        if excess
        else LegalValue(wanted)
    )


@limit_numbers
def limit_request_timeout(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """A SCSI disk has `timeout` in its place, which is the same in another unit."""
    # Both are the queue's rq_timeout (drivers/scsi/scsi_sysfs.c: sdev_show_timeout). Two settings
    # for one value would override each other.
    if isinstance(device.attributes.get(SCSI_TIMEOUT), Attribute):
        return FixedSetting("the same as `timeout`, which is the setting of a SCSI disk")
    return LegalValue(wanted)


@limit_numbers
def limit_reconnects(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """Whole attempts, one every `reconnect_delay` seconds: the kernel rounds up."""
    if wanted < 0:
        return LegalValue(wanted)
    delay = _parse_number(device.attributes.get(RECONNECT_DELAY))
    if not delay:
        unread = _is_unread(device.attributes.get(RECONNECT_DELAY))
        return FixedSetting(f"{RECONNECT_DELAY} is not known", unread)
    missing = -wanted % delay
    return (
        LegalValue(wanted + missing, f"whole attempts, one every {delay} s")
        if missing
        else LegalValue(wanted)
    )


def find_scheduler(attributes: Attributes) -> Value | None:
    """Return the current scheduler, or None if the device has no scheduler or it cannot be read."""
    scheduler = read_with(parse_selected, attributes, SCHEDULER_FILE)
    return None if isinstance(scheduler, Missing) else scheduler


def find_multipath_maps(attributes: Attributes) -> frozenset[str]:
    """Return the kernel names of the multipath maps on the disk."""
    uuids = _match_files(attributes, HOLDER_UUIDS)
    return frozenset(name for name, text in uuids.items() if text.startswith(MULTIPATH_UUID))


def _get_map_sectors(attributes: Attributes) -> dict[str, int]:
    """Return the largest request of each multipath map on the disk, in KiB."""
    maps = find_multipath_maps(attributes)
    return {
        name: size
        for name, size in _get_sectors(attributes, HOLDER_SECTORS).items()
        if name in maps
    }


def _get_sectors(attributes: Attributes, pattern: str) -> dict[str, int]:
    sizes = _match_files(attributes, pattern)
    return {name: int(text) for name, text in sizes.items() if text.isdecimal()}


def _match_files(attributes: Attributes, pattern: str) -> dict[str, str]:
    """Return the texts of the files that match ``FOLDER/*/LEAF``, by the text that ``*`` matches.

    For holders and slaves, the key is a kernel name.
    """
    folder, _, leaf = pattern.partition("*")
    return {
        path[len(folder) : -len(leaf)]: attribute.text
        for path, attribute in attributes.items()
        if path.startswith(folder) and path.endswith(leaf) and isinstance(attribute, Attribute)
    }


def _is_unread(attribute: object) -> bool:
    return isinstance(attribute, Missing) and attribute.reason is Reason.UNREADABLE


def _parse_number(attribute: Attribute | Missing | None) -> int | None:
    text = attribute.text if isinstance(attribute, Attribute) else ""
    return int(text) if text.isdecimal() else None


def _limit_value(wanted: int, ceiling: int, limit: str) -> LegalValue:
    return LegalValue(ceiling, limit.format(ceiling)) if wanted > ceiling else LegalValue(wanted)


def spread_vectors(
    vectors: Iterable[Vector], processors: Processors, local_cpus: Mapping[str, Collection[int]]
) -> dict[str, int]:
    """Return the CPU of each free data vector, by the vector's id.

    A vector goes to a usable CPU near its adapter, and to a farther one only if none is near.
    Each vector takes the CPU with the fewest vectors so far, the first thread of a core before its
    siblings. No CPU gets a second vector while an equally near CPU is free. Vectors without a
    usable CPU are omitted.
    """
    allowed = list_usable_cpus(processors)
    rank = {cpu: place for core in processors.cores for place, cpu in enumerate(core)}
    load: Counter[int] = Counter()
    placed: dict[str, int] = {}

    def key(cpu: int) -> _Rank:
        return load[cpu], rank.get(cpu, 0), cpu

    # In the order of the interrupts, so the same machine always gets the same spread: another order
    # would look like drift.
    for vector in sorted(filter(is_free, vectors), key=lambda vector: vector.irq):
        near = local_cpus.get(vector.adapter, ())
        candidates = [cpu for cpu in allowed if cpu in near] or allowed
        if candidates:
            placed[vector.id] = min(candidates, key=key)
            load[placed[vector.id]] += 1
    return placed


def list_usable_cpus(processors: Processors) -> tuple[int, ...]:
    """Return the CPUs that interrupts may use.

    They are online, neither isolated nor nohz_full, within ``irqaffinity=`` of the kernel's command
    line, and not banned in irqbalance's settings.
    """
    reserved = {*processors.isolated, *processors.nohz_full}
    return tuple(
        cpu
        for cpu in processors.online
        if cpu not in reserved
        and all(
            cpu in allowed
            for allowed in (processors.irqaffinity, processors.balanced)
            if allowed is not None  # None: not restricted; an empty tuple allows no CPU
        )
    )


def is_free(vector: Vector) -> bool:
    """Return whether a vector is an adapter's own, for data, and not managed by the kernel."""
    return vector.role is Role.DATA and not vector.managed


def limit_affinity(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
    """Managed vectors stay where the kernel put them; `local` is one CPU near the adapter for each.

    CPUs that are isolated, nohz_full, left out by `irqaffinity=` or banned in irqbalance's settings
    are not used.
    """
    vector, room = device.vector, device.room
    if vector is None or room is None:
        return LegalValue(wanted)
    if vector.managed:
        return FixedSetting(_explain_managed(vector))
    if wanted != LOCAL_CPUS:
        return _check_list(str(wanted), room.processors)
    cpu = room.placed.get(vector.id)
    if cpu is None:
        return FixedSetting(_explain_none(room.processors))
    return LegalValue(
        str(cpu), "; ".join([_describe_choice(cpu, room), *_list_exclusions(room.processors)])
    )


def _describe_choice(cpu: int, room: VectorCpus) -> str:
    if not room.local:
        return "one CPU for each vector"
    if cpu in room.local:
        return f"one CPU of {names.join_cpus(room.local)}, which are near the adapter"
    return "no CPU near the adapter may be used: one farther away"


def _list_exclusions(processors: Processors) -> list[str]:
    """Return the reasons why some CPUs are excluded from interrupts."""
    reasons = []
    if processors.irqaffinity is not None:
        reasons.append(
            f"irqaffinity={names.join_cpus(processors.irqaffinity)} on the kernel's command line"
        )
    if processors.balanced is not None:
        banned = set(processors.online) - set(processors.balanced)
        reasons.append(f"CPUs {names.join_cpus(banned)} are banned in irqbalance's settings")
    return reasons


def _explain_none(processors: Processors) -> str:
    """Return the reason why no CPU is usable."""
    if processors.irqaffinity == ():
        return "irqaffinity= on the kernel's command line makes no sense"
    if processors.balanced == ():
        return "irqbalance's banned CPUs make no sense, or leave none"
    reasons = _list_exclusions(processors)
    if reasons:
        return f"no CPU is left for interrupts: {'; '.join(reasons)}"
    return "every CPU is isolated or nohz_full"


def _check_list(wanted: str, processors: Processors) -> LegalValue | FixedSetting:
    cpus = names.parse_cpus(wanted)
    # A single online CPU is sufficient for the kernel.
    if not set(cpus) & set(processors.online):
        return FixedSetting("none of these CPUs is online")  # EINVAL (kernel/irq/proc.c)
    outside = set(cpus) - set(list_usable_cpus(processors))
    reasons = _list_exclusions(processors)
    # The rule names these CPUs for these vectors, which overrides a setting for the entire machine.
    why = f"although {'; '.join(reasons)}" if outside and reasons else None
    return LegalValue(names.join_cpus(cpus), why)


def _explain_managed(vector: Vector) -> str:
    """Return why a managed vector stays, and how to free it.

    See isolcpus=managed_irq in Documentation/admin-guide.
    """
    why = "set by the kernel (managed interrupt); to change it, boot with isolcpus=managed_irq,…"
    if vector.unmanaged_by:
        why += f" or load the driver with {vector.unmanaged_by}"
    return why + (INFERRED_NOTE if vector.inferred else "")
