"""The one list of checks, and looking with all of them."""

from hbatune.checks import (
    bus,
    caches,
    counters,
    depth,
    interrupts,
    names,
    neighbours,
    paths,
    unread,
    versions,
)
from hbatune.checks.model import Check, Finding, Seen, Severity

CHECKS = (
    Check("pcie-link", "D0-10", bus.link),
    Check("pcie-errors", "K-aer", bus.errors),
    Check("pcie-errors-not-counted", "K-aer", bus.not_counted),
    Check("msix-off", "D0-3", interrupts.off),
    Check("msix-few", "D4-2", interrupts.few),
    Check("vectors-crowded", "D0-3", interrupts.crowded),
    Check("vectors-far", "D0-3", interrupts.far),
    Check("firmware-not-approved", "D0-5", versions.firmware),
    Check("driver-not-approved", "D0-5", versions.driver),
    Check("host-depth-share", "D1-2", depth.shares),
    Check("host-credits", "D4-3", depth.credits),
    Check("depth-sunk", "K-queue-ramp", depth.sunk),
    Check("command-timeouts", "K-error-counters", counters.timeouts),
    Check("command-errors", "K-error-counters", counters.errors),
    Check("counters-rising", "K-error-counters", counters.rising),
    Check("preferred-paths", "D4-4", paths.preferred),
    Check("single-path", "D0-9", paths.single),
    Check("same-name", "K-stable-name", names.shared),
    Check("no-name", "K-stable-name", names.unnamed),
    Check("site-name", "K-stable-name", names.of_site),
    Check("drive-cache", "D1-4", caches.drive),
    Check("adapter-cache", "D4-6", caches.protected),
    Check("atime", "D4-5", caches.atime),
    Check("iostats-off", "D4-5", counters.iostats),
    Check("tuned-running", "K-last-write", neighbours.tuned),
    Check("irqbalance-running", "K-irq-affinity", neighbours.irqbalance),
    Check("udev-rule", "K-last-write", neighbours.udev_rules),
    Check("fio-missing", "D0-11", neighbours.fio),
    Check("bpftrace-missing", "D0-8", neighbours.bpftrace),
    Check("adapter-unread", "D0-8", unread.adapters),
    Check("disk-unread", "D0-8", unread.disks),
    Check("processes-hidden", "K-last-write", neighbours.hidden),
)

_ORDER = {severity: place for place, severity in enumerate(reversed(Severity))}


def look(seen: Seen) -> tuple[Finding, ...]:
    """Return what all checks find, the gravest first, otherwise in the order of the list."""
    found = (finding for check in CHECKS for finding in check.look(check, seen))
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def clean(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing was found that is more than worth knowing."""
    return all(finding.severity is Severity.INFO for finding in findings)
