"""Apply limits that several disks share: request memory, and equal values on a map's paths. Pure.

A scheduler allocates requests (block/blk-mq-sched.c: blk_mq_init_sched). If every hardware queue
has its own tags, it allocates nr_requests for each queue. If the adapter's queues share one tag
set, it allocates its maximum once for each LUN. ``none`` uses the adapter's existing tag set.

All paths of a map get the same value. A map chooses a path for each request, so requests would wait
on a shallower path although another path could serve them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.facts.families import family_named
from hbatune.facts.model import Endpoint, Machine, Missing
from hbatune.plan.rows import Plan, RequestMemory, Row, State
from hbatune.settings.limits import MAX_SCHEDULER_REQUESTS
from hbatune.settings.table import NR_REQUESTS, SCHEDULER, SETTINGS, Value

REQUEST_BYTES = 640
"""Memory of one request with a scheduler, in bytes.

Measured on 6.1: 2048 requests cost 1.3 MiB a LUN with one hardware queue, 2.4 MiB with two. A
driver with large commands takes more.
"""

_DEFAULT_DEPTH = 128
"""A scheduler starts with twice this many requests, or twice the tags if those are fewer
(block/blk-mq-sched.c: blk_mq_init_sched; BLKDEV_DEFAULT_RQ)."""

_PLANNED = (State.OK, State.DRIFT)
_ALLOCATING = (SCHEDULER, NR_REQUESTS)
_MIB = 1 << 20


def sum_request_memory(
    machine: Machine, planned: Mapping[str, Collection[Row]], allowed: int, elsewhere: int = 0
) -> RequestMemory:
    """Add up the memory of requests before and after the plan. ``planned`` are the rows by id.

    Unplanned disks count with their current values, so the limit also holds if disks are named or
    added one at a time. ``elsewhere`` is the memory of disks that are not in ``machine``.
    ``allowed`` and ``elsewhere`` are in bytes.
    """
    added, total = 0, elsewhere
    growing: set[str] = set()
    for id, requests in _list_requests(machine, planned):
        total += requests.beyond_default
        if requests.after > requests.before:
            added += requests.after - requests.before
            growing.add(id)
    return RequestMemory(added, total, allowed, frozenset(growing))


def sum_beyond_defaults(
    machine: Machine, planned: Mapping[str, Collection[Row]]
) -> Mapping[str, int]:
    """Return, by endpoint id, the bytes that count against the limit after the plan."""
    return {id: requests.beyond_default for id, requests in _list_requests(machine, planned)}


class _Requests(Struct, frozen=True):
    """The bytes of one endpoint's requests: before and after the plan, and the kernel's default."""

    before: int
    after: int
    default: int

    @property
    def beyond_default(self) -> int:
        """The bytes that count against the limit.

        The kernel's defaults do not count. With many LUNs they could exceed the limit without any
        change, and skipping the plan would not free them.
        """
        return max(0, self.after - self.default)


def _list_requests(
    machine: Machine, planned: Mapping[str, Collection[Row]]
) -> Iterator[tuple[str, _Requests]]:
    parameters = {module.name: module.parameters for module in machine.modules}
    for endpoint in machine.endpoints:
        options = parameters.get(endpoint.family, {})
        shared = family_named(endpoint.family).shares_tags(options, _count_queues(endpoint))
        current: dict[str, Value | Missing | None] = {
            name: SETTINGS[name].read(endpoint.attributes) for name in (SCHEDULER, NR_REQUESTS)
        }
        goal = current | {
            row.setting: row.value
            for row in planned.get(endpoint.id, ())
            if row.setting in current and row.state in _PLANNED
        }
        yield (
            endpoint.id,
            _Requests(
                _count_bytes(endpoint, current[SCHEDULER], current[NR_REQUESTS], shared=shared),
                _count_bytes(endpoint, goal[SCHEDULER], goal[NR_REQUESTS], shared=shared),
                _count_default_bytes(endpoint, shared=shared),
            ),
        )


def require_affordable(plan: Plan) -> None:
    """Raise UsageError if the planned requests would take too much memory."""
    memory = plan.memory
    if not memory.affordable:
        raise UsageError(
            f"the planned nr_requests would take {memory.added / _MIB:.0f} MiB of memory, the "
            f"requests of all disks then {memory.total / _MIB:.0f} MiB, more than the "
            f"{memory.allowed / _MIB:.0f} MiB that are allowed; nothing was written",
            hint="name fewer targets, or raise memory_share in [act] of hbatune.toml",
        )


def without_requests(plan: Plan) -> Plan:
    """Return an unaffordable plan without the rows that allocate requests.

    The scheduler is removed as well, since a switch of it allocates requests.
    """
    rows = tuple(
        row
        for row in plan.rows
        if row.id not in plan.memory.growing
        or row.setting not in _ALLOCATING
        or row.state is not State.DRIFT
    )
    return replace(plan, rows=rows, memory=replace(plan.memory, added=0))


def _count_bytes(
    endpoint: Endpoint,
    scheduler: Value | Missing | None,
    requests: Value | Missing | None,
    *,
    shared: bool,
) -> int:
    if scheduler == "none" or not isinstance(requests, int):
        return 0
    if shared:  # always the maximum, so raising nr_requests costs nothing more
        return MAX_SCHEDULER_REQUESTS * REQUEST_BYTES
    return requests * _count_queues(endpoint) * REQUEST_BYTES


def _count_default_bytes(endpoint: Endpoint, *, shared: bool) -> int:
    """Return the bytes that the kernel allocates by default.

    It uses mq-deadline for a single queue or shared tags, otherwise ``none`` (block/elevator.c:
    elevator_get_default).
    """
    if not shared and _count_queues(endpoint) > 1:
        return 0
    tags = endpoint.tags if isinstance(endpoint.tags, int) else _DEFAULT_DEPTH
    return _count_bytes(endpoint, "mq-deadline", 2 * min(tags, _DEFAULT_DEPTH), shared=shared)


def _count_queues(endpoint: Endpoint) -> int:
    return endpoint.hw_queues if isinstance(endpoint.hw_queues, int) else 1  # unknown counts as one


class PathSetting(Struct, frozen=True):
    """One setting of one path.

    ``current`` is None if it could not be read. Such a path does not limit the others. ``value`` is
    the planned value, or None if the path is not changed. ``clamp`` returns the nearest value that
    this path accepts. ``lowers`` is whether the value may be lowered.
    """

    target: str
    current: Value | None
    value: Value | None
    clamp: Callable[[Value], Value]
    lowers: bool


class Decision(Struct, frozen=True):
    """The value for a path instead of the planned value, and the reason."""

    value: Value
    limit: str


def level_paths(paths: Sequence[PathSetting]) -> Mapping[str, Decision]:
    """Return, by target, the changes to the plan that give all paths of a map the same value.

    The common value is the maximum that every path accepts. It never lowers a path that may only be
    raised. If it would have to, each path keeps its planned value, with this reason.
    """
    changing = [path for path in paths if path.value is not None and path.current is not None]
    pins = [path for path in paths if path.value is None and path.current is not None]
    values = [path.value for path in changing if path.value is not None]
    if len(changing) + len(pins) < 2 or not changing:
        return {}
    if pins:
        return _level_with_pins(changing, pins)
    if len(set(values)) == 1:
        return {}
    # Names have no minimum: paths whose rules require different schedulers are not changed.
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < len(values):
        return _leave_unchanged(
            changing, f"the other paths would get {_join_names(sorted(map(str, set(values))))}"
        )
    return _level_numbers(changing, max(numbers))


def _level_numbers(paths: Sequence[PathSetting], goal: int) -> Mapping[str, Decision]:
    # Requests wait on the shallowest path, so its value under the highest goal limits all paths.
    shallowest = min(paths, key=lambda path: _require_int(path.clamp(goal)))
    common = _require_int(shallowest.clamp(goal))
    if all(_reaches(path, common) for path in paths):
        reason = f"alike on all paths: {shallowest.target} takes {common} at most"
        if common == goal:
            deepest = next(path for path in paths if path.value == goal)
            reason = f"alike on all paths: {deepest.target} is at {goal}"
        return {path.target: Decision(common, reason) for path in paths if path.value != common}
    limit = (
        f"differs from the other paths: {shallowest.target} takes {common} at most, "
        "and none is lowered"
    )
    return {path.target: Decision(path.value, limit) for path in paths if path.value is not None}


def _level_with_pins(
    paths: Sequence[PathSetting], pins: Sequence[PathSetting]
) -> Mapping[str, Decision]:
    """Give all paths the value of the unchangeable ones if possible, otherwise change no path."""
    pinned_values = {pin.current for pin in pins}
    names = _join_names([pin.target for pin in pins])
    if {path.value for path in paths} == pinned_values:
        return {}
    if len(pinned_values) == 1:
        goal = next(value for value in pinned_values if value is not None)
        if all(_reaches(path, goal) and _is_between(path, goal) for path in paths):
            reason = f"alike on all paths: {names} is not to be changed and has {goal}"
            return {path.target: Decision(goal, reason) for path in paths if path.value != goal}
    return _leave_unchanged(paths, f"{names} is not to be changed")


def _leave_unchanged(paths: Sequence[PathSetting], reason: str) -> Mapping[str, Decision]:
    """Return the decisions that keep every path at its current value."""
    return {
        path.target: Decision(path.current, f"left like the other paths: {reason}")
        for path in paths
        if path.current is not None and path.value != path.current
    }


def _reaches(path: PathSetting, goal: Value) -> bool:
    """Return whether the path accepts exactly this value and its rule allows it."""
    lowered = isinstance(goal, int) and isinstance(path.current, int) and goal < path.current
    return path.clamp(goal) == goal and (path.lowers or not lowered)


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


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(names)
