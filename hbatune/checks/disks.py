"""Checks of disks: caches, mounts, and counters of failed commands.

No finding here is a reason to switch a drive's own cache on: its content is lost with the power.
"""

from collections.abc import Iterator

from hbatune.checks.model import Check, CheckInput, Finding, Severity
from hbatune.facts.devices import SWAP
from hbatune.facts.model import Adapter, Attribute, Endpoint, Kind, Protocol
from hbatune.settings.table import SETTINGS

_NO_UPDATES = frozenset({"noatime", "ro"})
_GRAVE = frozenset({"timeouts", "nonfatal", "fatal"})
PROBES = 32
"""Failed commands up to this number come from probing a drive's features, and mean nothing."""


def show_drive_caches(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Report each drive's cache type; maps are left out, since their paths have it."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        drives = endpoint.kind is not Kind.MAP and endpoint.protocol is not Protocol.VOLUME
        if drives and health and isinstance(health.cache, str):
            yield check.found(Severity.INFO, endpoint, cache=health.cache)


def find_adapter_caches(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes: no attribute shows their protected cache."""
    for adapter in seen.adapters:
        volumes = tuple(
            endpoint.target
            for endpoint in seen.endpoints
            if endpoint.adapter == adapter.target and endpoint.protocol is Protocol.VOLUME
        )
        if volumes:
            yield check.found(Severity.INFO, adapter, volumes=volumes, family=adapter.family)


def find_access_times(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find mounts that update access times: at each read, or at most daily (relatime)."""
    options = {mount.point: mount.options for mount in seen.health.mounts}
    told: set[str] = set()
    # Maps before paths: a mount is reported once, on the map.
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


def find_timeouts(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks on which commands timed out."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        if health and isinstance(health.timeouts, int) and health.timeouts:
            severity = Severity.INFO if _known_of(seen, endpoint, "timeouts") else Severity.WARNING
            yield check.found(
                severity, endpoint, timeouts=health.timeouts, done=_count(health.done)
            )


def find_errors(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks on which commands failed."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        if health and isinstance(health.errors, int) and health.errors:
            # ioerr_cnt counts successful ATA pass-through, too: each poll of smartd raises it.
            old = health.errors <= PROBES or _known_of(seen, endpoint, "errors")
            severity = Severity.INFO if old else Severity.ADVICE
            yield check.found(severity, endpoint, errors=health.errors, done=_count(health.done))


def find_rising_counters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find error counters that have risen since the last check."""
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


def find_statistics_off(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks whose statistics are off, so that they cannot be watched."""
    path = SETTINGS["iostats"].path
    for endpoint in seen.endpoints:
        found = endpoint.attributes.get(path)
        if isinstance(found, Attribute) and found.text == "0":
            yield check.found(Severity.INFO, endpoint)


def _known_of(seen: CheckInput, endpoint: Endpoint, name: str) -> bool:
    """Whether a counter has not risen since the last check: its cause is over."""
    if seen.counted is None or seen.earlier is None:
        return False
    return seen.counted.value(endpoint.id, name) <= seen.earlier.value(endpoint.id, name)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
