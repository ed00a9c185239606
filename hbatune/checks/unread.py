"""Checks for facts that exist but could not be read: such a machine must not be called clean."""

from collections.abc import Iterator

from hbatune.checks.model import Check, CheckInput, Finding, Severity, unread
from hbatune.facts.model import Adapter, Endpoint, Missing, Reason


def find_unread_adapters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters with unreadable facts that checks need."""
    for adapter in seen.adapters:
        facts = tuple(name for name, fact in _of_adapter(seen, adapter) if unread(fact))
        if facts:
            yield check.found(Severity.ADVICE, adapter, facts=facts)


def find_unread_disks(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find endpoints with unreadable facts that checks need."""
    for endpoint in seen.endpoints:
        facts = tuple(name for name, fact in _of_disk(seen, endpoint) if unread(fact))
        if facts:
            yield check.found(Severity.ADVICE, endpoint, facts=facts)


def _of_adapter(seen: CheckInput, adapter: Adapter) -> Iterator[tuple[str, object]]:
    yield "firmware", adapter.firmware
    if adapter.link:
        for name, fact in (("speed", adapter.link.speed), ("width", adapter.link.width)):
            # The kernel shows "Unknown" and 0 lanes for integrated functions, which have no link.
            if not (isinstance(fact, Missing) and fact.reason is Reason.UNPARSABLE):
                yield f"link {name}", fact
    for host in adapter.hosts:
        yield f"can_queue of {host.name}", host.can_queue
    health = seen.of_adapter(adapter)
    if health is None:
        return
    for place, errors in (
        ("adapter", health.errors),
        ("port", health.port and health.port.errors),
        ("root port", health.root and health.root.errors),
    ):
        if errors:
            for kind in ("correctable", "nonfatal", "fatal"):
                yield f"{kind} errors of the {place}", getattr(errors, kind)
    yield "interrupt vectors", health.vectors
    for name, value in health.options.items():
        yield f"option {name}", value
    for name, offered in health.credits.items():
        yield f"firmware's credits of {name}", offered


def _of_disk(seen: CheckInput, endpoint: Endpoint) -> Iterator[tuple[str, object]]:
    yield "queue_depth", endpoint.attributes.get("device/queue_depth")
    health = seen.of_disk(endpoint)
    if health is not None:
        yield "cache type", health.cache
        yield "failed commands", health.errors
        yield "timeouts", health.timeouts
        yield "preferred path", endpoint.preferred
