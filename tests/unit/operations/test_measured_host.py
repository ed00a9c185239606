"""Tests of hbatune/operations/measured_host.py."""

from pathlib import Path

import pytest

from hbatune.act.paths import Paths
from hbatune.operations.snapshot import read_measured_host
from hbatune.probe import history
from tests.unit import report_server
from tests.unit.command_runs import see_machine
from tests.unit.site_folder import SiteFolder


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch, site: SiteFolder) -> None:
    server = report_server.host()
    see_machine(monkeypatch, lambda: server)
    history.append(Paths.history, report_server.seen().records)


def test_host_without_profile_has_results() -> None:
    host = read_measured_host(None)
    assert (host.profile, host.plan) == (None, None)
    assert host.records


def test_active_profile_is_planned(site: SiteFolder) -> None:
    site.put("hbatune.toml", 'profile = "oltp"\n')
    host = read_measured_host(None)
    assert host.profile is not None
    assert host.profile.name == "oltp"
    assert host.plan is not None
    assert host.plan.rows


def test_copied_history_replaces_results(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    history.append(copy, report_server.seen().records[:1])
    assert len(read_measured_host(None, results=copy).records) == 1
