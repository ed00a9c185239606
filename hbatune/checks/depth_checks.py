"""Checks of queue depths: limits of hosts and array ports, and depths lowered by the kernel."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from hbatune.checks.finding import Check, CheckInput, Finding, Severity, get_family
from hbatune.facts.families import family_named
from hbatune.facts.family import Purpose
from hbatune.facts.health import AdapterHealth
from hbatune.facts.model import Adapter, Endpoint, Kind, Missing, Protocol
from hbatune.policy.budget import is_shared
from hbatune.policy.library import ArrayModel, find_model
from hbatune.settings.table import SETTINGS

_DEPTH = SETTINGS["queue_depth"]


def find_starved_luns(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find hosts whose can_queue, divided by their LUNs, is below the depth of one LUN.

    The depth is the maximum of the profile's and the current depth. If it is the current depth, the
    finding is only informational: drivers set depths that all LUNs together cannot reach.
    """
    luns = Counter(endpoint.host.name for endpoint in inputs.machine.endpoints if endpoint.host)
    deepest = _find_deepest(inputs)
    for adapter in inputs.adapters:
        for host in adapter.hosts:
            if isinstance(host.can_queue, Missing) or host.name not in deepest:
                continue
            depth, is_planned = deepest[host.name]
            share = host.can_queue // luns[host.name]
            if share < depth and luns[host.name] > 1:  # a single LUN has no competitor
                yield check.found(
                    Severity.WARNING if is_planned else Severity.INFO,
                    adapter,
                    host=host.name,
                    can_queue=host.can_queue,
                    luns=luns[host.name],
                    share=share,
                    wanted=depth,
                    by_profile=is_planned,
                    options=_find_options(adapter),
                )


def _find_options(adapter: Adapter) -> tuple[str, ...]:
    """Return the module options for the host limit."""
    return tuple(o.name for o in get_family(adapter).options if o.purpose is Purpose.HOST_DEPTH)


def _find_deepest(inputs: CheckInput) -> dict[str, tuple[int, bool]]:
    """Return each host's largest depth, and whether the profile sets it."""
    deepest: dict[str, tuple[int, bool]] = {}
    for endpoint in inputs.endpoints:
        if endpoint.host is None:
            continue
        row = inputs.planned.get((endpoint.id, _DEPTH.name))
        current = get_depth(endpoint)
        # The current depth loads the host too, even if the profile requires a lower one.
        candidates = [(row.wanted, True)] if row and isinstance(row.wanted, int) else []
        candidates += [] if current is None else [(current, False)]
        for candidate in candidates:
            previous = deepest.get(endpoint.host.name, (0, False))
            deepest[endpoint.host.name] = max(previous, candidate)
    return deepest


def find_crowded_ports(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find array ports whose limit for all hosts is below the depths of this one host."""
    depths: dict[tuple[str, str], list[int]] = defaultdict(list)
    limits: dict[tuple[str, str], ArrayModel] = {}
    adapters: dict[tuple[str, str], str | None] = {}
    for endpoint in inputs.machine.endpoints:
        array_model = (
            find_model(endpoint.vendor, endpoint.model, inputs.arrays)
            if is_shared(endpoint)
            else None
        )
        depth = get_depth(endpoint) if endpoint.kind is not Kind.MAP else None
        if array_model is None or array_model.port_limit is None or depth is None:
            continue
        port = (
            array_model.name,
            endpoint.port or (endpoint.address or endpoint.id).rpartition(":")[0],
        )
        depths[port].append(depth)
        limits[port], adapters[port] = array_model, endpoint.adapter
    targets = {adapter.target for adapter in inputs.adapters}
    for port, port_depths in depths.items():
        array, total = limits[port], sum(port_depths)
        if array.port_limit is not None and total > array.port_limit:
            adapter = next((a for a in inputs.adapters if a.target == adapters[port]), None)
            if adapter is not None and adapter.target in targets:
                yield check.found(
                    Severity.ADVICE,
                    adapter,
                    array=array.name,
                    port=port[1],
                    luns=len(port_depths),
                    depths=total,
                    limit=array.port_limit,
                    paper=array.port_source,
                )


def find_small_hosts(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find hosts that use less than half of the commands that the firmware offers."""
    for adapter in inputs.adapters:
        health = inputs.of_adapter(adapter)
        for host in adapter.hosts:
            offered, limit = health.credits.get(host.name) if health else None, host.can_queue
            if isinstance(offered, int) and isinstance(limit, int) and 2 * limit < offered:
                yield check.found(
                    Severity.ADVICE,
                    adapter,
                    host=host.name,
                    can_queue=limit,
                    offered=offered,
                    options=_find_options(adapter),
                )


def find_unused_credits(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find drivers loaded with a limit below the number of commands that the firmware offers."""
    for adapter in inputs.adapters:
        health = inputs.of_adapter(adapter)
        if health is None:
            continue
        for host, offered in health.credits.items():
            for option, value in _read_numbers(adapter, health, Purpose.HOST_DEPTH):
                # 0 and -1 leave the choice to the driver.
                if isinstance(offered, int) and 0 < value < offered:
                    yield check.found(
                        Severity.ADVICE,
                        adapter,
                        host=host,
                        option=option,
                        value=value,
                        offered=offered,
                    )


def _read_numbers(
    adapter: Adapter, health: AdapterHealth, purpose: Purpose
) -> Iterator[tuple[str, int]]:
    for option in get_family(adapter).options:
        value = health.options.get(option.name)
        if option.purpose is purpose and isinstance(value, str):
            number = _parse_number(value)
            if number is not None:
                yield option.name, number


def find_lowered_depths(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find depths below the driver's initial depth, on drivers that lower depths on a full queue.

    The module option gives the initial depth. Without it, the largest depth of an equal LUN on the
    same adapter is used, since no file of the kernel shows the ceiling of the ramp.
    """
    adapters = {adapter.target: adapter for adapter in inputs.machine.adapters}
    largest = _find_largest_depths(inputs.machine.endpoints)
    for endpoint in inputs.endpoints:
        depth, adapter = get_depth(endpoint), adapters.get(endpoint.adapter or "")
        if depth is None or adapter is None or not family_named(endpoint.family).depth_ramps:
            continue
        row = inputs.planned.get((endpoint.id, _DEPTH.name))
        if row is not None and row.wanted == depth:
            continue  # the depth that the profile requires
        option = _find_loaded_depth(inputs, adapter)
        initial = option[1] if option else largest[_make_group_key(endpoint)]
        if depth < initial:
            # Without an option, something may have raised the other LUN, for example hbatune.
            severity = Severity.ADVICE if option else Severity.INFO
            option_name = option[0] if option else None
            yield check.found(severity, endpoint, depth=depth, began=initial, option=option_name)


def _find_loaded_depth(inputs: CheckInput, adapter: Adapter) -> tuple[str, int] | None:
    """Return the module option for the initial LUN depth, and its value."""
    health = inputs.of_adapter(adapter)
    numbers = _read_numbers(adapter, health, Purpose.LUN_DEPTH) if health else ()
    return next((number for number in numbers if number[1] > 0), None)


def _find_largest_depths(endpoints: Iterable[Endpoint]) -> dict[object, int]:
    """Return the largest depth of each type of LUN on each adapter."""
    largest: dict[object, int] = defaultdict(int)
    for endpoint in endpoints:
        key = _make_group_key(endpoint)
        largest[key] = max(largest[key], get_depth(endpoint) or 0)
    return largest


def _make_group_key(endpoint: Endpoint) -> object:
    # A volume's depth depends on its members, which no attribute shows, so it has its own group.
    volume = endpoint.target if endpoint.protocol is Protocol.VOLUME else None
    return endpoint.adapter, endpoint.protocol, endpoint.vendor, endpoint.model, volume


def get_depth(endpoint: Endpoint) -> int | None:
    """Return the endpoint's current queue depth."""
    depth = _DEPTH.read(endpoint.attributes)
    return depth if isinstance(depth, int) else None


def _parse_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
