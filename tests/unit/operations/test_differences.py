"""Tests of hbatune/operations/differences.py."""

import pytest

from hbatune.errors import UsageError
from hbatune.operations.differences import explain_target, find_differences
from hbatune.operations.situation import SituationRequest
from hbatune.plan.rows import State
from tests.unit.command_runs import lun, see_machine
from tests.unit.machines import endpoint, machine
from tests.unit.site_folder import SiteFolder

RULE = """
[[rule]]
name = "bursts"
setting = "nr_requests"
value = 512
because = "of bursts"
source = "site"
"""


@pytest.fixture(autouse=True)
def _disks(monkeypatch: pytest.MonkeyPatch, site: SiteFolder) -> None:
    """Two disks; the first has the value of the profile."""
    site.put("profiles/test.toml", f'title = "test"\n{RULE}')
    disks = [endpoint(**lun(0, requests="512")), endpoint(**lun(1))]
    see_machine(monkeypatch, lambda: machine(*disks))


def request(*targets: str) -> SituationRequest:
    return SituationRequest(profile="test", targets=targets)


def test_only_drift_differs() -> None:
    differences = find_differences(request())
    assert [row.target for row in differences.plan.drift] == ["sdb"]
    assert differences.has_drift
    assert not find_differences(request("sda")).has_drift


def test_explanation_has_rule_and_row() -> None:
    explanation = explain_target(request("sdb"), "nr_requests")
    [explained] = explanation.settings
    assert [rule.name for rule in explained.rules] == ["bursts"]
    assert explained.row is not None
    assert (explained.row.current, explained.row.value) == (256, 512)
    assert explained.row.state is State.DRIFT
    assert explanation.without_rules == ()


def test_target_without_rules_is_named(site: SiteFolder) -> None:
    site.put("profiles/test.toml", f'title = "test"\n{RULE}when = {{ medium = "hdd" }}\n')
    explanation = explain_target(request("sda"), None)
    assert explanation.settings == ()
    [bare] = explanation.without_rules
    assert (bare.target, bare.reason) == ("sda", None)


def test_setting_of_another_type_is_refused() -> None:
    with pytest.raises(UsageError, match="sda does not have it"):
        explain_target(request("sda"), "irq_affinity")
