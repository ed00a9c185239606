"""The limits that a device imposes on a setting: pure functions, named by the table's entries.

Limits are planned, not found by trial: the kernel may answer with EINVAL, silently set another
value, or do nothing at all. Each function is called twice: by the plan, with the surveyed
attributes, and by the worker just before it writes, with newly read attributes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps

from hbatune.facts import families, family, model, names, routes
from hbatune.facts.attributes import FIRMWARE_FILE, PARTITIONS, get_text, parse_integer, parse_text
from hbatune.facts.model import Attribute, Endpoint, Missing, Processors, Vector
from hbatune.facts.targets import make_target
from hbatune.settings import setting as formats
from hbatune.settings.setting import Device, FixedSetting, LegalValue, Value
from hbatune.text.limit_text import Limit, LimitReason

SCHEDULER_FILE = "queue/scheduler"
REQUESTS_FILE = "queue/nr_requests"
ASYNC_DEPTH_FILE = "queue/async_depth"
"""The file of newer kernels, which limit the value to nr_requests."""

BFQ = "bfq"

LOADABLE_SCHEDULERS = frozenset({"kyber", BFQ})
"""Schedulers that distributions build as modules, which a write of their name loads
(block/elevator.c: elv_iosched_load_module). The other schedulers are built in or missing. No kernel
selects these by itself (block/elevator.c: elevator_get_default)."""

MAX_HW_SECTORS = "queue/max_hw_sectors_kb"
"""The largest request that the adapter accepts, in KiB; a fact, not a setting."""

HOLDER_UUIDS, HOLDER_SECTORS = "holders/*/dm/uuid", "holders/*/queue/max_sectors_kb"
"""The devices on a disk: dm UUIDs, which identify multipath maps, and largest requests in KiB."""

SLAVE_SECTORS = "slaves/*/queue/max_sectors_kb"
"""The largest request of each path of a map, in KiB."""

STACK_FILES = (HOLDER_UUIDS, HOLDER_SECTORS, PARTITIONS + HOLDER_SECTORS, SLAVE_SECTORS)

SCSI_TIMEOUT = "device/timeout"
"""The timeout of a command of a SCSI disk, in s: the queue's io_timeout in another unit."""

REQUEST_TIMEOUT = "queue/io_timeout"
CONTROLLER_TIMEOUT = "device/io_timeout"
"""The timeout of an NVMe controller, in ms, since Linux 7.2: a write sets all its namespaces'."""
NAMESPACE_TIMEOUTS = "device/nvme*/queue/io_timeout"

RECONNECT_DELAY = "reconnect_delay"
"""Seconds between two attempts to reconnect a lost NVMe controller."""

MAX_SCHEDULER_REQUESTS = 2048
"""The maximum number of requests with a scheduler (block/blk-mq.h: MAX_SCHED_RQ); else EINVAL."""

PAGE_KB = 4

MIN_INTERRUPT_RATE = 5000
"""The minimum of lpfc_fcp_imax (lpfc_hw4.h: LPFC_MIN_IMAX); 0 is automatic."""


def limit_numbers(
    limit: Callable[[int, int, Device], LegalValue | FixedSetting],
) -> formats.LimitFunction:
    """Convert a limit of numbers to one that accepts values of other types unchanged."""

    @wraps(limit)
    def checked(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
        if isinstance(wanted, int) and isinstance(current, int):
            return limit(wanted, current, device)
        return LegalValue(wanted)

    return checked


@limit_numbers
def limit_interrupt_rate(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """At least 5000, or 0."""
    if 0 < wanted < MIN_INTERRUPT_RATE:
        reason = LimitReason(Limit.DRIVER_MINIMUM, (MIN_INTERRUPT_RATE,))
        return LegalValue(MIN_INTERRUPT_RATE, reason)
    return LegalValue(wanted)


def limit_to_offered(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
    """One that the kernel has; a device that passes I/O on, such as a bio-based map, has none."""
    attribute = device.attributes.get(SCHEDULER_FILE)
    if not isinstance(attribute, Attribute):
        return LegalValue(wanted)
    schedulers = formats.parse_choices(attribute.text)
    if not schedulers:
        # Writes succeed without effect (block/elevator.c: elv_iosched_store).
        return FixedSetting(LimitReason(Limit.NO_SCHEDULER))
    # The file lists the loaded schedulers; the write of another name loads its module, if any.
    if wanted not in schedulers and wanted not in LOADABLE_SCHEDULERS:
        return FixedSetting(LimitReason(Limit.NOT_LOADED, (", ".join(schedulers), wanted)))
    return LegalValue(wanted)


@limit_numbers
def limit_requests(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """2048 with a scheduler. With `none`, all tags of the adapter, which can be thousands."""
    if device.scheduler != "none":
        return _limit_value(wanted, MAX_SCHEDULER_REQUESTS, Limit.SCHEDULER_MAXIMUM)
    tags = parse_integer(device.attributes, model.TAG_COUNT_FILE)
    if isinstance(tags, Missing):
        return _report_unknown(Limit.TAGS_UNKNOWN, tags)
    # With `none` the number is the size of the tag set that all LUNs of the adapter share
    # (block/blk-mq.c: blk_mq_update_nr_requests). Lowering it for one LUN lowers it for all, and it
    # stays low after a switch to another scheduler. A switch to `none` sets it to the entire tag
    # set.
    in_effect = tags if _is_switched(device) else current
    if wanted < in_effect:
        return LegalValue(in_effect, LimitReason(Limit.NOT_LOWERED, (in_effect, wanted)))
    return _limit_value(wanted, tags, Limit.TAG_SET)


@limit_numbers
def limit_async_depth(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """At most nr_requests; with `none` the kernel sets it to the tag set."""
    if device.scheduler == "none":
        return FixedSetting(LimitReason(Limit.UNSCHEDULED))  # EINVAL
    attributes = device.attributes
    # As a tunable of mq-deadline it may be any number.
    is_limited = isinstance(attributes.get(ASYNC_DEPTH_FILE), Attribute)
    # A switch of the scheduler resets nr_requests, so the current number does not limit it.
    requests: Value | Missing | None = device.requests
    if requests is None and not _is_switched(device):
        requests = parse_integer(attributes, REQUESTS_FILE)
    if is_limited and isinstance(requests, int):
        return _limit_value(wanted, requests, Limit.REQUESTS_MAXIMUM)
    return LegalValue(wanted)


@limit_numbers
def limit_depth(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """At most the adapter's `can_queue`, or the driver's limit for a LUN if that is less."""
    endpoint = device.endpoint
    if endpoint is None:  # the kernel answers a write above the maximum with EINVAL, or lowers it
        return LegalValue(wanted)
    if endpoint.depth_trap is not None:
        return FixedSetting(endpoint.depth_trap)
    if not isinstance(endpoint.depth_cap, int):
        return _report_unknown(Limit.CAN_QUEUE_UNKNOWN, endpoint.depth_cap)
    return _limit_value(wanted, endpoint.depth_cap, Limit.DEVICE_MAXIMUM)


@limit_numbers
def limit_max_sectors(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """At most the limit of the hardware and of each path; not lowered below a live stack.

    A map sends requests of its own largest size down any path; a request that is too large for
    the path fails.
    """
    # block/blk-mq.c: blk_insert_cloned_request. The map copies its limits from its paths only when
    # its table is loaded, and md and device-mapper likewise (block/blk-settings.c:
    # blk_stack_limits).
    attributes, endpoint = device.attributes, device.endpoint
    holders = {path[path.find("holders/") :]: value for path, value in attributes.items()}
    sizes = _match_numbers(holders, HOLDER_SECTORS)
    largest = max(sizes, key=lambda name: sizes[name], default="")
    if wanted < min(current, sizes.get(largest, 0)):
        is_map = largest in find_multipath_maps(attributes)
        limit = Limit.MAP_REQUESTS if is_map else Limit.STACK_REQUESTS
        return FixedSetting(LimitReason(limit, (largest, sizes[largest])))
    # A device on it whose size could not be read.
    is_below = endpoint is not None and (endpoint.kind is model.Kind.PATH or bool(endpoint.holders))
    is_unread = any(isinstance(holders[path], Missing) for path in holders if "holders/" in path)
    if wanted < current and (is_unread or (is_below and not sizes)):
        return FixedSetting(LimitReason(Limit.STACK_UNREAD))
    paths = _match_numbers(attributes, SLAVE_SECTORS)
    smallest_path = min(paths, key=lambda name: paths[name], default=None)
    if smallest_path is not None and wanted > paths[smallest_path]:
        size = paths[smallest_path]
        return LegalValue(size, LimitReason(Limit.PATH_MAXIMUM, (smallest_path, size)))
    hardware = parse_integer(attributes, MAX_HW_SECTORS)
    if isinstance(hardware, Missing):
        return _report_unknown(Limit.HARDWARE_UNKNOWN, hardware)
    return _limit_value(wanted, hardware, Limit.HARDWARE_MAXIMUM)


@limit_numbers
def limit_to_pages(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """Whole pages of 4 KiB: the kernel rounds down."""
    if excess := wanted % PAGE_KB:
        return LegalValue(wanted - excess, LimitReason(Limit.WHOLE_PAGES, (PAGE_KB,)))
    return LegalValue(wanted)


@limit_numbers
def limit_request_timeout(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """A SCSI disk has `timeout` instead. Namespaces unlike their controller keep their values."""
    # Both are the queue's rq_timeout (drivers/scsi/scsi_sysfs.c: sdev_show_timeout). Two settings
    # for one value would override each other.
    if isinstance(device.attributes.get(SCSI_TIMEOUT), Attribute):
        return FixedSetting(LimitReason(Limit.SAME_AS_TIMEOUT))
    # A write to the controller replaces it in every namespace, and only the controller's is saved.
    # In a plan, one namespace with the wanted value would thus lose it in the rollback. A worker
    # may see that value while a sibling's worker writes it.
    if isinstance(device.attributes.get(CONTROLLER_TIMEOUT), Attribute):
        replaceable = (current,) if device.endpoint else (current, wanted)
        for own in _match_numbers(device.attributes, NAMESPACE_TIMEOUTS).values():
            if own not in replaceable:
                return FixedSetting(LimitReason(Limit.OWN_TIMEOUT, (own,)))
    return LegalValue(wanted)


@limit_numbers
def limit_reconnects(wanted: int, current: int, device: Device) -> LegalValue | FixedSetting:
    """Whole attempts, one every `reconnect_delay` seconds: the kernel rounds up."""
    if wanted < 0:
        return LegalValue(wanted)
    delay = parse_integer(device.attributes, RECONNECT_DELAY)
    if isinstance(delay, Missing) or not delay:
        return _report_unknown(Limit.RECONNECT_UNKNOWN, delay)
    if missing := -wanted % delay:
        return LegalValue(wanted + missing, LimitReason(Limit.WHOLE_ATTEMPTS, (delay,)))
    return LegalValue(wanted)


def limit_firmware(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
    """Only with `firmware = "set"`, for a page that the firmware and `perf_mode` let be changed.

    0 keeps depth and timeout if the page has a flag to switch it off. Otherwise it is 1/0.
    """
    from hbatune.mpi import PageWord

    coalescing, *words = str(get_text(device.attributes, FIRMWARE_FILE)).split()
    depth, _, timeout = coalescing.partition("/")
    ages = [int(word[4:]) for word in words if word.startswith("age:")]
    age = LimitReason(Limit.PAGE_AGE, tuple(ages)) if ages else None
    if wanted == 0:
        is_off = PageWord.OFF in words or int(depth) <= 1 or timeout == "0"
        off = f"{coalescing} {PageWord.OFF}" if PageWord.FLAGGED in words else "1/0"
        wanted = current if is_off else off
    if wanted == current:
        return LegalValue(wanted, age)
    fixed = {
        PageWord.FIXED: Limit.UNCHANGEABLE,
        PageWord.PERF_MODE: Limit.BY_PERF_MODE,
        PageWord.READ_ONLY: Limit.SITE_READS_ONLY,
    }
    for word in fixed.keys() & words:
        return FixedSetting(LimitReason(fixed[word], parts=(age,) if age else ()))
    return LegalValue(wanted, age)


def find_scheduler(attributes: formats.Attributes) -> Value | None:
    """Return the current scheduler, or None if the device has no scheduler or it cannot be read."""
    scheduler = parse_text(attributes, SCHEDULER_FILE, formats.parse_selected)
    return None if isinstance(scheduler, Missing) else scheduler


def _is_switched(device: Device) -> bool:
    """Return whether the planned scheduler replaces another one."""
    if device.switched is None:
        return device.scheduler != find_scheduler(device.attributes)
    return device.switched


def find_multipath_maps(attributes: formats.Attributes) -> frozenset[str]:
    """Return the kernel names of the multipath maps on the disk."""
    uuids = _match_files(attributes, HOLDER_UUIDS)
    return frozenset(name for name, text in uuids.items() if text.startswith(routes.MULTIPATH_UUID))


def _match_numbers(attributes: formats.Attributes, pattern: str) -> dict[str, int]:
    texts = _match_files(attributes, pattern)
    return {name: int(text) for name, text in texts.items() if text.isdecimal()}


def _match_files(attributes: formats.Attributes, pattern: str) -> dict[str, str]:
    """Return the texts of the files that match ``FOLDER/*/LEAF``, by the text of ``*``."""
    folder, _, leaf = pattern.partition("*")
    texts = {}
    for path, attribute in attributes.items():
        if isinstance(attribute, Attribute) and path.startswith(folder) and path.endswith(leaf):
            texts[path[len(folder) : -len(leaf)]] = attribute.text
    return texts


def _report_unknown(limit: Limit, attribute: object) -> FixedSetting:
    """Return that a limit is unknown, because its attribute is missing or could not be read."""
    unread = isinstance(attribute, Missing) and attribute.reason is model.Reason.UNREADABLE
    return FixedSetting(LimitReason(limit), unread)


def _limit_value(wanted: int, maximum: int, limit: Limit) -> LegalValue:
    if wanted > maximum:
        return LegalValue(maximum, LimitReason(limit, (maximum,)))
    return LegalValue(wanted)


def spread_vectors(
    vectors: Iterable[Vector], processors: Processors, local_cpus: Mapping[str, tuple[int, ...]]
) -> formats.VectorCpus:
    """Return the CPU of each free data vector, with the CPUs near its adapter in ``local_cpus``.

    A vector goes to a usable CPU near its adapter, and to a farther one only if none is near. It
    stays within a mask that an administrator narrowed. It stays on the CPU that hbatune set, or
    that it has, unless another of its CPUs serves at least two vectors less. Other vectors take the
    CPU with the fewest vectors, the first thread of a core before its siblings. No CPU gets a
    second vector while an equally near CPU is free. Vectors without a usable CPU are omitted.
    """
    usable, reasons = find_usable_cpus(processors)
    # In the order of the interrupts, so the same machine always gets the same spread: another order
    # would look like drift.
    free = sorted(filter(is_free, vectors), key=lambda vector: vector.irq)
    narrowed = find_narrowed_masks(free, processors, local_cpus)
    rank: dict[int, int] = {}
    for core in processors.cores:
        rank |= {cpu: place for place, cpu in enumerate(core)}
    candidates: dict[str, list[int]] = {}
    load: Counter[int] = Counter()
    placed: dict[str, int] = {}
    for vector in free:
        mask, near = narrowed.get(vector.id), frozenset(local_cpus.get(vector.adapter, ()))
        allowed = [cpu for cpu in usable if mask is None or cpu in mask]
        candidates[vector.id] = [cpu for cpu in allowed if cpu in near] or allowed
        current = vector.placed or _list_cpus(vector)
        if len(current) == 1 and current[0] in candidates[vector.id]:
            placed[vector.id] = current[0]
            load[current[0]] += 1
    waiting = [vector.id for vector in free if candidates[vector.id]]
    while waiting:
        moved = []
        for id in waiting:
            if id in placed and load[placed[id]] == 1:
                continue  # it shares its CPU with no vector
            cpu = min(candidates[id], key=lambda cpu: (load[cpu], rank.get(cpu, 0), cpu))
            if id not in placed or load[placed[id]] - load[cpu] > 1:
                load.subtract([placed[id]] if id in placed else [])
                load[cpu] += 1
                placed[id] = cpu
                moved.append(id)
        waiting = waiting if moved else []
    excluded = set(processors.online).difference(usable)
    return formats.VectorCpus(placed, narrowed, processors.online, excluded, reasons, local_cpus)


def find_narrowed_masks(
    vectors: Iterable[Vector], processors: Processors, local_cpus: Mapping[str, Collection[int]]
) -> dict[str, frozenset[int]]:
    """Return the masks that an administrator narrowed, by the vector's id.

    The kernel starts a vector on the CPUs of default_smp_affinity that are near its adapter, or on
    all of them (kernel/irq/manage.c: irq_setup_affinity). A mask without these CPUs may also come
    from irqbalance, hbatune or the driver (its hint). Offline CPUs do not count: if the last CPU of
    a vector goes offline, the kernel widens its mask.
    """
    online = frozenset(processors.online)
    default = online.intersection(processors.restrictions.get(model.CpuRestriction.DEFAULT, ()))
    masks = {}
    for vector in vectors:
        mask = online.intersection(_list_cpus(vector))
        near = default.intersection(local_cpus.get(vector.adapter, ()))
        is_explained = processors.balancing or vector.placed or mask >= (near or default)
        if not is_explained and mask not in (frozenset(), online.intersection(vector.hint)):
            masks[vector.id] = mask
    return masks


def _list_cpus(vector: Vector) -> tuple[int, ...]:
    """Return the CPUs that may serve a vector, or none if they are unknown."""
    if isinstance(vector.affinity, Attribute):
        return names.find_cpus(vector.affinity.text) or ()
    return ()


def find_usable_cpus(processors: Processors) -> tuple[tuple[int, ...], tuple[LimitReason, ...]]:
    """Return the online CPUs that interrupts may use, and the reasons why others are excluded.

    A restriction that makes no sense leaves no CPU. Each reason has CPUs that no earlier one has.
    """
    usable = set(processors.online)
    restrictions: dict[model.CpuRestriction, Collection[int] | None] = {
        model.CpuRestriction.ISOLATED: usable.difference(processors.isolated),
        model.CpuRestriction.NOHZ_FULL: usable.difference(processors.nohz_full),
        model.CpuRestriction.IRQAFFINITY: processors.irqaffinity,
        **processors.restrictions,
        model.CpuRestriction.BANNED: processors.balanced,
    }
    reasons = []
    for restriction, allowed in restrictions.items():
        if allowed is None:
            continue
        if not allowed:
            reasons.append(LimitReason(Limit.CPUS_UNKNOWN, (restriction,)))
        elif excluded := names.join_cpus(usable.difference(allowed)):
            reasons.append(LimitReason(Limit.CPUS_EXCLUDED, (restriction, excluded)))
        usable.intersection_update(allowed)
    return tuple(cpu for cpu in processors.online if cpu in usable), tuple(reasons)


def is_free(vector: Vector) -> bool:
    """Return whether a vector is an adapter's own, for data, and not managed by the kernel."""
    return vector.role is model.Role.DATA and not vector.managed


def limit_affinity(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
    """Managed vectors stay where the kernel put them; `local` is one CPU near the adapter for each.

    CPUs that are isolated (isolcpus=, a cpuset partition, TuneD), nohz_full, left out by
    `irqaffinity=` or default_smp_affinity, or banned in irqbalance's settings are not used. A
    vector whose mask an administrator narrowed stays within it.
    """
    vector, room = device.vector, device.room
    if vector is None or room is None:
        return LegalValue(wanted)
    if vector.managed:
        inferred = (LimitReason(Limit.INFERRED),) if vector.inferred else ()
        facts: tuple[str, ...] = ()
        # isolcpus=managed_irq and the driver's option matter only if an excluded CPU serves it.
        if set(room.excluded).intersection(names.find_cpus(vector.effective or "") or ()):
            facts = (names.join_cpus(room.excluded), *filter(None, [vector.unmanaged_by]))
        return FixedSetting(LimitReason(Limit.MANAGED, facts, inferred))
    if wanted != formats.LOCAL_CPUS:
        return _check_list(str(wanted), room)
    parts = room.reasons
    if vector.id in room.narrowed:
        mask = names.join_cpus(room.narrowed[vector.id])
        parts = (*parts, LimitReason(Limit.MASK_NARROWED, (mask,)))
    cpu, local = room.placed.get(vector.id), room.local.get(vector.adapter)
    if cpu is None:
        return FixedSetting(LimitReason(Limit.NO_CPU_LEFT, parts=parts))
    if not local:
        reason = LimitReason(Limit.ONE_CPU, parts=parts)
    elif cpu in local:
        reason = LimitReason(Limit.NEAR_CPU, (names.join_cpus(local),), parts)
    else:
        reason = LimitReason(Limit.FAR_CPU, parts=parts)
    return LegalValue(str(cpu), reason)


def _check_list(wanted: str, room: formats.VectorCpus) -> LegalValue | FixedSetting:
    cpus = names.parse_cpus(wanted)
    # A single online CPU is sufficient for the kernel.
    if not set(cpus) & set(room.online):
        return FixedSetting(LimitReason(Limit.OFFLINE_CPUS))  # EINVAL (kernel/irq/proc.c)
    # The rule names these CPUs for these vectors, which overrides a setting for the entire machine.
    overrides = set(cpus) & set(room.excluded)
    reason = LimitReason(Limit.ALTHOUGH, parts=room.reasons) if overrides else None
    return LegalValue(names.join_cpus(cpus), reason)


def make_device(endpoint: Endpoint, scheduler: Value | None) -> Device:
    """Return the facts about an endpoint, with the planned scheduler."""
    return Device(make_target(endpoint).attributes, scheduler, endpoint)


def resolve_value(
    setting: formats.Setting, wanted: Value, current: Value, device: Device
) -> LegalValue | FixedSetting:
    """Return the legal value for ``wanted`` on a device, with its planned scheduler."""
    if setting.at_load:
        if wanted == current:
            return LegalValue(wanted)
        return FixedSetting(LimitReason(Limit.AT_LOAD, (setting.name, wanted)))
    attribute = device.attributes.get(setting.find_path(device.attributes))
    # A file without its write bit has no store function in this driver.
    if not isinstance(attribute, Attribute) or attribute.writable:
        return setting.limit(wanted, current, device)
    if setting.on is model.TargetKind.CONTROLLER:
        return FixedSetting(LimitReason(Limit.UNCHANGEABLE))
    parts: list[LimitReason] = []
    if setting.name == formats.QUEUE_DEPTH and device.endpoint is not None:
        for option in families.family_named(device.endpoint.family).options:
            if option.purpose is family.Purpose.LUN_DEPTH:
                parts.append(LimitReason(Limit.BY_OPTION, (option.name,)))
    return FixedSetting(LimitReason(Limit.READ_ONLY, parts=tuple(parts[:1])))
