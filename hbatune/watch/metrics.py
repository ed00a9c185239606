"""Render the results of the watch as Prometheus metrics. Pure: returns text, publishes nothing.

templates/metrics.toml has the help and the labels of each metric. Metrics that node_exporter
already exports for every disk (I/Os, bytes, busy time) are not repeated. prometheus_client takes
10 MiB of memory, so it is imported only if metrics are configured.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, product
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.health import COMMAND_ERRORS, NVME_COUNTERS
from hbatune.shipped import load_texts
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.readings import Reading
from hbatune.watch.watch import WatchState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_Sample = tuple[tuple[str, ...], float | None]
"""The values of a metric's labels, and its value."""

_GAUGES: dict[str, Callable[[Reading], float | None]] = {
    "latency_mean_seconds": lambda disk: _to_seconds(disk.mean_ms),
    "latency_p99_seconds": lambda disk: _to_seconds(disk.p99_ms),
    "latency_p999_seconds": lambda disk: _to_seconds(disk.p999_ms),
    "stalled_seconds": lambda disk: _to_seconds(disk.stalled_ms),
    "objective_p99_seconds": lambda disk: _to_seconds(disk.objective_ms),
    "in_flight": lambda disk: disk.in_flight,
    "knee_depth": lambda disk: disk.knee,
    "queue_depth": lambda disk: disk.depth,
    "utilisation_ratio": lambda disk: disk.utilisation,
}

_LABELS = {"endpoint": ("device", "endpoint", "adapter"), "adapter": ("adapter",)}
"""The labels of metrics of endpoints and adapters, unless they have others."""


def _to_seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms * 1e-3


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
        problem = "metrics need prometheus_client, which is not installed"
        hint = "install the package python3-prometheus-client"
        raise UsageError(problem, hint=hint) from error


def _make_metric(name: str, samples: Iterable[_Sample]) -> "Metric":
    """Return a metric. An unknown value is omitted: 0 would look like a measurement."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    texts = load_texts("metrics.toml")[name]
    labels = texts.get("labels") or _LABELS.get(name.partition("_")[0], ())
    make_family = CounterMetricFamily if texts.get("counter") else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = make_family(
        f"hbatune_{name}", texts["help"], labels=labels
    )
    for label_values, value in samples:
        if value is not None:
            family.add_metric(label_values, float(value))
    return family


def _collect_daemon(keeping: DaemonFigures) -> "Iterator[Metric]":
    yield _make_metric("info", [((keeping.version, keeping.profile), 1.0)])
    yield _make_metric("endpoints", [((), keeping.endpoints)])
    yield _make_metric("drift_settings", [((), keeping.drift)])
    if keeping.passed is not None:
        yield _make_metric("last_pass_timestamp_seconds", [((), keeping.passed)])
    yield _make_metric("repaired_settings", [((), keeping.repaired)])


def _collect_disks(state: WatchState) -> "Iterator[Metric]":
    labelled = [((disk.target, disk.id, disk.adapter or ""), disk) for disk in state.disks]
    for name, figure in _GAUGES.items():
        values = [(labels, figure(disk)) for labels, disk in labelled]
        yield _make_metric(f"endpoint_{name}", values)
    lowered = [(labels, state.lowered.get(disk.id, 0)) for labels, disk in labelled]
    yield _make_metric("endpoint_queue_depth_lowered", lowered)
    for counter in (COMMAND_ERRORS, "timeouts"):
        counts = [(labels, disk.counted.get(counter)) for labels, disk in labelled]
        yield _make_metric(f"endpoint_{counter}", counts)
    faults = (
        ((*labels, counter), disk.counted.get(counter))
        for (labels, disk), counter in product(labelled, NVME_COUNTERS)
    )
    yield _make_metric("endpoint_nvme_faults", faults)


def _collect_servers(state: WatchState) -> "Iterator[Metric]":
    speeds, lanes = list[_Sample](), list[_Sample]()
    busy, errors = list[_Sample](), list[_Sample]()
    for server in state.servers:
        if server.link is not None:
            speeds.append(((server.target,), server.link.speed * 1e9))
            lanes.append(((server.target,), server.link.width))
        busy.append(((server.target,), server.cpu_busy))
        for severity, count in server.counted.items():
            errors.append(((server.target, severity), count))
    yield _make_metric("adapter_link_transfers_per_second", speeds)
    yield _make_metric("adapter_link_lanes", lanes)
    yield _make_metric("adapter_cpu_utilisation_ratio", busy)
    yield _make_metric("adapter_bus_errors", errors)


def _collect_alerts(state: WatchState) -> "Iterator[Metric]":
    # Several counters of one target are one series: the same labels twice are invalid.
    raised_now = dict.fromkeys((alert.condition, alert.target, alert.id) for alert in state.alerts)
    yield _make_metric("alert_active", [(key, 1.0) for key in raised_now])
    raised = [((condition,), state.raised.get(condition, 0)) for condition in AlertCondition]
    yield _make_metric("alerts_raised", raised)
