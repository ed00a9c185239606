"""Apply limits that several disks share: request memory, and equal values in a stack. Pure.

Disks of one adapter also show the initial queue depth of each other.

A scheduler allocates requests (block/blk-mq-sched.c: blk_mq_init_sched): nr_requests for each
hardware queue that has its own tags, its maximum once for each LUN if the queues share a tag set.
A map chooses a path for each request, so requests would wait on a shallower path although another
path could serve them.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.facts import attributes, model
from hbatune.facts.families import family_named
from hbatune.facts.names import join_groups
from hbatune.plan.rows import Plan, RequestMemory, Row, State
from hbatune.settings.limits import MAX_SCHEDULER_REQUESTS, resolve_value
from hbatune.settings.setting import Device, FixedSetting, LegalValue, Setting
from hbatune.settings.table import NR_REQUESTS, QUEUE_DEPTH, SCHEDULER, SETTINGS, Value
from hbatune.text.limit_text import Limit, LimitReason

REQUEST_BYTES = 640
"""Memory of one request with a scheduler, in bytes.

Measured on 6.1: 2048 requests cost 1.3 MiB a LUN with one hardware queue, 2.4 MiB with two. A
driver with large commands takes more.
"""

DEFAULT_DEPTH = 128
"""A scheduler starts with twice this many requests, or twice the tags if those are fewer
(block/blk-mq-sched.c: blk_mq_init_sched; BLKDEV_DEFAULT_RQ)."""

_MIB = 1 << 20


QUEUE_FULL_THRESHOLD = 11
"""TASK SET FULL answers after which the kernel lowers a depth (drivers/scsi/scsi.c:
scsi_track_queue_full): more than ten. Each counts as an error."""


class DefaultDepth(Struct, frozen=True):
    """The queue depth with which a driver starts a LUN.

    ``by_peers`` is whether the largest depth of equal disks shows it. ``may_ramp`` is whether the
    kernel may have lowered the LUN's depth after a full queue.
    """

    depth: int
    by_peers: bool
    may_ramp: bool


def find_default_depths(
    machine: model.Machine, originals: Mapping[str, int] = MappingProxyType({})
) -> dict[str, DefaultDepth]:
    """Return, by id, the driver's initial depth of each LUN, if it is known.

    If the firmware determines it, equal disks on the same adapter show it. ``originals`` are the
    depths, by id, before hbatune set them.
    """
    adapters, modules = machine.adapters_by_target, machine.parameters_by_module
    errors, largest = Counter[str](), Counter[object]()
    disks = [endpoint for endpoint in machine.endpoints if endpoint.host is not None]
    for endpoint in disks:
        depth = originals.get(endpoint.id, SETTINGS[QUEUE_DEPTH].read(endpoint.attributes))
        if isinstance(depth, int):
            peers = _make_peer_key(endpoint)
            largest[peers] = max(largest[peers], depth)
        # A full queue lowers all LUNs of a target (drivers/scsi/scsi_error.c).
        errors[endpoint.scsi_target] += attributes.parse_error_count(endpoint.attributes) or 0
    defaults = {}
    for endpoint in disks:
        adapter, family = adapters.get(endpoint.adapter or ""), family_named(endpoint.family)
        parameters, pci = modules.get(endpoint.family, {}), adapter.pci if adapter else None
        default = family.depth_default(endpoint, parameters, pci)
        if default is not None and isinstance(endpoint.depth_cap, int):
            default = min(default, endpoint.depth_cap)
        defaults[endpoint.id] = DefaultDepth(
            largest[_make_peer_key(endpoint)] if default is None else default,
            default is None,
            family.depth_ramps and errors[endpoint.scsi_target] >= QUEUE_FULL_THRESHOLD,
        )
    return defaults


def _make_peer_key(endpoint: model.Endpoint) -> object:
    # A volume's depth depends on its members, which no attribute shows, so it has no peer.
    is_volume = endpoint.protocol is model.Protocol.VOLUME
    if is_volume and not family_named(endpoint.family).volumes_alike:
        return endpoint.id
    return endpoint.adapter, endpoint.protocol, endpoint.vendor, endpoint.model


def group_members(machine: model.Machine) -> dict[str, object]:
    """Return, by target, the disks' group with equal values: of a map, or of a stack and a type."""
    groups: dict[str, object] = {}
    leaders = join_groups(stack.disks for stack in machine.stacks)
    for endpoint in machine.endpoints:
        if endpoint.map is not None:
            groups[endpoint.target] = endpoint.map
        elif leader := leaders.get(endpoint.target):
            groups[endpoint.target] = leader, endpoint.kind, endpoint.protocol, endpoint.medium
    return groups


def sum_request_memory(
    machine: model.Machine, planned: Mapping[str, Collection[Row]], allowed: int, elsewhere: int = 0
) -> RequestMemory:
    """Add up the memory of requests before and after the plan. ``planned`` are the rows by id.

    Unplanned disks count with their current values, so the limit also holds if disks are named or
    added one at a time. ``elsewhere`` is the memory of disks that are not in ``machine``.
    ``allowed`` and ``elsewhere`` are in bytes.
    """
    added, total = 0, elsewhere
    growing: set[str] = set()
    for id, growth, size in _list_requests(machine, planned):
        total += size
        if growth > 0:
            added += growth
            growing.add(id)
    return RequestMemory(added, total, allowed, frozenset(growing))


def sum_beyond_defaults(
    machine: model.Machine, planned: Mapping[str, Collection[Row]]
) -> Mapping[str, int]:
    """Return, by endpoint id, the bytes that count against the limit after the plan."""
    return {id: size for id, _, size in _list_requests(machine, planned)}


def _list_requests(
    machine: model.Machine, planned: Mapping[str, Collection[Row]]
) -> Iterator[tuple[str, int, int]]:
    """Yield the id, the growth by the plan and the bytes that count against the limit.

    The kernel's defaults do not count. With many LUNs they could exceed the limit without any
    change, and skipping the plan would not free them.
    """
    parameters = machine.parameters_by_module
    for endpoint in machine.endpoints:
        # An unknown number of queues counts as one.
        queues = endpoint.hw_queues if isinstance(endpoint.hw_queues, int) else 1
        options = parameters.get(endpoint.family, {})
        shared = family_named(endpoint.family).shares_tags(options, queues)
        scheduler = SETTINGS[SCHEDULER].read(endpoint.attributes)
        requests = SETTINGS[NR_REQUESTS].read(endpoint.attributes)
        before = _count_bytes(scheduler, requests, queues, shared=shared)
        for row in planned.get(endpoint.id, ()):
            if row.value is not None and row.state in (State.OK, State.DRIFT):
                scheduler = row.value if row.setting == SCHEDULER else scheduler
                requests = row.value if row.setting == NR_REQUESTS else requests
        after = _count_bytes(scheduler, requests, queues, shared=shared)
        default = 0
        # The kernel uses mq-deadline for a single queue or shared tags, otherwise ``none``
        # (block/elevator.c: elevator_get_default).
        if shared or queues <= 1:
            tags = endpoint.tags if isinstance(endpoint.tags, int) else DEFAULT_DEPTH
            default_requests = 2 * min(tags, DEFAULT_DEPTH)
            default = _count_bytes("mq-deadline", default_requests, queues, shared=shared)
        yield endpoint.id, after - before, max(0, after - default)


def _count_bytes(
    scheduler: Value | model.Missing, requests: Value | model.Missing, queues: int, *, shared: bool
) -> int:
    if scheduler == "none" or not isinstance(requests, int):
        return 0
    if shared:  # always the maximum, so raising nr_requests costs nothing more
        return MAX_SCHEDULER_REQUESTS * REQUEST_BYTES
    return requests * queues * REQUEST_BYTES


def require_affordable(plan: Plan) -> None:
    """Raise UsageError if the plan adds requests, and all would take too much memory."""
    memory = plan.memory
    if memory.added > 0 and memory.total > memory.allowed:
        raise UsageError(
            f"the planned nr_requests would take {memory.added / _MIB:.0f} MiB of memory, the "
            f"requests of all disks then {memory.total / _MIB:.0f} MiB, more than the "
            f"{memory.allowed / _MIB:.0f} MiB that are allowed; nothing was written",
            hint="name fewer targets, or raise memory_share in [act] of hbatune.toml",
        )


def without_requests(plan: Plan) -> Plan:
    """Return an unaffordable plan without rows that allocate requests, as a scheduler does."""
    rows = []
    for row in plan.rows:
        is_allocating = row.setting in (SCHEDULER, NR_REQUESTS) and row.state is State.DRIFT
        if not is_allocating or row.id not in plan.memory.growing:
            rows.append(row)
    return replace(plan, rows=tuple(rows), memory=replace(plan.memory, added=0))


class PathSetting(Struct, frozen=True):
    """One setting of one path of a map, or of one member of a stack.

    ``current`` is None if it could not be read. Such a path does not limit the others. ``value`` is
    the planned value, or None if the path is not changed. ``raised_only`` is whether the value must
    not be lowered.
    """

    target: str
    setting: Setting
    current: Value | None
    value: Value | None
    device: Device
    raised_only: bool

    def clamp(self, goal: Value) -> Value:
        """Return the nearest value that this path accepts."""
        assert self.current is not None  # it would not limit the others
        if self.value is not None and not self.raised_only and is_lower(self.value, goal):
            return self.value  # the rule's value is the maximum for the path
        legal = resolve_value(self.setting, goal, self.current, self.device)
        return self.current if isinstance(legal, FixedSetting) else legal.value

    def reaches(self, goal: Value) -> bool:
        """Return whether the path accepts exactly this value and its rule allows it."""
        is_lowered = is_lower(goal, self.current)
        return self.clamp(goal) == goal and not (self.raised_only and is_lowered)


def is_lower(value: object, current: object) -> bool:
    """Return whether both are numbers and the first is lower."""
    return isinstance(value, int) and isinstance(current, int) and value < current


Decisions = Mapping[str, LegalValue]
"""By target, the value for a path instead of the planned value, and the reason."""


def level_paths(paths: Sequence[PathSetting]) -> Decisions:
    """Return the changes to the plan that give all paths of a map the same value.

    The common value is the maximum that every path accepts. It never lowers a path that may only be
    raised. If it would have to, each path keeps its planned value, with this reason.
    """
    readable = [path for path in paths if path.current is not None]
    changing = [path for path in readable if path.value is not None]
    pins = [path for path in readable if path.value is None]
    if not changing:
        return {}
    if pins:
        return _level_with_pins(changing, pins)
    values = {path.value for path in changing}
    if len(values) == 1:
        return {}
    # Names have no minimum: paths whose rules require different schedulers are not changed.
    if not all(isinstance(value, int) for value in values):
        names = " and ".join(sorted(map(str, values)))
        return _set_all(changing, LimitReason(Limit.PATHS_DISAGREE, (names,)))
    return _level_numbers(changing, max(map(_require_int, values)))


def _level_numbers(paths: Sequence[PathSetting], goal: int) -> Decisions:
    # Requests wait on the shallowest path, so its value under the highest goal limits all paths.
    shallowest = min(paths, key=lambda path: _require_int(path.clamp(goal)))
    common = _require_int(shallowest.clamp(goal))
    facts = (shallowest.target, common)
    if not all(path.reaches(common) for path in paths):
        reason = LimitReason(Limit.PATHS_DIFFER, facts)
        return {path.target: LegalValue(_require_int(path.value), reason) for path in paths}
    reason = LimitReason(Limit.PATHS_TAKE, facts)
    if common == goal:
        deepest = next(path for path in paths if path.value == goal)
        reason = LimitReason(Limit.PATHS_AT, (deepest.target, goal))
    return _set_all(paths, reason, common)


def _level_with_pins(paths: Sequence[PathSetting], pins: Sequence[PathSetting]) -> Decisions:
    """Give all paths the value of the unchangeable ones if possible, otherwise change no path."""
    pinned_values = {pin.current for pin in pins if pin.current is not None}
    names = " and ".join(pin.target for pin in pins)
    if {path.value for path in paths} == pinned_values:
        return {}
    if len(pinned_values) == 1:
        [goal] = pinned_values
        if all(path.reaches(goal) and _is_between(path, goal) for path in paths):
            return _set_all(paths, LimitReason(Limit.PATHS_PINNED_AT, (names, goal)), goal)
    return _set_all(paths, LimitReason(Limit.PATHS_PINNED, (names,)))


def _set_all(
    paths: Sequence[PathSetting], reason: LimitReason, goal: Value | None = None
) -> Decisions:
    """Return the decisions that give every path the goal, or keep its current value without one."""
    decisions = {}
    for path in paths:
        value = path.current if goal is None else goal
        if value is not None and path.value != value:
            decisions[path.target] = LegalValue(value, reason)
    return decisions


def _is_between(path: PathSetting, goal: Value) -> bool:
    """Return whether the goal is between the path's current and planned values.

    Other paths never move a path beyond its own rule, or away from it.
    """
    if not isinstance(goal, int):
        return goal in (path.value, path.current)
    low, high = sorted((_require_int(path.current), _require_int(path.value)))
    return low <= goal <= high


def _require_int(value: Value | None) -> int:
    assert isinstance(value, int)
    return value
