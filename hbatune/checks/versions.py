"""Firmware and drivers, against what the site approved."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from hbatune.checks.model import Check, Finding, Seen, Severity
from hbatune.facts.model import Adapter, Missing
from hbatune.policy.config import Approved


def firmware(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find firmware that is not on the site's list, or cannot be read although it is listed."""
    for adapter, approved in _listed(seen):
        allowed = tuple(glob for each in approved for glob in each.firmware)
        yield from _judged(check, adapter, adapter.firmware, allowed)


def driver(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find drivers that are not on the site's list; one without a version is its kernel's."""
    for adapter, approved in _listed(seen):
        allowed = tuple(glob for each in approved for glob in each.driver)
        version = adapter.driver_version
        if isinstance(version, Missing):
            version = seen.machine.kernel
        yield from _judged(check, adapter, version, allowed)


def _listed(seen: Seen) -> Iterator[tuple[Adapter, tuple[Approved, ...]]]:
    for adapter in seen.adapters:
        yield adapter, tuple(each for each in seen.site.approved if _for(each, adapter))


def _for(approved: Approved, adapter: Adapter) -> bool:
    product = adapter.product or ""
    return approved.family == adapter.family and fnmatchcase(product, approved.product)


def _judged(
    check: Check, adapter: Adapter, version: str | Missing, allowed: tuple[str, ...]
) -> Iterator[Finding]:
    if not allowed:
        return
    if isinstance(version, Missing):
        yield check.found(Severity.ADVICE, adapter, version=None, approved=allowed)
    elif not any(fnmatchcase(version, glob) for glob in allowed):
        yield check.found(Severity.WARNING, adapter, version=version, approved=allowed)
