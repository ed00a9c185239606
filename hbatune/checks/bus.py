"""PCI Express: the link that an adapter has, and the errors on it."""

from collections.abc import Iterator

from hbatune.checks.model import Check, Finding, Seen, Severity
from hbatune.facts.health import Errors, Port
from hbatune.facts.model import Adapter, Link, Missing


def link(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find links slower or narrower than both the card and the port above it can do."""
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        if adapter.link is None:
            continue
        finding = _below(check, adapter, adapter.link, health.port if health else None)
        if finding is not None:
            yield finding


def _below(check: Check, adapter: Adapter, now: Link, port: Port | None) -> Finding | None:
    speed = _least(now.max_speed, port.max_speed if port else None)
    width = _least(now.max_width, port.max_width if port else None)
    if isinstance(now.speed, Missing) or isinstance(now.width, Missing):
        return None  # `unread` says so
    slower = speed is not None and now.speed < speed
    narrower = width is not None and now.width < width
    if not slower and not narrower:
        return None
    # Where the port is not known the slot itself may be the limit.
    sure = port is not None and not isinstance(port.max_speed, Missing)
    return check.found(
        Severity.WARNING if sure else Severity.ADVICE,
        adapter,
        speed=now.speed,
        width=now.width,
        possible_speed=speed,
        possible_width=int(width) if width is not None else None,
        port=port.address if port and sure else None,
    )


def _least(*limits: float | Missing | None) -> float | None:
    return min((limit for limit in limits if isinstance(limit, int | float)), default=None)


def errors(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find errors counted at the adapter or the port above it, and those the root port was told.

    A root port counts the messages of everything below it, so it alone is no more than advice.
    """
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        if health is None or health.errors is None:
            continue
        near = [health.errors, *([health.port.errors] if health.port else [])]
        root = health.root.errors if health.root else None
        own, above = _sum(near), _sum([root] if root else [])
        if not any(own) and not any(above):
            continue
        yield check.found(
            _severity(own),
            adapter,
            correctable=own[0],
            nonfatal=own[1],
            fatal=own[2],
            root=health.root.address if health.root else None,
            root_correctable=above[0],
            root_nonfatal=above[1],
            root_fatal=above[2],
        )


def _severity(own: tuple[int, int, int]) -> Severity:
    _, nonfatal, fatal = own
    if fatal:
        return Severity.CRITICAL
    return Severity.WARNING if nonfatal else Severity.ADVICE


def _sum(counted: list[Errors]) -> tuple[int, int, int]:
    """Return the correctable, nonfatal and fatal errors of all that could be read."""
    kinds = zip(*((each.correctable, each.nonfatal, each.fatal) for each in counted), strict=True)
    totals = [sum(count for count in kind if isinstance(count, int)) for kind in kinds]
    return (totals[0], totals[1], totals[2]) if totals else (0, 0, 0)


def not_counted(check: Check, seen: Seen) -> Iterator[Finding]:
    """Say of which PCI Express adapters nobody counts the errors: firmware keeps AER to itself."""
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        if adapter.link is None or health is None or health.errors is None:
            continue
        if isinstance(health.errors.correctable, Missing):
            yield check.found(Severity.INFO, adapter, reason=str(health.errors.correctable.reason))
