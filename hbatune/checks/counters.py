"""What the SCSI layer counted, and whether the block layer counts at all."""

from collections.abc import Iterator

from hbatune.checks.model import Check, Finding, Seen, Severity
from hbatune.facts.model import Attribute
from hbatune.settings.table import SETTINGS

PROBES = 32
"""So many failed commands come from asking a drive what it can do, and say nothing of it."""


def timeouts(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find disks on which commands timed out."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        if health and isinstance(health.timeouts, int) and health.timeouts:
            yield check.found(
                Severity.WARNING, endpoint, timeouts=health.timeouts, done=_count(health.done)
            )


def errors(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find disks on which commands failed."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        if health and isinstance(health.errors, int) and health.errors:
            severity = Severity.ADVICE if health.errors > PROBES else Severity.INFO
            yield check.found(severity, endpoint, errors=health.errors, done=_count(health.done))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def iostats(check: Check, seen: Seen) -> Iterator[Finding]:
    """Say of which disks the statistics are switched off, so that nothing can watch them."""
    path = SETTINGS["iostats"].path
    for endpoint in seen.endpoints:
        found = endpoint.attributes.get(path)
        if isinstance(found, Attribute) and found.text == "0":
            yield check.found(Severity.INFO, endpoint)
