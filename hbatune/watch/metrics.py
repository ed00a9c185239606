"""Render the results of the watch as Prometheus metrics. Pure: returns text, publishes nothing.

Names and units follow Prometheus's conventions: base units, ``_total`` for counters. Metrics that
node_exporter already exports for every disk (I/Os, bytes, busy time) are not repeated.
prometheus_client takes 10 MiB of memory, so it is imported only if metrics are configured.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.health import COMMAND_ERRORS
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.readings import Reading
from hbatune.watch.watch import WatchState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_Figure = Callable[[Reading], float | None]

_TAIL = "99.9th percentile of latency, by bpftrace."
_STALLED = "How long at least I/O waits while none is done."
_GAUGES: tuple[tuple[str, str, float, _Figure], ...] = (
    ("latency_mean_seconds", "Mean latency from the request on.", 1e-3, lambda disk: disk.mean_ms),
    ("latency_p99_seconds", "99th percentile of latency, by bpftrace.", 1e-3, lambda d: d.p99_ms),
    ("latency_p999_seconds", _TAIL, 1e-3, lambda disk: disk.p999_ms),
    ("stalled_seconds", _STALLED, 1e-3, lambda disk: disk.stalled_ms),
    ("objective_p99_seconds", "The required p99.", 1e-3, lambda disk: disk.objective_ms),
    ("in_flight", "I/Os in flight on average.", 1.0, lambda disk: disk.in_flight),
    (
        "knee_depth",
        "The knee: more I/Os in flight only wait.",
        1.0,
        lambda disk: disk.knee,
    ),
    (
        "queue_depth",
        "Maximum commands in flight to the device.",
        1.0,
        lambda disk: disk.depth,
    ),
    ("utilisation_ratio", "Fraction of time with any I/O in flight.", 1.0, lambda d: d.utilisation),
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
    """Return all metrics in Prometheus's text format. Raises as ``render_metrics`` does."""
    of_watch = (_collect_disks(state), _collect_servers(state), _collect_alerts(state))
    return render_metrics(chain(_collect_daemon(keeping), *of_watch))


def render_metrics(metrics: "Iterator[Metric]") -> bytes:
    """Return metrics in Prometheus's text format. Raises as ``require_library`` does."""
    require_library()
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> "Iterator[Metric]":
            return metrics

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
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


def _collect_daemon(keeping: DaemonFigures) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ("version", "profile")
    info = GaugeMetricFamily("hbatune_info", "Version and active profile.", labels=labels)
    info.add_metric((keeping.version, keeping.profile), 1.0)
    yield info
    plain = (
        ("endpoints", "Endpoints that are watched.", keeping.endpoints),
        ("drift_settings", "Settings that differ from the profile.", keeping.drift),
        ("last_pass_timestamp_seconds", "Time of the last scan of all settings.", keeping.passed),
    )
    for name, help_text, value in plain:
        if value is not None:
            yield GaugeMetricFamily(f"hbatune_{name}", help_text, value=float(value))
    help_text = "Settings that were set again since the daemon began."
    yield CounterMetricFamily("hbatune_repaired_settings", help_text, value=float(keeping.repaired))


def _collect_disks(state: WatchState) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, help_text, unit, figure in _GAUGES:
        gauge = GaugeMetricFamily(f"hbatune_endpoint_{name}", help_text, labels=_ENDPOINT)
        for disk in state.disks:
            # A gauge of unknown value is omitted: 0 would look like a measurement.
            if (value := figure(disk)) is not None:
                gauge.add_metric(_list_labels(disk), value * unit)
        yield gauge
    help_text = "Times that the kernel was seen to lower the queue depth since the daemon began."
    lowered = CounterMetricFamily(
        "hbatune_endpoint_queue_depth_lowered", help_text, labels=_ENDPOINT
    )
    for disk in state.disks:
        lowered.add_metric(_list_labels(disk), float(state.lowered.get(disk.id, 0)))
    yield lowered
    for counter, help_text in (
        (COMMAND_ERRORS, _NOT_GOOD),
        ("timeouts", "Commands that timed out since the device came."),
    ):
        family = CounterMetricFamily(f"hbatune_endpoint_{counter}", help_text, labels=_ENDPOINT)
        for disk in state.disks:
            if (count := disk.counted.get(counter)) is not None:
                family.add_metric(_list_labels(disk), float(count))
        yield family


def _list_labels(disk: Reading) -> tuple[str, str, str]:
    return disk.target, disk.id, disk.adapter or ""


def _collect_servers(state: WatchState) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def gauge(name: str, help_text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"hbatune_adapter_{name}", help_text, labels=("adapter",))

    speeds = gauge("link_transfers_per_second", "Speed of each lane of the PCI Express link.")
    lanes = gauge("link_lanes", "Lanes of the PCI Express link.")
    help_text = "Utilisation of the busiest CPU that serves its interrupts, 0 to 1."
    busy = gauge("cpu_utilisation_ratio", help_text)
    help_text = "Errors on the PCI Express link since boot, at both ends."
    labels = ("adapter", "severity")
    errors = CounterMetricFamily("hbatune_adapter_bus_errors", help_text, labels=labels)
    for server in state.servers:
        if server.link is not None:
            speeds.add_metric((server.target,), server.link.speed * _GIGA)
            lanes.add_metric((server.target,), float(server.link.width))
        if server.cpu_busy is not None:
            busy.add_metric((server.target,), server.cpu_busy)
        for severity, count in server.counted.items():
            errors.add_metric((server.target, severity), float(count))
    yield from (speeds, lanes, busy, errors)


def _collect_alerts(state: WatchState) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ("condition", "target", "id")
    active = GaugeMetricFamily("hbatune_alert_active", "Alerts that are raised now.", labels=labels)
    # Several counters of one target are one series: the same labels twice are invalid.
    for key in dict.fromkeys((alert.condition, alert.target, alert.id) for alert in state.alerts):
        active.add_metric(key, 1.0)
    yield active
    help_text = "Alerts that were raised since the daemon began."
    raised = CounterMetricFamily("hbatune_alerts_raised", help_text, labels=("condition",))
    for condition in AlertCondition:
        raised.add_metric((condition,), float(state.raised.get(condition, 0)))
    yield raised
