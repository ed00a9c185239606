"""Checks for facts that exist but could not be read: such a machine must not be called clean."""

import os
from collections.abc import Iterable, Iterator

from hbatune.checks.adapters import on_a_line
from hbatune.checks.model import Check, CheckInput, Finding, Severity, denied, unread
from hbatune.facts.model import Adapter, Endpoint, Missing, Reason


def find_unread_adapters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters with unreadable facts that checks need."""
    for adapter in seen.adapters:
        yield from _told(check, adapter, _of_adapter(seen, adapter))


def find_unread_disks(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find endpoints with unreadable facts that checks need."""
    for endpoint in seen.endpoints:
        yield from _told(check, endpoint, _of_disk(seen, endpoint))


def _told(
    check: Check, on: Adapter | Endpoint, facts: Iterable[tuple[str, object]]
) -> Iterator[Finding]:
    """Yield a finding if any of the facts could not be read, with what each read ended with."""
    missing = [(name, fact) for name, fact in facts if isinstance(fact, Missing) and unread(fact)]
    if missing:
        roots = tuple(name for name, fact in missing if denied(fact))
        yield check.found(
            Severity.ADVICE,
            on,
            facts=tuple(name for name, _ in missing),
            reasons=tuple(dict.fromkeys(_reason(fact) for _, fact in missing)),
            roots=roots,
            failed=() if roots else tuple(name for name, _ in missing),
        )


def _reason(fact: Missing) -> str:
    """Return why a fact is missing: what the read ended with, or the text that makes no sense."""
    if fact.reason is Reason.UNPARSABLE:
        return f"makes no sense: {fact.text}"
    if fact.text:
        return fact.text
    return os.strerror(fact.errno) if fact.errno else str(fact.reason)


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
    if any(each.target == adapter.target for each, _ in on_a_line(seen)):
        yield "capabilities", health.offers_msi
    for name, value in health.options.items():
        yield f"option {name}", value
    for name, offered in health.credits.items():
        yield f"firmware's credits of {name}", offered


def _of_disk(seen: CheckInput, endpoint: Endpoint) -> Iterator[tuple[str, object]]:
    yield "queue_depth", endpoint.attributes.get("device/queue_depth")
    health = seen.of_disk(endpoint)
    if health is not None:
        yield "cache type", health.cache
        yield "commands without good status", health.errors
        yield "timeouts", health.timeouts
        yield "preferred path", endpoint.preferred
