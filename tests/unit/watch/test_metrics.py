"""The metrics as Prometheus reads them, and the files that are made for them."""

import builtins
import json
import re
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hbatune.errors import UsageError
from hbatune.facts.health import LOST_IO
from hbatune.facts.sampler import LinkSample
from hbatune.shipped import find_shipped, load_texts
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.metrics import DaemonFigures, format_metrics
from hbatune.watch.watch import Watcher, WatchState
from tests.unit import watch_samples as watched
from tests.unit.promtool import needs_promtool, promtool
from tests.unit.watch_samples import HBA, ID, PLAIN, counted, every, sample

KEEPING = DaemonFigures("0.1.0", "oltp", endpoints=1, drift=2, repaired=3, passed=1e9)


def state() -> WatchState:
    """Return a state with a stuck disk and an active alert."""
    watch = Watcher(PLAIN, watched.subjects())
    counters = {
        ID: {"errors": 3, "timeouts": 0, LOST_IO: 2},
        HBA: {"correctable": 1, "nonfatal": 0},
    }
    stuck = counted(in_flight=4)
    for watch_sample in every(250, lambda at: sample(at, stuck, counters=counters)):
        watch_state, _ = watch.tick(watch_sample)
    reading = msgspec.structs.replace(
        watch_state.disks[0], mean_ms=1.5, p99_ms=4.0, p999_ms=8.0, target='sd"a\\\n'
    )
    return msgspec.structs.replace(watch_state, disks=(reading,), lowered={ID: 2})


def values(text: bytes) -> dict[tuple[str, str], float]:
    """Return the samples by name and by the value of their alphabetically last label."""
    families = text_string_to_metric_families(text.decode())
    return {
        (metric.name, metric.labels[max(metric.labels)] if metric.labels else ""): metric.value
        for family in families
        for metric in family.samples
    }


def test_metrics_use_base_units() -> None:
    metrics = {name: value for (name, _), value in values(format_metrics(state(), KEEPING)).items()}
    assert metrics["hbatune_endpoint_latency_p99_seconds"] == 0.004
    assert metrics["hbatune_endpoint_latency_p999_seconds"] == 0.008
    assert metrics["hbatune_endpoint_latency_mean_seconds"] == 0.0015
    assert metrics["hbatune_endpoint_objective_p99_seconds"] == 0.002
    assert metrics["hbatune_endpoint_stalled_seconds"] == 10
    assert metrics["hbatune_endpoint_in_flight"] == 4
    assert metrics["hbatune_endpoint_queue_depth"] == 32
    assert metrics["hbatune_endpoint_queue_depth_lowered_total"] == 2
    assert metrics["hbatune_endpoint_errors_total"] == 3
    assert metrics["hbatune_endpoint_timeouts_total"] == 0
    assert metrics["hbatune_endpoint_nvme_faults_total"] == 2
    assert metrics["hbatune_adapter_link_transfers_per_second"] == 8e9
    assert metrics["hbatune_adapter_link_lanes"] == 8
    assert metrics["hbatune_adapter_cpu_utilisation_ratio"] == 0
    assert (metrics["hbatune_drift_settings"], metrics["hbatune_endpoints"]) == (2, 1)
    assert metrics["hbatune_repaired_settings_total"] == 3
    assert metrics["hbatune_info"] == 1


def test_errors_metric_feeds_no_alert() -> None:
    text = format_metrics(state(), KEEPING).decode()
    [says] = re.findall(r"^# HELP hbatune_endpoint_errors_total (.*)$", text, re.MULTILINE)
    assert "polls" in says
    assert "Not a count of failures" in says
    for file in ("hbatune.rules.yml", "hbatune.dashboard.json"):
        assert "hbatune_endpoint_errors" not in (find_shipped("metrics") / file).read_text()


def test_alerts_export_active_and_total() -> None:
    metrics = values(format_metrics(state(), KEEPING))
    assert metrics["hbatune_alert_active", "sda"] == 1
    assert metrics["hbatune_alerts_raised_total", "p99"] == 1
    counted = [label for name, label in metrics if name == "hbatune_alerts_raised_total"]
    assert set(counted) == set(AlertCondition)


def test_unknown_values_are_omitted() -> None:
    empty = format_metrics(WatchState(0.0), msgspec.structs.replace(KEEPING, passed=None))
    names = {name for name, _ in values(empty)}
    assert "hbatune_last_pass_timestamp_seconds" not in names
    assert not {name for name in names if name.startswith("hbatune_endpoint_")}
    no_link = msgspec.structs.replace(state().servers[0], link=None, cpu_busy=None)
    bare = msgspec.structs.replace(state(), servers=(no_link,))
    assert b"hbatune_adapter_link_lanes{" not in format_metrics(bare, KEEPING)
    assert LinkSample(8.0, 8) == state().servers[0].link


def test_hostile_names_are_escaped() -> None:
    [name] = {
        metric.labels["device"]
        for family in text_string_to_metric_families(format_metrics(state(), KEEPING).decode())
        for metric in family.samples
        if "device" in metric.labels
    }
    assert name == 'sd"a\\\n'


def test_missing_library_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError) as caught:
        format_metrics(WatchState(0.0), KEEPING)
    assert "python3-prometheus-client" in (caught.value.hint or "")


@pytest.mark.programs
@needs_promtool
def test_promtool_accepts_metrics() -> None:
    assert promtool("check", "metrics", given=format_metrics(state(), KEEPING)) == ""


@pytest.mark.programs
@needs_promtool
def test_promtool_accepts_alert_rules() -> None:
    promtool("check", "rules", "hbatune.rules.yml")
    promtool("test", "rules", "hbatune.rules.test.yml")


def exposed() -> set[bytes]:
    """Return the names of all metrics that there are."""
    return set(re.findall(rb"^# TYPE (\S+)", format_metrics(state(), KEEPING), re.MULTILINE))


def test_each_help_has_metric() -> None:
    texts = load_texts("metrics.toml")
    names = {f"hbatune_{name}{'_total' * ('counter' in texts[name])}" for name in texts}
    assert {name.decode() for name in exposed()} == names


@pytest.mark.parametrize("file", ["hbatune.rules.yml", "hbatune.dashboard.json"])
def test_rules_and_dashboard_metrics_exist(file: str) -> None:
    text = (find_shipped("metrics") / file).read_bytes()
    referenced = set(re.findall(rb"\bhbatune_[a-z0-9_]+", text))
    assert referenced
    assert referenced <= exposed()


@pytest.mark.parametrize("condition", AlertCondition)
def test_every_alert_has_rule(condition: AlertCondition) -> None:
    text = (find_shipped("metrics") / "hbatune.rules.yml").read_text()
    conditions = re.findall(r'condition=~?"([^"]+)"', text)
    assert str(condition) in "|".join(conditions).split("|")


def test_dashboard_is_valid() -> None:
    dashboard = json.loads((find_shipped("metrics") / "hbatune.dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)  # none lies on another
    assert max(x for x, _ in cells) < 24
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= variables | {"__data"}
