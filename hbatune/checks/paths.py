"""Ways to the data: whether there are two, and whether adapters share the load."""

from collections import Counter
from collections.abc import Iterator

from hbatune.checks.model import Check, Finding, Seen, Severity
from hbatune.facts.model import Endpoint, Kind, Protocol
from hbatune.policy.match import objective, traits


def single(check: Check, seen: Seen) -> Iterator[Finding]:
    """Name native NVMe drives with one path, where the profile has an objective for them.

    How many I/Os they will be asked for is not known here, so this is worth knowing and no more.
    """
    if seen.profile is None:
        return
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    for endpoint in seen.endpoints:
        alone = endpoint.kind is Kind.DISK and endpoint.protocol is Protocol.NVME
        if not alone or endpoint.tri_mode:
            continue
        goal = objective(seen.profile, traits(endpoint, adapters.get(endpoint.adapter or "")))
        if goal is not None:
            yield check.found(
                Severity.INFO, endpoint, profile=seen.profile.name, objective_ms=goal.p99_ms
            )


def preferred(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find adapters of a group that the targets prefer more often than its others.

    A group is the adapters that lead to the same maps; each map counts once for each adapter
    that has a preferred path to it.
    """
    by_name = {endpoint.target: endpoint for endpoint in seen.machine.endpoints}
    groups: dict[frozenset[str], Counter[str]] = {}
    for endpoint in seen.endpoints:
        paths = [by_name[name] for name in endpoint.paths if name in by_name]
        group = frozenset(path.adapter for path in paths if path.adapter)
        if len(group) > 1:
            liked = {path.adapter for path in paths if path.adapter and _liked(seen, path)}
            groups.setdefault(group, Counter(dict.fromkeys(sorted(group), 0))).update(liked)
    for counted in groups.values():
        if max(counted.values()) - min(counted.values()) > 1:
            busiest, most = counted.most_common(1)[0]
            least = min(counted.values())
            yield check.found(
                Severity.ADVICE,
                next(each for each in seen.machine.adapters if each.target == busiest),
                preferred=most,
                least=least,
                adapters=tuple(sorted(counted)),
            )


def _liked(seen: Seen, path: Endpoint) -> bool:
    health = seen.of_disk(path)
    return health is not None and health.preferred is True
