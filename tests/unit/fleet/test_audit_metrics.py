"""The metrics of an audit, and the rules and the dashboard over all hosts that read them."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hbatune.cli import main
from hbatune.fleet.audit import Audit, audit_fleet, collect_metrics
from hbatune.fleet.hosts import ReadFailure, UnusableSnapshot, audit_host
from hbatune.shipped import find_shipped
from hbatune.watch.metrics import render_metrics
from tests.lab.wheel import CHECKOUT
from tests.unit import machines as factory
from tests.unit.fleets import host, save
from tests.unit.promtool import needs_promtool, promtool

RULES, DASHBOARD = "hbatune.fleet.rules.yml", "hbatune-fleet.dashboard.json"
NOW = 1_800_000_600.0


def audited() -> Audit:
    narrow = host(9, adapter={"link": factory.link(width=4)})
    named = replace(narrow, machine=replace(narrow.machine, hostname='db"9\\\n'))
    hosts = [
        audit_host(host_snapshot, f"{n}.snap", "oltp")
        for n, host_snapshot in enumerate([*map(host, range(4))])
    ]
    return audit_fleet(
        [
            *hosts,
            audit_host(named, "9.snap", "oltp"),
            UnusableSnapshot("x.snap", ReadFailure.INVALID, "empty"),
        ]
    )


def encoded(audit: Audit) -> bytes:
    return render_metrics(collect_metrics(audit, NOW))


def values(text: bytes) -> dict[tuple[str, str], float]:
    """Return the values by metric and host."""
    return {
        (sample.name, sample.labels.get("host", "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.labels.get("severity", "warning") == "warning"
    }


def test_metrics_report_drift_and_findings() -> None:
    metrics = values(encoded(audited()))
    assert metrics["hbatune_audit_drift_settings", "db1"] == 2
    assert metrics["hbatune_audit_odd_facts", "db1"] == 0
    assert metrics["hbatune_audit_odd_facts", 'db"9\\\n'] == 1
    assert metrics["hbatune_audit_findings", "db1"] == 0
    assert metrics["hbatune_audit_findings", 'db"9\\\n'] == 1
    assert metrics["hbatune_audit_snapshot_timestamp_seconds", "db1"] == 1_800_000_000
    assert metrics["hbatune_audit_unusable_files", ""] == 1
    assert metrics["hbatune_audit_timestamp_seconds", ""] == NOW


def test_uncompared_host_has_no_drift_metric() -> None:
    audit = audit_fleet([audit_host(host(1), "1.snap", None), audit_host(host(2), "2", "oltp")])
    text = encoded(audit)
    metrics = values(text)
    assert ("hbatune_audit_drift_settings", "db1") not in metrics
    assert metrics["hbatune_audit_drift_settings", "db2"] == 2
    assert re.search(rb'hbatune_audit_host_info\{.*host="db1".*state="not_set_up"', text)


def test_adapter_info_names_hardware() -> None:
    [first, *_] = [
        sample.labels
        for family in text_string_to_metric_families(encoded(audited()).decode())
        for sample in family.samples
        if sample.name == "hbatune_audit_adapter_info"
    ]
    assert (first["product"], first["firmware"], first["link"]) == (
        *("HBA 9300-8i", "16.00.12.00"),
        "Gen3 x8",
    )


def test_audit_writes_metrics_file(tmp_path: Path) -> None:
    save(tmp_path, *map(host, range(2)))
    file = tmp_path / "hbatune-audit.prom"
    for _ in range(2):  # a second time over the first
        assert main(["audit", "--profile", "oltp", "--metrics", str(file), str(tmp_path)]) == 1
    assert values(file.read_bytes())["hbatune_audit_drift_settings", "db0"] == 2
    assert file.stat().st_mode & 0o444 == 0o444
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "db0.snap",
        "db1.snap",
        "hbatune-audit.prom",
    ]


@pytest.mark.parametrize("file", [RULES, DASHBOARD])
def test_shipped_queries_use_exposed_metrics(file: str) -> None:
    rules = (find_shipped("metrics") / RULES).read_text()
    recorded = set(re.findall(r"record: (\S+)", rules))
    exposed = set(re.findall(r"^# TYPE (\S+)", encoded(audited()).decode(), re.MULTILINE))
    text = (find_shipped("metrics") / file).read_text()
    queried = set(re.findall(r"\b(?:\w+:)?hbatune_[a-z0-9_]+(?::\w+)*", text))
    assert queried
    assert queried <= exposed | recorded


def test_dashboard_is_consistent() -> None:
    dashboard = json.loads((find_shipped("metrics") / DASHBOARD).read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)  # none lies on another
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= variables | {"__data"}


PLAIN_PANELS = {
    "p99 and objective",  # the objective is a line of its own
    "p99.9 and mean",
    "In flight, against the knee",  # so is the knee
    "Queue depth",  # neither high nor low is bad
    "PCI Express links",
    "Firmware",
    "Links",
}
"""Panels without a threshold that holds for all devices."""


@pytest.mark.parametrize("file", ["hbatune.dashboard.json", DASHBOARD])
def test_dashboards_judge_and_link(file: str) -> None:
    dashboard = json.loads((find_shipped("metrics") / file).read_text())
    for panel in dashboard["panels"]:
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        assert (len(steps) > 1) is (panel["title"] not in PLAIN_PANELS), panel["title"]
    [worst] = [panel for panel in dashboard["panels"] if panel["title"] == "Worst hosts"]
    assert worst["targets"][0]["expr"].startswith("topk(")
    [first, second] = re.findall(r'"url": "([^"]*)"', json.dumps(worst))
    assert first.startswith("/d/hbatune?")
    assert "var-instance=${__data.fields." in first
    assert second.partition("#")[2] in runbook_anchors()
    annotations = {note["name"]: note["expr"] for note in dashboard["annotations"]["list"]}
    assert annotations.keys() == {"Apply", "Rollback"}


def runbook_anchors() -> set[str]:
    """Return the anchors of the headings of the page that alerts link to."""
    page = (CHECKOUT / "docs/fleet.md").read_text()
    return {heading.lower() for heading in re.findall(r"^##+ (\w+)$", page, re.M)}


@pytest.mark.parametrize("file", ["hbatune.rules.yml", RULES])
def test_every_alert_links_to_runbook(file: str) -> None:
    text = (find_shipped("metrics") / file).read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    linked = re.findall(r"runbook_url: https://\S+/docs/fleet\.md#(\w+)$", text, re.M)
    assert alerts
    assert linked == [alert.lower() for alert in alerts]
    assert set(linked) <= runbook_anchors()


@pytest.mark.programs
@needs_promtool
def test_promtool_accepts_metrics_and_rules() -> None:
    promtool("check", "metrics", given=encoded(audited()))
    promtool("check", "rules", RULES)
    promtool("test", "rules", "hbatune.fleet.rules.test.yml")


@pytest.mark.programs
@needs_promtool
@pytest.mark.parametrize("file", ["hbatune.dashboard.json", DASHBOARD])
def test_promtool_accepts_dashboard_queries(tmp_path: Path, file: str) -> None:
    dashboard = json.loads((find_shipped("metrics") / file).read_text())
    queries = [query["expr"] for panel in dashboard["panels"] for query in panel["targets"]]
    queries += [note["expr"] for note in dashboard["annotations"]["list"]]
    rules = [{"record": f"query_{n}", "expr": query} for n, query in enumerate(queries)]
    # JSON is YAML.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "q", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "rules.yml"))
