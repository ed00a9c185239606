"""Checks of queue depths: limits of hosts and array ports, lowered depths, and idle adapters."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from hbatune.checks.finding import Check, CheckEvidence, CheckInput, Finding, Severity
from hbatune.facts import families, family
from hbatune.facts.model import Adapter, Endpoint, Kind, Missing
from hbatune.plan.joint_limits import find_default_depths
from hbatune.policy import budget, library
from hbatune.settings.table import SETTINGS

_DEPTH = SETTINGS["queue_depth"]


class _StarvedLuns(CheckEvidence, frozen=True):
    host: str
    can_queue: int
    luns: int
    share: int
    wanted: int
    by_profile: bool
    options: tuple[str, ...]


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
                evidence = _StarvedLuns(
                    host=host.name,
                    can_queue=host.can_queue,
                    luns=luns[host.name],
                    share=share,
                    wanted=depth,
                    by_profile=is_planned,
                    options=_find_options(adapter, family.Purpose.HOST_DEPTH),
                )
                severity = Severity.WARNING if is_planned else Severity.INFO
                yield check.report(severity, adapter, evidence)


def _find_options(device: Adapter | Endpoint, purpose: family.Purpose) -> tuple[str, ...]:
    """Return the options of the driver's module with this purpose."""
    options = families.family_named(device.family).options
    return tuple(option.name for option in options if option.purpose is purpose)


def _find_deepest(inputs: CheckInput) -> dict[str, tuple[int, bool]]:
    """Return each host's largest depth, and whether the profile sets it."""
    deepest: dict[str, tuple[int, bool]] = defaultdict(lambda: (0, False))
    for endpoint in inputs.endpoints:
        if endpoint.host is None:
            continue
        host, current = endpoint.host.name, _DEPTH.read_number(endpoint.attributes)
        row = inputs.planned.get((endpoint.id, _DEPTH.name))
        if row and isinstance(row.wanted, int):
            deepest[host] = max(deepest[host], (row.wanted, True))
        # The current depth loads the host too, even if the profile requires a lower one.
        if current is not None:
            deepest[host] = max(deepest[host], (current, False))
    return deepest


class _CrowdedPort(CheckEvidence, frozen=True):
    array: str
    port: str
    luns: int
    depths: int
    limit: int
    paper: str | None


def find_crowded_ports(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find array ports whose limit for all hosts is below the depths of this one host."""
    ports: dict[tuple[library.ArrayModel, str], list[tuple[int, str | None]]] = defaultdict(list)
    for endpoint in inputs.machine.endpoints:
        depth = _DEPTH.read_number(endpoint.attributes)
        if endpoint.kind is Kind.MAP or depth is None or not budget.is_shared(endpoint):
            continue
        model = library.find_model(endpoint.vendor, endpoint.model, inputs.arrays)
        if model is not None:
            ports[model, budget.find_port(endpoint)].append((depth, endpoint.adapter))
    adapters = {adapter.target: adapter for adapter in inputs.adapters}
    for (model, port), luns in ports.items():
        depths, targets = zip(*luns, strict=True)
        limit, total, adapter = model.port_limit, sum(depths), adapters.get(targets[-1] or "")
        if limit is not None and total > limit and adapter is not None:
            evidence = _CrowdedPort(
                array=model.name,
                port=port,
                luns=len(luns),
                depths=total,
                limit=limit,
                paper=model.port_source,
            )
            yield check.report(Severity.ADVICE, adapter, evidence)


class _SmallHost(CheckEvidence, frozen=True):
    host: str
    can_queue: int
    offered: int
    options: tuple[str, ...]


def find_small_hosts(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find hosts that use less than half of the commands that the firmware offers."""
    for adapter, health in inputs.list_adapter_health():
        for host in adapter.hosts:
            offered, limit = health.credits.get(host.name), host.can_queue
            if isinstance(offered, int) and isinstance(limit, int) and 2 * limit < offered:
                options = _find_options(adapter, family.Purpose.HOST_DEPTH)
                evidence = _SmallHost(host.name, limit, offered, options)
                yield check.report(Severity.ADVICE, adapter, evidence)


class _UnusedCredits(CheckEvidence, frozen=True):
    host: str
    option: str
    value: int
    offered: int


def find_unused_credits(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find drivers loaded with a limit below the number of commands that the firmware offers."""
    for adapter, health in inputs.list_adapter_health():
        for host, offered in health.credits.items():
            for option in _find_options(adapter, family.Purpose.HOST_DEPTH):
                text = health.options.get(option)
                # 0 and -1 leave the choice to the driver.
                value = int(text) if isinstance(text, str) and text.isdecimal() else 0
                if isinstance(offered, int) and 0 < value < offered:
                    evidence = _UnusedCredits(host, option, value, offered)
                    yield check.report(Severity.ADVICE, adapter, evidence)


class _LoweredDepth(CheckEvidence, frozen=True):
    depth: int
    began: int
    option: str | None


def find_lowered_depths(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find depths below the driver's initial depth that a full queue may have lowered.

    Without counted errors a low depth is an administrator's decision, and no finding.
    """
    defaults = find_default_depths(inputs.machine)
    for endpoint in inputs.endpoints:
        depth, default = _DEPTH.read_number(endpoint.attributes), defaults.get(endpoint.id)
        if depth is None or default is None or depth >= default.depth or not default.may_ramp:
            continue
        row = inputs.planned.get((endpoint.id, _DEPTH.name))
        if row is not None and row.wanted == depth:
            continue  # the depth that the profile requires
        names = () if default.by_peers else _find_options(endpoint, family.Purpose.LUN_DEPTH)
        # Something may have raised an equal disk, for example hbatune.
        severity = Severity.INFO if default.by_peers else Severity.ADVICE
        evidence = _LoweredDepth(depth, default.depth, names[0] if names else None)
        yield check.report(severity, endpoint, evidence)


class _IdleAdapters(CheckEvidence, frozen=True):
    maps: tuple[str, ...]
    idle: tuple[str, ...]


def find_idle_adapters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find maps over several adapters that leave an adapter idle until another one fails.

    Paths in a different access state (ALUA) are a reserve. Maps over the same adapters count
    together: if each prefers another adapter, all adapters carry I/O.
    """
    endpoints = inputs.machine.endpoints_by_target
    maps: dict[frozenset[str], list[str]] = defaultdict(list)
    used: dict[frozenset[str], set[str]] = defaultdict(set)
    for map_ in inputs.machine.endpoints:
        if (group := map_.active_group) is not None:
            paths = [endpoints[name] for name in map_.paths if name in endpoints]
            active = [path for path in paths if path.target in group.paths]
            states = {path.access for path in active}
            equal = [path.adapter for path in paths if path.access in states]
            adapters = frozenset(filter(None, equal))
            maps[adapters].append(map_.target)
            used[adapters].update(path.adapter for path in active if path.adapter)
    requested = {endpoint.target for endpoint in inputs.endpoints}
    for adapters, targets in maps.items():
        idle = tuple(sorted(adapters - used[adapters]))
        names = tuple(name for name in targets if name in requested)
        if idle and names:
            yield check.report_targets(Severity.ADVICE, names, _IdleAdapters(names, idle))
