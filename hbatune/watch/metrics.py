"""Render the results of the watch as Prometheus metrics. Pure: returns text, publishes nothing.

Names and units follow Prometheus's conventions: base units, ``_total`` for counters. Metrics that
node_exporter already exports for every disk (I/Os, bytes, busy time) are not repeated.
prometheus_client takes 10 MiB of memory, so it is imported only if metrics are configured.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.health import COMMAND_ERRORS
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.readings import Reading
from hbatune.watch.watch import WatchState

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_Figure = Callable[[Reading], float | None]

_TAIL = "99.9th percentile of latency, by bpftrace."
_STALLED = "How long at least I/O waits while none is done."
_GAUGES: tuple[tuple[str, str, float, _Figure], ...] = (
    ("latency_mean_seconds", "Mean latency from the request on.", 1e-3, lambda disk: disk.mean_ms),
    ("latency_p99_seconds", "99th percentile of latency, by bpftrace.", 1e-3, lambda d: d.p99_ms),
    ("latency_p999_seconds", _TAIL, 1e-3, lambda disk: disk.p999_ms),
    ("stalled_seconds", _STALLED, 1e-3, lambda disk: disk.stalled_ms),
    ("objective_p99_seconds", "The p99 that is wanted.", 1e-3, lambda disk: disk.objective_ms),
    ("in_flight", "I/Os in flight on average.", 1.0, lambda disk: disk.in_flight),
    ("knee_depth", "I/Os in flight beyond which more only wait.", 1.0, lambda disk: disk.knee),
    ("queue_depth", "Commands that the device is sent at once.", 1.0, lambda disk: disk.depth),
    ("utilisation_ratio", "Share of time with any I/O in flight.", 1.0, lambda d: d.utilisation),
)
"""The gauges of each endpoint: name, help, factor to the base unit, and the value."""

_NOT_GOOD = (
    "Commands that ended with any status other than good since the device came: also polls of its "
    "health that succeeded, resets and full queues. Not a count of failures."
)
_ENDPOINT = ("device", "endpoint", "adapter")
_GIGA = 1e9


class DaemonFigures(Struct, frozen=True):
    """The daemon's own values, in addition to the watch's.

    ``profile`` is the active one, or empty. ``drift`` counts the settings that differ from the
    profile, ``repaired`` the settings that were set again since it started. ``passed`` is the time
    of the last complete pass, in seconds since the epoch, or None before the first.
    """

    version: str
    profile: str
    endpoints: int
    drift: int
    repaired: int
    passed: float | None


def format_metrics(state: WatchState, keeping: DaemonFigures) -> bytes:
    """Return all metrics in Prometheus's text format. Raises as ``require_library`` does."""
    require_library()
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(state, keeping))
    return bytes(generate_latest(registry))


def require_library() -> None:
    """Raise ``UsageError`` if the library for metrics is not installed."""
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
        yield from _collect_daemon(self._keeping)
        yield from _collect_disks(self._state)
        yield from _collect_servers(self._state)
        yield from _collect_alerts(self._state)


def _collect_daemon(keeping: DaemonFigures) -> "Iterator[Metric]":
    names = {"version": keeping.version, "profile": keeping.profile}
    yield _make_gauge("hbatune_info", "Version and active profile.", names, [(names, 1.0)])
    plain = (
        ("endpoints", "Endpoints that are watched.", keeping.endpoints),
        ("drift_settings", "Settings that are not as the profile wants them.", keeping.drift),
        ("last_pass_timestamp_seconds", "When all settings were looked at last.", keeping.passed),
    )
    for name, help_text, value in plain:
        if value is not None:
            yield _make_gauge(f"hbatune_{name}", help_text, (), [({}, float(value))])
    help_text = "Settings that were set again since the daemon began."
    yield _make_counter("hbatune_repaired_settings", help_text, (), [({}, float(keeping.repaired))])


def _collect_disks(state: WatchState) -> "Iterator[Metric]":
    labelled = [
        ({"device": d.target, "endpoint": d.id, "adapter": d.adapter or ""}, d) for d in state.disks
    ]
    for name, help_text, unit, figure in _GAUGES:
        values = [(labels, figure(disk)) for labels, disk in labelled]
        samples = [(labels, value * unit) for labels, value in values if value is not None]
        # A gauge of unknown value is omitted: 0 would look like a measurement.
        yield _make_gauge(f"hbatune_endpoint_{name}", help_text, _ENDPOINT, samples)
    lowered = [(labels, float(state.lowered.get(disk.id, 0))) for labels, disk in labelled]
    help_text = "Times that the kernel was seen to lower the queue depth since the daemon began."
    yield _make_counter("hbatune_endpoint_queue_depth_lowered", help_text, _ENDPOINT, lowered)
    for counter, help_text in (
        (COMMAND_ERRORS, _NOT_GOOD),
        ("timeouts", "Commands that timed out since the device came."),
    ):
        counted = [(labels, disk.counted.get(counter)) for labels, disk in labelled]
        samples = [(labels, float(count)) for labels, count in counted if count is not None]
        yield _make_counter(f"hbatune_endpoint_{counter}", help_text, _ENDPOINT, samples)


def _collect_servers(state: WatchState) -> "Iterator[Metric]":
    labelled = [({"adapter": server.target}, server) for server in state.servers]
    linked = [(labels, server.link) for labels, server in labelled if server.link is not None]
    speeds = [(labels, link.speed * _GIGA) for labels, link in linked]
    help_text = "Speed of each lane of the PCI Express link."
    yield _make_gauge("hbatune_adapter_link_transfers_per_second", help_text, ("adapter",), speeds)
    lanes = [(labels, float(link.width)) for labels, link in linked]
    help_text = "Lanes of the PCI Express link."
    yield _make_gauge("hbatune_adapter_link_lanes", help_text, ("adapter",), lanes)
    busy = [(labels, s.cpu_busy) for labels, s in labelled if s.cpu_busy is not None]
    help_text = "Share of time that the busiest CPU of those that serve its interrupts was busy."
    yield _make_gauge("hbatune_adapter_cpu_utilisation_ratio", help_text, ("adapter",), busy)
    errors = []
    for labels, server in labelled:
        for severity, count in server.counted.items():
            errors.append(({**labels, "severity": severity}, float(count)))
    help_text = "Errors on the PCI Express link since boot, at both ends."
    yield _make_counter("hbatune_adapter_bus_errors", help_text, ("adapter", "severity"), errors)


def _collect_alerts(state: WatchState) -> "Iterator[Metric]":
    active: dict[tuple[str, str, str], float] = {}
    for alert in state.alerts:
        # Several counters of one target are one series: the same labels twice are invalid.
        active[str(alert.condition), alert.target, alert.id] = 1.0
    labels = ("condition", "target", "id")
    samples = [(dict(zip(labels, key, strict=True)), value) for key, value in active.items()]
    yield _make_gauge("hbatune_alert_active", "Alerts that are raised now.", labels, samples)
    raised = [
        ({"condition": str(condition)}, float(state.raised.get(condition, 0)))
        for condition in AlertCondition
    ]
    help_text = "Alerts that were raised since the daemon began."
    yield _make_counter("hbatune_alerts_raised", help_text, ("condition",), raised)


_Values = Iterable[tuple[dict[str, str], float]]


def _make_gauge(name: str, help_text: str, labels: Iterable[str], values: _Values) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    return _add_values(GaugeMetricFamily(name, help_text, labels=tuple(labels)), values)


def _make_counter(name: str, help_text: str, labels: Iterable[str], values: _Values) -> "Metric":
    """Return a counter; the library adds ``_total``."""
    from prometheus_client.core import CounterMetricFamily

    return _add_values(CounterMetricFamily(name, help_text, labels=tuple(labels)), values)


def _add_values(family: "GaugeMetricFamily | CounterMetricFamily", values: _Values) -> "Metric":
    for labels, value in values:
        family.add_metric(tuple(labels.values()), value)
    return family
