"""Checks of depths: hosts whose limit starves their LUNs, and depths that the kernel lowered."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from hbatune.checks.finding import Check, CheckInput, Finding, Severity, family_of
from hbatune.facts.families import family_named
from hbatune.facts.family import Purpose
from hbatune.facts.health import AdapterHealth
from hbatune.facts.model import Adapter, Attribute, Endpoint, Kind, Missing, Protocol
from hbatune.policy.budget import is_shared
from hbatune.policy.library import ArrayModel, model_of
from hbatune.settings.table import SETTINGS

_DEPTH = SETTINGS["queue_depth"]


def find_starved_luns(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find hosts whose can_queue, divided by their LUNs, is below the depth of one LUN.

    That is the profile's, or the one in force if that is more. The latter is only informational:
    drivers set depths that all LUNs together cannot reach.
    """
    luns = Counter(endpoint.host.name for endpoint in seen.machine.endpoints if endpoint.host)
    deepest = _deepest(seen)
    for adapter in seen.adapters:
        for host in adapter.hosts:
            if isinstance(host.can_queue, Missing) or host.name not in deepest:
                continue
            depth, planned = deepest[host.name]
            share = host.can_queue // luns[host.name]
            if share < depth and luns[host.name] > 1:  # one alone starves nobody
                yield check.found(
                    Severity.WARNING if planned else Severity.INFO,
                    adapter,
                    host=host.name,
                    can_queue=host.can_queue,
                    luns=luns[host.name],
                    share=share,
                    wanted=depth,
                    by_profile=planned,
                    options=_options(adapter),
                )


def _options(adapter: Adapter) -> tuple[str, ...]:
    """Return the module's options for the host's limit."""
    return tuple(o.name for o in family_of(adapter).options if o.purpose is Purpose.HOST_DEPTH)


def _deepest(seen: CheckInput) -> dict[str, tuple[int, bool]]:
    """Return for each host the largest depth wanted on it, and whether it is the profile's."""
    found: dict[str, tuple[int, bool]] = {}
    for endpoint in seen.endpoints:
        if endpoint.host is None:
            continue
        row = seen.planned.get((endpoint.id, _DEPTH.name))
        now = depth_of(endpoint)
        # The depth in force loads the host as well, also where the profile wants less than that.
        wishes = [(row.wanted, True)] if row and isinstance(row.wanted, int) else []
        wishes += [] if now is None else [(now, False)]
        for wanted in wishes:
            known = found.get(endpoint.host.name, (0, False))
            found[endpoint.host.name] = max(known, wanted)
    return found


def find_crowded_ports(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find array ports to which this host alone may send more than their maker lets all hosts."""
    depths: dict[tuple[str, str], list[int]] = defaultdict(list)
    limits: dict[tuple[str, str], ArrayModel] = {}
    adapters: dict[tuple[str, str], str | None] = {}
    for endpoint in seen.machine.endpoints:
        known = (
            model_of(endpoint.vendor, endpoint.model, seen.arrays) if is_shared(endpoint) else None
        )
        depth = depth_of(endpoint) if endpoint.kind is not Kind.MAP else None
        if known is None or known.port_limit is None or depth is None:
            continue
        port = (known.name, endpoint.port or (endpoint.address or endpoint.id).rpartition(":")[0])
        depths[port].append(depth)
        limits[port], adapters[port] = known, endpoint.adapter
    asked = {adapter.target for adapter in seen.adapters}
    for port, each_depth in depths.items():
        array, total = limits[port], sum(each_depth)
        if array.port_limit is not None and total > array.port_limit:
            on = next((a for a in seen.adapters if a.target == adapters[port]), None)
            if on is not None and on.target in asked:
                yield check.found(
                    Severity.ADVICE,
                    on,
                    array=array.name,
                    port=port[1],
                    luns=len(each_depth),
                    depths=total,
                    limit=array.port_limit,
                    paper=array.port_source,
                )


def find_small_hosts(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find hosts that take less than half of the commands that the firmware offers."""
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        for host in adapter.hosts:
            offered, most = health.credits.get(host.name) if health else None, host.can_queue
            if isinstance(offered, int) and isinstance(most, int) and 2 * most < offered:
                yield check.found(
                    Severity.ADVICE,
                    adapter,
                    host=host.name,
                    can_queue=most,
                    offered=offered,
                    options=_options(adapter),
                )


def find_unused_credits(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find drivers loaded with a limit below the commands that the firmware offers."""
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        if health is None:
            continue
        for host, offered in health.credits.items():
            for option, value in _numbers(adapter, health, Purpose.HOST_DEPTH):
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


def _numbers(
    adapter: Adapter, health: AdapterHealth, purpose: Purpose
) -> Iterator[tuple[str, int]]:
    for option in family_of(adapter).options:
        value = health.options.get(option.name)
        if option.purpose is purpose and isinstance(value, str):
            number = _number(value)
            if number is not None:
                yield option.name, number


def find_lowered_depths(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find depths below the driver's initial one, on drivers that lower them on a full queue.

    The initial depth is that of the module option, or else the largest depth of an equal LUN on the
    same adapter: the kernel does not show the ceiling of the ramp in any file.
    """
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    like = _like(seen.machine.endpoints)
    for endpoint in seen.endpoints:
        depth, adapter = depth_of(endpoint), adapters.get(endpoint.adapter or "")
        if depth is None or adapter is None or not family_named(endpoint.family).depth_ramps:
            continue
        row = seen.planned.get((endpoint.id, _DEPTH.name))
        if row is not None and row.wanted == depth:
            continue  # the depth that the profile wants
        option = _loaded_with(seen, adapter)
        began = option[1] if option else like[_kind(endpoint)]
        if depth < began:
            # Without an option, the other LUN may have been raised, for example by hbatune itself.
            severity = Severity.ADVICE if option else Severity.INFO
            by = option[0] if option else None
            yield check.found(severity, endpoint, depth=depth, began=began, option=by)


def _loaded_with(seen: CheckInput, adapter: Adapter) -> tuple[str, int] | None:
    """Return the module option for the initial depth of LUNs, and its value."""
    health = seen.of_adapter(adapter)
    numbers = _numbers(adapter, health, Purpose.LUN_DEPTH) if health else ()
    return next((number for number in numbers if number[1] > 0), None)


def _like(endpoints: Iterable[Endpoint]) -> dict[object, int]:
    """Return the largest depth of each kind of LUN on each adapter."""
    found: dict[object, int] = defaultdict(int)
    for endpoint in endpoints:
        found[_kind(endpoint)] = max(found[_kind(endpoint)], depth_of(endpoint) or 0)
    return found


def _kind(endpoint: Endpoint) -> object:
    # The depth of a volume depends on its members, which no attribute shows.
    own = endpoint.target if endpoint.protocol is Protocol.VOLUME else None
    return endpoint.adapter, endpoint.protocol, endpoint.vendor, endpoint.model, own


def depth_of(endpoint: Endpoint) -> int | None:
    """Return the endpoint's current queue depth."""
    found = endpoint.attributes.get(_DEPTH.path)
    return _number(found.text) if isinstance(found, Attribute) else None


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
