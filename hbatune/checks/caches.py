"""Caches and mounts: shown and advised on, never set.

Nothing here is a reason to switch a drive's own cache on: what is in it dies with the power.
"""

from collections.abc import Iterator

from hbatune.checks.model import Check, Finding, Seen, Severity
from hbatune.facts.model import Kind, Protocol
from hbatune.facts.stack import SWAP

_NO_UPDATES = frozenset({"noatime", "ro"})


def drive(check: Check, seen: Seen) -> Iterator[Finding]:
    """Show each drive's cache type; a map has what its paths have."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        drives = endpoint.kind is not Kind.MAP and endpoint.protocol is not Protocol.VOLUME
        if drives and health and isinstance(health.cache, str):
            yield check.found(Severity.INFO, endpoint, cache=health.cache)


def protected(check: Check, seen: Seen) -> Iterator[Finding]:
    """Name the adapters with volumes, whose protected cache no attribute shows."""
    for adapter in seen.adapters:
        volumes = tuple(
            endpoint.target
            for endpoint in seen.endpoints
            if endpoint.adapter == adapter.target and endpoint.protocol is Protocol.VOLUME
        )
        if volumes:
            yield check.found(Severity.INFO, adapter, volumes=volumes, family=adapter.family)


def atime(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find mounts that write on reading: always, which costs, or at most daily (relatime)."""
    options = {mount.point: mount.options for mount in seen.health.mounts}
    told: set[str] = set()
    # What is mounted over several paths is mounted on their map.
    for endpoint in sorted(seen.endpoints, key=lambda each: each.kind is Kind.PATH):
        for point in endpoint.mounts:
            if point in told or point == SWAP or point not in options:
                continue
            told.add(point)
            if not _NO_UPDATES.intersection(options[point]):
                relative = "relatime" in options[point]
                yield check.found(
                    Severity.INFO if relative else Severity.ADVICE,
                    endpoint,
                    point=point,
                    relatime=relative,
                )
