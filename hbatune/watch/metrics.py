"""Renders the watch's findings as Prometheus metrics. Pure: it returns text and publishes nothing.

Names and units follow Prometheus's conventions: base units, ``_total`` for counters. The metrics
that node_exporter has of every disk (I/Os, bytes, busy time) are not repeated. prometheus_client
takes 10 MiB of memory, so it is imported only where metrics are configured.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.health import NOT_GOOD
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.readings import Reading
from hbatune.watch.watch import WatchState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_Figure = Callable[[Reading], float | None]

_GAUGES: tuple[tuple[str, str, float, _Figure], ...] = (
    ("latency_mean_seconds", "Mean latency from the request on.", 1e-3, lambda it: it.mean_ms),
    ("latency_p99_seconds", "99th percentile of latency, by bpftrace.", 1e-3, lambda it: it.p99_ms),
    (
        "latency_p999_seconds",
        "99.9th percentile of latency, by bpftrace.",
        1e-3,
        lambda it: it.p999_ms,
    ),
    (
        "stalled_seconds",
        "How long at least I/O waits while none is done.",
        1e-3,
        lambda it: it.stalled_ms,
    ),
    ("objective_p99_seconds", "The p99 that is wanted.", 1e-3, lambda it: it.objective_ms),
    ("in_flight", "I/Os in flight on average.", 1.0, lambda it: it.in_flight),
    ("knee_depth", "I/Os in flight beyond which more only wait.", 1.0, lambda it: it.knee),
    ("queue_depth", "Commands that the device is sent at once.", 1.0, lambda it: it.depth),
    ("utilisation_ratio", "Share of time with any I/O in flight.", 1.0, lambda it: it.utilisation),
)
"""The gauges of each endpoint: name, help, factor to the base unit, and the figure."""

_NOT_GOOD = (
    "Commands that ended with any status other than good since the device came: also polls of its "
    "health that succeeded, resets and full queues. Not a count of failures."
)
_ENDPOINT = ("device", "endpoint", "adapter")
_GIGA = 1e9


class DaemonFigures(Struct, frozen=True):
    """The daemon's own figures beside those of the watch.

    ``profile`` is the active one, empty where there is none. ``drift`` counts the settings that
    are not as they should be, ``repaired`` those that were set again since it began. ``passed`` is
    the time of the last complete pass, in seconds since the epoch, None before the first.
    """

    version: str
    profile: str
    endpoints: int
    drift: int
    repaired: int
    passed: float | None


def exposition(state: WatchState, keeping: DaemonFigures) -> bytes:
    """Return all metrics in Prometheus's text format. Raises as ``require`` does."""
    require()
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(state, keeping))
    return bytes(generate_latest(registry))


def require() -> None:
    """Raise ``UsageError`` where the library for metrics is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "metrics need prometheus_client, which is not installed",
            hint="install the package python3-prometheus-client",
        ) from error


class _Collector:
    """All metrics of one moment, in the form that the library collects."""

    def __init__(self, state: WatchState, keeping: DaemonFigures) -> None:
        self._state, self._keeping = state, keeping

    def collect(self) -> "Iterator[Metric]":
        yield from _of_daemon(self._keeping)
        yield from _of_disks(self._state)
        yield from _of_servers(self._state)
        yield from _of_alerts(self._state)


def _of_daemon(keeping: DaemonFigures) -> "Iterator[Metric]":
    names = {"version": keeping.version, "profile": keeping.profile}
    yield _gauge("hbatune_info", "Version and active profile.", names, [(names, 1.0)])
    plain = (
        ("endpoints", "Endpoints that are watched.", keeping.endpoints),
        ("drift_settings", "Settings that are not as the profile wants them.", keeping.drift),
        ("last_pass_timestamp_seconds", "When all settings were looked at last.", keeping.passed),
    )
    for name, says, value in plain:
        if value is not None:
            yield _gauge(f"hbatune_{name}", says, (), [({}, float(value))])
    says = "Settings that were set again since the daemon began."
    yield _counter("hbatune_repaired_settings", says, (), [({}, float(keeping.repaired))])


def _of_disks(state: WatchState) -> "Iterator[Metric]":
    named = [
        ({"device": d.target, "endpoint": d.id, "adapter": d.adapter or ""}, d) for d in state.disks
    ]
    for name, says, unit, figure in _GAUGES:
        values = [(labels, figure(disk)) for labels, disk in named]
        known = [(labels, value * unit) for labels, value in values if value is not None]
        # A gauge of unknown value is left out: 0 would read as a measurement.
        yield _gauge(f"hbatune_endpoint_{name}", says, _ENDPOINT, known)
    lowered = [(labels, float(state.lowered.get(disk.id, 0))) for labels, disk in named]
    says = "Times that the kernel was seen to lower the queue depth since the daemon began."
    yield _counter("hbatune_endpoint_queue_depth_lowered", says, _ENDPOINT, lowered)
    for counter, says in (
        (NOT_GOOD, _NOT_GOOD),
        ("timeouts", "Commands that timed out since the device came."),
    ):
        counted = [(labels, disk.counted.get(counter)) for labels, disk in named]
        known = [(labels, float(count)) for labels, count in counted if count is not None]
        yield _counter(f"hbatune_endpoint_{counter}", says, _ENDPOINT, known)


def _of_servers(state: WatchState) -> "Iterator[Metric]":
    named = [({"adapter": server.target}, server) for server in state.servers]
    linked = [(labels, server.link) for labels, server in named if server.link is not None]
    speeds = [(labels, link.speed * _GIGA) for labels, link in linked]
    says = "Speed of each lane of the PCI Express link."
    yield _gauge("hbatune_adapter_link_transfers_per_second", says, ("adapter",), speeds)
    lanes = [(labels, float(link.width)) for labels, link in linked]
    yield _gauge(
        "hbatune_adapter_link_lanes", "Lanes of the PCI Express link.", ("adapter",), lanes
    )
    busy = [(labels, s.cpu_busy) for labels, s in named if s.cpu_busy is not None]
    says = "Share of time that the busiest CPU of those that serve its interrupts was busy."
    yield _gauge("hbatune_adapter_cpu_utilisation_ratio", says, ("adapter",), busy)
    errors = [
        ({**labels, "severity": severity}, float(count))
        for labels, server in named
        for severity, count in server.counted.items()
    ]
    says = "Errors on the PCI Express link since boot, at both ends."
    yield _counter("hbatune_adapter_bus_errors", says, ("adapter", "severity"), errors)


def _of_alerts(state: WatchState) -> "Iterator[Metric]":
    standing: dict[tuple[str, str, str], float] = {}
    for alert in state.alerts:
        # Several counters of one target are one series: the same labels twice are invalid.
        standing[str(alert.condition), alert.target, alert.id] = 1.0
    labels = ("condition", "target", "id")
    found = [(dict(zip(labels, key, strict=True)), value) for key, value in standing.items()]
    yield _gauge("hbatune_alert_active", "Alerts that are raised now.", labels, found)
    raised = [
        ({"condition": str(condition)}, float(state.raised.get(condition, 0)))
        for condition in AlertCondition
    ]
    says = "Alerts that were raised since the daemon began."
    yield _counter("hbatune_alerts_raised", says, ("condition",), raised)


_Values = Iterable[tuple[dict[str, str], float]]


def _gauge(name: str, says: str, labels: Iterable[str], values: _Values) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, says, labels=tuple(labels))
    for each, value in values:
        family.add_metric(tuple(each.values()), value)
    return family


def _counter(name: str, says: str, labels: Iterable[str], values: _Values) -> "Metric":
    """Return a counter; the library adds ``_total``."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, says, labels=tuple(labels))
    for each, value in values:
        family.add_metric(tuple(each.values()), value)
    return family
