"""The limits that a device sets to a setting: pure functions, named by the entries of the table.

The limits are planned, not hit: the kernel answers some of them with EINVAL, some by silently
setting something else, and some by doing nothing at all. Each function is called twice: by the
plan, with the surveyed attributes, and by the worker just before it writes, with those of that
moment.

The limits of an interrupt are where it may go: the spread over the CPUs near its adapter.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps

from hbatune.facts import names
from hbatune.facts.model import TAGS, Attribute, Kind, Missing, Processors, Reason, Role, Vector
from hbatune.facts.routes import MULTIPATH_UUID
from hbatune.settings.setting import (
    LOCAL,
    Attributes,
    Device,
    Fixed,
    Legal,
    Limit,
    Room,
    Value,
    choices,
    selected,
)

SCHEDULER_FILE = "queue/scheduler"

LOADABLE = frozenset({"kyber", "bfq"})
"""Schedulers that distributions build as modules, which a write of their name loads
(block/elevator.c: elv_iosched_load_module). The others are there or not."""

MAX_HW_SECTORS = "queue/max_hw_sectors_kb"
"""The largest request that the adapter takes, in KiB; a fact, not a setting."""

HOLDER_UUIDS, HOLDER_SECTORS = "holders/*/dm/uuid", "holders/*/queue/max_sectors_kb"
"""The devices on a disk: dm UUIDs, which tell multipath maps, and largest requests in KiB."""

SLAVE_SECTORS = "slaves/*/queue/max_sectors_kb"
"""The largest request of each path of a map, in KiB."""

SCSI_TIMEOUT = "device/timeout"
"""How long a command of a SCSI disk may take, in s: the queue's io_timeout in another unit."""

RECONNECT_DELAY = "reconnect_delay"
"""Seconds between two attempts to connect a lost NVMe controller again."""

MAX_SCHEDULER_REQUESTS = 2048
"""Most requests with a scheduler (block/blk-mq.h: MAX_SCHED_RQ); more is EINVAL."""

PAGE_KB = 4
_BELOW_MAP = "lowering it on a path of a live map fails I/O"

INFERRED = "; inferred from the driver and the vector's name: this kernel says so only at a write"

_Rank = tuple[int, int, int]


def numeric(limit: Callable[[int, int, Device], Legal | Fixed]) -> Limit:
    """Return a limit of numbers as one that lets values of other types pass."""

    @wraps(limit)
    def checked(wanted: Value, current: Value, device: Device) -> Legal | Fixed:
        if isinstance(wanted, int) and isinstance(current, int):
            return limit(wanted, current, device)
        return Legal(wanted)

    return checked


def at_most(path: str, limit: str) -> Limit:
    """Return the limit to the number in the file at ``path``.

    ``limit`` is the reason in words, with ``{}`` for the number.
    """

    def checked(wanted: int, current: int, device: Device) -> Legal | Fixed:
        found = device.attributes.get(path)
        most = _number(found)
        if most is None:
            return Fixed(f"{path} is not known", _is_unread(found))
        return _at_most(wanted, most, limit)

    # docs/settings.md prints a limit's docstring.
    checked.__doc__ = f"At most what `{path}` says."
    return numeric(checked)


def at_least_or_zero(least: int) -> Limit:
    """Return the limit of a number that is 0 or at least ``least``."""

    def checked(wanted: int, current: int, device: Device) -> Legal | Fixed:
        if 0 < wanted < least:
            return Legal(least, f"the driver takes {least} at least")
        return Legal(wanted)

    checked.__doc__ = f"At least {least}, or 0."
    return numeric(checked)


def offered(wanted: Value, current: Value, device: Device) -> Legal | Fixed:
    """One that the kernel has; a device that passes I/O on, such as a bio-based map, has none."""
    attribute = device.attributes.get(SCHEDULER_FILE)
    if not isinstance(attribute, Attribute):
        return Legal(wanted)
    known = choices(attribute.text)
    if not known:
        # Writes succeed and do nothing (block/elevator.c: elv_iosched_store).
        return Fixed("this device passes I/O on and has no scheduler")
    # The file lists what is loaded; the write of another name loads its module, if there is one.
    if wanted not in known and wanted not in LOADABLE:
        return Fixed(f"this kernel offers {', '.join(known)} here")
    return Legal(wanted)


@numeric
def requests(wanted: int, current: int, device: Device) -> Legal | Fixed:
    """2048 with a scheduler; with `none` the adapter's tag set, below which it is never lowered."""
    if device.scheduler != "none":
        return _at_most(wanted, MAX_SCHEDULER_REQUESTS, "{} with a scheduler")
    found = device.attributes.get(TAGS)
    tags = _number(found)
    if tags is None:
        return Fixed("the size of the tag set is not known", _is_unread(found))
    # With `none` the number is the size of the tag set that all LUNs of the adapter share
    # (block/blk-mq.c: blk_mq_update_nr_requests): lowering it for one lowers it for all, and it
    # stays low when the scheduler comes back. A switch to `none` sets it to the whole tag set.
    now = current if scheduler_of(device.attributes) == "none" else tags
    if wanted < now:
        return Legal(now, f"never lowered with scheduler none: {now} is the adapter's")
    return _at_most(wanted, tags, "tag set of {} with scheduler none")


@numeric
def depth(wanted: int, current: int, device: Device) -> Legal | Fixed:
    """At most the adapter's `can_queue`, or the driver's limit for a LUN if that is less."""
    endpoint = device.endpoint
    if endpoint is None:  # the kernel answers a write of too much with EINVAL, or lowers it
        return Legal(wanted)
    if endpoint.depth_trap is not None:
        return Fixed(endpoint.depth_trap)
    if not isinstance(endpoint.depth_cap, int):
        return Fixed("the adapter's can_queue is not known", _is_unread(endpoint.depth_cap))
    return _at_most(wanted, endpoint.depth_cap, "the device takes {} at most")


@numeric
def max_sectors(wanted: int, current: int, device: Device) -> Legal | Fixed:
    """At most the limit of the hardware and of each path; a path of a live map is not lowered.

    A map sends requests of its own largest size down any path; a request that is too large for
    the path fails.
    """
    # block/blk-mq.c: blk_insert_cloned_request. The map takes its limits over from its paths only
    # when its table is loaded.
    attributes, endpoint = device.attributes, device.endpoint
    least = max(_map_sectors(attributes).items(), key=lambda each: each[1], default=None)
    if least is not None and wanted < least[1]:
        return Fixed(f"{_BELOW_MAP}: {least[0]} sends up to {least[1]} KiB")
    # A path of a map whose size could not be read: any smaller value could fail the map's I/O.
    unseen = endpoint is not None and endpoint.kind is Kind.PATH and least is None
    if unseen and wanted < current:
        return Fixed(_BELOW_MAP)
    paths = _sectors(attributes, SLAVE_SECTORS)
    most = min(paths.items(), key=lambda each: each[1], default=None)
    if most is not None and wanted > most[1]:
        return Legal(most[1], f"its path {most[0]} takes {most[1]} KiB at most")
    hardware = _number(attributes.get(MAX_HW_SECTORS))
    if hardware is None:
        return Fixed(
            "the hardware's limit is not known", _is_unread(attributes.get(MAX_HW_SECTORS))
        )
    return _at_most(wanted, hardware, "the hardware takes {} at most")


@numeric
def whole_pages(wanted: int, current: int, device: Device) -> Legal | Fixed:
    """Whole pages of 4 KiB: the kernel rounds down."""
    rest = wanted % PAGE_KB
    return Legal(wanted - rest, f"whole pages of {PAGE_KB} KiB") if rest else Legal(wanted)


@numeric
def request_timeout(wanted: int, current: int, device: Device) -> Legal | Fixed:
    """A SCSI disk has `timeout` in its place, which is the same in another unit."""
    # Both are the queue's rq_timeout (drivers/scsi/scsi_sysfs.c: sdev_show_timeout). Two settings
    # for one value would undo each other.
    if isinstance(device.attributes.get(SCSI_TIMEOUT), Attribute):
        return Fixed("the same as `timeout`, which is the setting of a SCSI disk")
    return Legal(wanted)


@numeric
def reconnects(wanted: int, current: int, device: Device) -> Legal | Fixed:
    """Whole attempts, one every `reconnect_delay` seconds: the kernel rounds up."""
    if wanted < 0:
        return Legal(wanted)
    delay = _number(device.attributes.get(RECONNECT_DELAY))
    if not delay:
        unread = _is_unread(device.attributes.get(RECONNECT_DELAY))
        return Fixed(f"{RECONNECT_DELAY} is not known", unread)
    rest = -wanted % delay
    return Legal(wanted + rest, f"whole attempts, one every {delay} s") if rest else Legal(wanted)


def scheduler_of(attributes: Attributes) -> Value | None:
    """Return the scheduler in force; None if the device has none or it cannot be read."""
    found = attributes.get(SCHEDULER_FILE)
    if not isinstance(found, Attribute):
        return None
    try:
        return selected(found.text)
    except ValueError:
        return None


def multipath_maps(attributes: Attributes) -> frozenset[str]:
    """Return the kernel names of the multipath maps on the disk."""
    found = _matched(attributes, HOLDER_UUIDS)
    return frozenset(name for name, text in found.items() if text.startswith(MULTIPATH_UUID))


def _map_sectors(attributes: Attributes) -> dict[str, int]:
    """Return the largest request of each multipath map on the disk, in KiB."""
    maps = multipath_maps(attributes)
    return {
        name: size for name, size in _sectors(attributes, HOLDER_SECTORS).items() if name in maps
    }


def _sectors(attributes: Attributes, pattern: str) -> dict[str, int]:
    found = _matched(attributes, pattern)
    return {name: int(text) for name, text in found.items() if text.isdecimal()}


def _matched(attributes: Attributes, pattern: str) -> dict[str, str]:
    """Return the texts of the files that match ``FOLDER/*/LEAF``, by the text that ``*`` matches.

    For holders and slaves that is a kernel name.
    """
    folder, _, leaf = pattern.partition("*")
    return {
        path[len(folder) : -len(leaf)]: found.text
        for path, found in attributes.items()
        if path.startswith(folder) and path.endswith(leaf) and isinstance(found, Attribute)
    }


def _is_unread(found: object) -> bool:
    return isinstance(found, Missing) and found.reason is Reason.UNREADABLE


def _number(found: Attribute | Missing | None) -> int | None:
    text = found.text if isinstance(found, Attribute) else ""
    return int(text) if text.isdecimal() else None


def _at_most(wanted: int, ceiling: int, limit: str) -> Legal:
    return Legal(ceiling, limit.format(ceiling)) if wanted > ceiling else Legal(wanted)


def spread(
    vectors: Iterable[Vector],
    processors: Processors,
    local_cpus: Mapping[str, Collection[int]],
) -> dict[str, int]:
    """Return the CPU of each free data vector, by the vector's id.

    A vector goes to a ``usable`` CPU near its adapter, and to one farther away only if none is
    near. Each vector takes the CPU with the fewest vectors so far, the first thread of a core
    before its siblings, so that no CPU has two while one that is as near has none. Vectors for
    which no CPU is usable are left out.
    """
    allowed = usable(processors)
    rank = {cpu: place for core in processors.cores for place, cpu in enumerate(core)}
    load: Counter[int] = Counter()
    placed: dict[str, int] = {}

    def key(cpu: int) -> _Rank:
        return load[cpu], rank.get(cpu, 0), cpu

    # In the order of the interrupts, so that the same machine always gets the same spread: another
    # order would read as drift.
    for vector in sorted(filter(is_free, vectors), key=lambda vector: vector.irq):
        near = local_cpus.get(vector.adapter, ())
        candidates = [cpu for cpu in allowed if cpu in near] or allowed
        if candidates:
            placed[vector.id] = min(candidates, key=key)
            load[placed[vector.id]] += 1
    return placed


def usable(processors: Processors) -> tuple[int, ...]:
    """Return the CPUs that interrupts may go to.

    They are online, neither isolated nor nohz_full, within ``irqaffinity=`` of the kernel's
    command line, and not banned in irqbalance's settings.
    """
    kept_free = {*processors.isolated, *processors.nohz_full}
    return tuple(
        cpu
        for cpu in processors.online
        if cpu not in kept_free
        and all(
            cpu in each
            for each in (processors.irqaffinity, processors.balanced)
            if each is not None  # None is "not restricted"; an empty tuple allows no CPU at all
        )
    )


def is_free(vector: Vector) -> bool:
    """Whether a vector is an adapter's own, for data, and not managed by the kernel."""
    return vector.role is Role.DATA and not vector.managed


def near_adapter(wanted: Value, current: Value, device: Device) -> Legal | Fixed:
    """Managed vectors stay where the kernel put them; `local` is one CPU near the adapter for each.

    CPUs that are isolated, nohz_full, left out by `irqaffinity=` or banned in irqbalance's settings
    are not used.
    """
    vector, room = device.vector, device.room
    if vector is None or room is None:
        return Legal(wanted)
    if vector.managed:
        return Fixed(_managed(vector))
    if wanted != LOCAL:
        return _listed(str(wanted), room.processors)
    cpu = room.placed.get(vector.id)
    if cpu is None:
        return Fixed(_none(room.processors))
    return Legal(str(cpu), "; ".join([_chosen(cpu, room), *_kept_out(room.processors)]))


def _chosen(cpu: int, room: Room) -> str:
    if not room.local:
        return "one CPU for each vector"
    if cpu in room.local:
        return f"one CPU of {names.join_cpus(room.local)}, which are near the adapter"
    return "no CPU near the adapter may be used: one farther away"


def _kept_out(processors: Processors) -> list[str]:
    """Return the reasons why interrupts are kept off some CPUs, in words."""
    found = []
    if processors.irqaffinity is not None:
        found.append(
            f"irqaffinity={names.join_cpus(processors.irqaffinity)} on the kernel's command line"
        )
    if processors.balanced is not None:
        banned = set(processors.online) - set(processors.balanced)
        found.append(f"CPUs {names.join_cpus(banned)} are banned in irqbalance's settings")
    return found


def _none(processors: Processors) -> str:
    """Return the reason why no CPU is usable, in words."""
    if processors.irqaffinity == ():
        return "irqaffinity= on the kernel's command line makes no sense"
    if processors.balanced == ():
        return "irqbalance's banned CPUs make no sense, or leave none"
    kept_out = _kept_out(processors)
    if kept_out:
        return f"no CPU is left for interrupts: {'; '.join(kept_out)}"
    return "every CPU is isolated or nohz_full"


def _listed(wanted: str, processors: Processors) -> Legal | Fixed:
    cpus = names.parse_cpus(wanted)
    # One that is online is enough for the kernel.
    if not set(cpus) & set(processors.online):
        return Fixed("none of these CPUs is online")  # EINVAL (kernel/irq/proc.c)
    outside = set(cpus) - set(usable(processors))
    kept_out = _kept_out(processors)
    # The rule names these CPUs for these vectors, which outweighs a setting for the whole machine.
    why = f"although {'; '.join(kept_out)}" if outside and kept_out else None
    return Legal(names.join_cpus(cpus), why)


def _managed(vector: Vector) -> str:
    """Return why a managed vector stays, and how to have it free.

    See isolcpus=managed_irq in Documentation/admin-guide.
    """
    why = "set by the kernel (managed interrupt); to change it, boot with isolcpus=managed_irq,…"
    if vector.unmanaged_by:
        why += f" or load the driver with {vector.unmanaged_by}"
    return why + (INFERRED if vector.inferred else "")
