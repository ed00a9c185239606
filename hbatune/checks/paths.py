"""Ways to the data: whether there are two, and whether adapters share the load."""

from collections import Counter
from collections.abc import Iterator

from hbatune.checks.model import Check, Finding, Seen, Severity
from hbatune.checks.preferred_paths import uneven
from hbatune.facts.model import Kind, Protocol
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
    """Find adapters that the arrays prefer more often than others that reach the same LUNs."""
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    for balance in uneven(seen.endpoints):
        busiest, most = Counter(balance.preferred).most_common(1)[0]
        yield check.found(
            Severity.ADVICE,
            adapters[busiest],
            preferred=most,
            least=min(balance.preferred.values()),
            adapters=tuple(balance.preferred),
        )
