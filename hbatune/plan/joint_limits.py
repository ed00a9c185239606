"""Limits that several disks share: the memory of requests, and the values of a map's paths.

The memory that the requests of a plan take. Pure.

A scheduler allocates requests. Where every hardware queue has its own tags, it allocates
nr_requests of them for each queue; where the adapter's queues share one tag set, it allocates its
maximum once for each LUN (block/blk-mq-sched.c: blk_mq_init_sched). ``none`` uses the adapter's
tag set, which exists already.

Keeps the paths of one map alike: finds the value that all of them can take. Pure.

A map chooses a path for each request, so a path that is shallower than the others makes some
requests wait that another path would have served.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.facts.families import family_named
from hbatune.facts.model import Attribute, Endpoint, Machine
from hbatune.plan.rows import Plan, RequestMemory, Row, State
from hbatune.settings.limits import MAX_SCHEDULER_REQUESTS
from hbatune.settings.table import NR_REQUESTS, SCHEDULER, SETTINGS, Value

REQUEST_BYTES = 640
"""Memory of one request with a scheduler, in bytes.

Measured on 6.1: 2048 requests cost 1.3 MiB a LUN with one hardware queue, 2.4 MiB with two; a
driver with a large command of its own takes more.
"""

_DEFAULT_DEPTH = 128
"""A scheduler starts with twice this many requests, or twice the tags if those are fewer
(block/blk-mq-sched.c: blk_mq_init_sched; BLKDEV_DEFAULT_RQ)."""

_PLANNED = (State.OK, State.DRIFT)
_ALLOCATING = (SCHEDULER, NR_REQUESTS)
_MIB = 1 << 20


def request_memory(
    machine: Machine, planned: Mapping[str, Collection[Row]], allowed: int, elsewhere: int = 0
) -> RequestMemory:
    """Add up the memory of requests before and after the plan; ``planned`` are the rows by id.

    Disks that are not planned count as they are, so that naming one disk after another, or events
    that bring one at a time, are held to the same limit; ``elsewhere`` is for those that are not
    part of this machine. ``allowed`` and ``elsewhere`` are in bytes.
    """
    added, total = 0, elsewhere
    growing: set[str] = set()
    for id, each in _requests(machine, planned):
        total += each.beyond_default
        if each.after > each.before:
            added += each.after - each.before
            growing.add(id)
    return RequestMemory(added, total, allowed, frozenset(growing))


def beyond_defaults(machine: Machine, planned: Mapping[str, Collection[Row]]) -> Mapping[str, int]:
    """Return by endpoint id the bytes that count against the limit once the plan is carried out."""
    return {id: each.beyond_default for id, each in _requests(machine, planned)}


class _Requests(Struct, frozen=True):
    """The bytes of one endpoint's requests: before and after the plan, and the kernel's default."""

    before: int
    after: int
    default: int

    @property
    def beyond_default(self) -> int:
        """The bytes that count.

        The kernel's own defaults do not: on a host with many LUNs they alone could use up the
        share, and leaving everything as it is would not give them back.
        """
        return max(0, self.after - self.default)


def _requests(
    machine: Machine, planned: Mapping[str, Collection[Row]]
) -> Iterator[tuple[str, _Requests]]:
    parameters = {module.name: module.parameters for module in machine.modules}
    for endpoint in machine.endpoints:
        options = parameters.get(endpoint.family, {})
        shared = family_named(endpoint.family).shares_tags(options, _queues(endpoint))
        now = {name: _current(endpoint, name) for name in (SCHEDULER, NR_REQUESTS)}
        goal = now | {
            row.setting: row.value
            for row in planned.get(endpoint.id, ())
            if row.setting in now and row.state in _PLANNED
        }
        yield (
            endpoint.id,
            _Requests(
                _bytes(endpoint, now[SCHEDULER], now[NR_REQUESTS], shared=shared),
                _bytes(endpoint, goal[SCHEDULER], goal[NR_REQUESTS], shared=shared),
                _default_bytes(endpoint, shared=shared),
            ),
        )


def require_affordable(plan: Plan) -> None:
    """Raise UsageError if the planned requests would take too much memory."""
    found = plan.memory
    if not found.affordable:
        raise UsageError(
            f"the planned nr_requests would take {found.added / _MIB:.0f} MiB of memory, the "
            f"requests of all disks then {found.total / _MIB:.0f} MiB, more than the "
            f"{found.allowed / _MIB:.0f} MiB that are allowed; nothing was written",
            hint="name fewer targets, or raise memory_share in [act] of hbatune.toml",
        )


def without_requests(plan: Plan) -> Plan:
    """Return the plan without the rows that allocate requests, for a plan not affordable.

    The scheduler goes with nr_requests, since a switch allocates requests as well.
    """
    rows = tuple(
        row
        for row in plan.rows
        if row.id not in plan.memory.growing
        or row.setting not in _ALLOCATING
        or row.state is not State.DRIFT
    )
    return replace(plan, rows=rows, memory=replace(plan.memory, added=0))


def _bytes(
    endpoint: Endpoint, scheduler: Value | None, requests: Value | None, *, shared: bool
) -> int:
    if scheduler == "none" or not isinstance(requests, int):
        return 0
    if shared:  # always the maximum, so that raising nr_requests costs nothing more
        return MAX_SCHEDULER_REQUESTS * REQUEST_BYTES
    return requests * _queues(endpoint) * REQUEST_BYTES


def _default_bytes(endpoint: Endpoint, *, shared: bool) -> int:
    """Return the bytes that the kernel allocates by default.

    It sets mq-deadline for a single queue or shared tags, else none (block/elevator.c:
    elevator_get_default).
    """
    if not shared and _queues(endpoint) > 1:
        return 0
    tags = endpoint.tags if isinstance(endpoint.tags, int) else _DEFAULT_DEPTH
    return _bytes(endpoint, "mq-deadline", 2 * min(tags, _DEFAULT_DEPTH), shared=shared)


def _queues(endpoint: Endpoint) -> int:
    return endpoint.hw_queues if isinstance(endpoint.hw_queues, int) else 1  # unknown: as one


def _current(endpoint: Endpoint, name: str) -> Value | None:
    found = endpoint.attributes.get(SETTINGS[name].path)
    if not isinstance(found, Attribute):
        return None
    try:
        return SETTINGS[name].parse(found.text)
    except ValueError:
        return None


class PathSetting(Struct, frozen=True):
    """One path's part in one setting.

    ``current`` is None if it could not be read: such a path does not limit the others.
    ``value`` is the planned one, None if the path is not to be changed. ``clamp`` returns the
    nearest value that this path takes; ``lowers`` is whether it may be lowered at all.
    """

    target: str
    current: Value | None
    value: Value | None
    clamp: Callable[[Value], Value]
    lowers: bool


class Decision(Struct, frozen=True):
    """The value for a path in place of the plan's own one, and the reason."""

    value: Value
    limit: str


def level(paths: Sequence[PathSetting]) -> Mapping[str, Decision]:
    """Return, by target, the changes to the plan that make the paths of a map alike.

    The common value is the most that every path takes. It never lowers a path that is only to be
    raised: if nothing else would make them alike, each keeps its planned value, and says so.
    """
    changing = [path for path in paths if path.value is not None and path.current is not None]
    pins = [path for path in paths if path.value is None and path.current is not None]
    values = [path.value for path in changing if path.value is not None]
    if len(changing) + len(pins) < 2 or not changing:
        return {}
    if pins:
        return _with_pins(changing, pins)
    if len(set(values)) == 1:
        return {}
    # Names have no least one among them: paths whose rules want different schedulers stay as
    # they are.
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < len(values):
        return _left(changing, f"the other paths would get {_words(sorted(map(str, set(values))))}")
    return _numbers(changing, max(numbers))


def _numbers(paths: Sequence[PathSetting], goal: int) -> Mapping[str, Decision]:
    # The path that takes least of the highest goal limits all: requests wait at the shallowest.
    least = min(paths, key=lambda path: _number(path.clamp(goal)))
    common = _number(least.clamp(goal))
    if all(_reaches(path, common) for path in paths):
        why = f"alike on all paths: {least.target} takes {common} at most"
        if common == goal:
            deepest = next(path for path in paths if path.value == goal)
            why = f"alike on all paths: {deepest.target} is at {goal}"
        return {path.target: Decision(common, why) for path in paths if path.value != common}
    kept = (
        f"differs from the other paths: {least.target} takes {common} at most, and none is lowered"
    )
    return {path.target: Decision(path.value, kept) for path in paths if path.value is not None}


def _with_pins(paths: Sequence[PathSetting], pins: Sequence[PathSetting]) -> Mapping[str, Decision]:
    """Make all paths like those that are not to be changed if possible, else change none."""
    held = {pin.current for pin in pins}
    names = _words([pin.target for pin in pins])
    if {path.value for path in paths} == held:
        return {}
    if len(held) == 1:
        goal = next(value for value in held if value is not None)
        if all(_reaches(path, goal) and _towards(path, goal) for path in paths):
            why = f"alike on all paths: {names} is not to be changed and has {goal}"
            return {path.target: Decision(goal, why) for path in paths if path.value != goal}
    return _left(paths, f"{names} is not to be changed")


def _left(paths: Sequence[PathSetting], why: str) -> Mapping[str, Decision]:
    """Return the decisions that leave every path at its current value."""
    return {
        path.target: Decision(path.current, f"left like the other paths: {why}")
        for path in paths
        if path.current is not None and path.value != path.current
    }


def _reaches(path: PathSetting, goal: Value) -> bool:
    """Whether the path takes exactly this value, without being lowered against its rule."""
    lowered = isinstance(goal, int) and isinstance(path.current, int) and goal < path.current
    return path.clamp(goal) == goal and (path.lowers or not lowered)


def _towards(path: PathSetting, goal: Value) -> bool:
    """Whether this lies between the path's current and its planned value.

    A path is never moved beyond its own rule, nor away from it, for the sake of the others.
    """
    if not isinstance(goal, int):
        return goal in (path.value, path.current)
    low, high = sorted((_number(path.current), _number(path.value)))
    return low <= goal <= high


def _number(value: Value | None) -> int:
    assert isinstance(value, int)
    return value


def _words(names: Sequence[str]) -> str:
    return " and ".join(names)
