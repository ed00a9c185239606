"""What was counted of errors, what rose since, and whether the block layer counts at all."""

from collections.abc import Iterator

from hbatune.checks.model import Check, Finding, Seen, Severity
from hbatune.facts.model import Adapter, Attribute, Endpoint
from hbatune.settings.table import SETTINGS

_GRAVE = frozenset({"timeouts", "nonfatal", "fatal"})

PROBES = 32
"""So many failed commands come from asking a drive what it can do, and say nothing of it."""


def timeouts(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find disks on which commands timed out."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        if health and isinstance(health.timeouts, int) and health.timeouts:
            severity = Severity.INFO if _known_of(seen, endpoint, "timeouts") else Severity.WARNING
            yield check.found(
                severity, endpoint, timeouts=health.timeouts, done=_count(health.done)
            )


def errors(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find disks on which commands failed."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        if health and isinstance(health.errors, int) and health.errors:
            old = health.errors <= PROBES or _known_of(seen, endpoint, "errors")
            severity = Severity.INFO if old else Severity.ADVICE
            yield check.found(severity, endpoint, errors=health.errors, done=_count(health.done))


def rising(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find counters of errors that rose since they were looked at before."""
    now, before = seen.counted, seen.earlier
    if now is None or before is None:
        return
    targets: list[tuple[str, Endpoint | Adapter]] = [(each.id, each) for each in seen.endpoints]
    targets += [(each.target, each) for each in seen.adapters]
    for key, target in targets:
        for name, count in sorted(now.values.get(key, {}).items()):
            was = before.value(key, name)
            if count > was:
                yield check.found(
                    Severity.WARNING if name in _GRAVE else Severity.ADVICE,
                    target,
                    counter=name,
                    was=was,
                    now=count,
                    minutes=max(1, (now.at - before.at) // 60),
                )


def _known_of(seen: Seen, endpoint: Endpoint, name: str) -> bool:
    """Whether a counter has been seen before as it is now: what happened is over."""
    if seen.counted is None or seen.earlier is None:
        return False
    return seen.counted.value(endpoint.id, name) <= seen.earlier.value(endpoint.id, name)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def iostats(check: Check, seen: Seen) -> Iterator[Finding]:
    """Say of which disks the statistics are switched off, so that nothing can watch them."""
    path = SETTINGS["iostats"].path
    for endpoint in seen.endpoints:
        found = endpoint.attributes.get(path)
        if isinstance(found, Attribute) and found.text == "0":
            yield check.found(Severity.INFO, endpoint)
