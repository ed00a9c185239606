"""Renders an audit as Prometheus metrics, for node_exporter's textfile collector. Pure.

Beside the daemon's metrics (``watch.metrics``), which are of one host and of this moment, these say
what each host is made of, so that Prometheus can count and compare over all of them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hbatune.checks.model import Severity
from hbatune.fleet.audit import Audit
from hbatune.watch.metrics import require

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

_HOST = ("host", "profile", "kernel", "version", "group")
_ADAPTER = ("host", "adapter", "family", "product", "firmware", "driver", "link")


def exposition(audit: Audit, now: float) -> bytes:
    """Return an audit in Prometheus's text format; ``now`` is in seconds since the epoch.

    UsageError where the library for metrics is not installed.
    """
    require()
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> "Iterator[GaugeMetricFamily]":
            return _families(audit, now)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return bytes(generate_latest(registry))


def _families(audit: Audit, now: float) -> "Iterator[GaugeMetricFamily]":
    from prometheus_client.core import GaugeMetricFamily

    def gauge(name: str, says: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"hbatune_audit_{name}", says, labels=labels)

    info = gauge("host_info", "Profile, kernel, version and group of a host.", *_HOST)
    adapters = gauge("adapter_info", "Versions and link of an adapter.", *_ADAPTER)
    drift = gauge("drift_settings", "Settings that are not as the profile wants them.", "host")
    odd = gauge("odd_facts", "Facts in which a host differs from alike ones.", "host")
    findings = gauge("findings", "Findings of the checks.", "host", "severity")
    taken = gauge("snapshot_timestamp_seconds", "When the snapshot was taken.", "host")
    for host in audit.hosts:
        named = (host.name, host.profile or "", host.kernel, host.hbatune, str(host.group))
        info.add_metric(named, 1)
        drift.add_metric((host.name,), host.drift)
        odd.add_metric((host.name,), host.odd)
        taken.add_metric((host.name,), host.taken)
        for severity in Severity:
            findings.add_metric((host.name, str(severity)), host.findings.get(severity, 0))
        for each in host.adapters:
            known = (each.firmware or "", each.driver or "", each.link or "")
            adapters.add_metric((host.name, each.target, each.family, each.name, *known), 1)
    yield from (info, adapters, drift, odd, findings, taken)
    unusable = gauge("unusable_files", "Files that could not be audited.")
    unusable.add_metric((), len(audit.unusable))
    yield unusable
    made = gauge("timestamp_seconds", "When the audit was made.")
    made.add_metric((), now)
    yield made
