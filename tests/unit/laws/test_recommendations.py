"""No recommendation of the documents is forgotten.

Each is cited by a rule, an objective or a check, or by the code or file that carries it, which has
to be there. A word in a list makes nothing true.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbatune.checks.registry import CHECKS
from hbatune.policy.library import list_profiles
from tests.unit.site_folder import SiteFolder

CHECKOUT = Path(__file__).resolve().parents[3]

CARRIED = {
    "D0-6": "hbatune.policy.profile:ProbeSpec",
    "D0-7": "hbatune.watch.alerts:AlertCondition",
    "D0-13": "hbatune.facts.processors:with_probing",
    "D0-14": "rules/workloads/jobs-sweep.toml",
    "D0-15": "rules/yardsticks.toml",
    "D0-16": "rules/sizing.toml",
    "D0-17": "rules/workloads/lab-matrix.toml",
    "D1-1": "rules/workloads/block-sweep-small.toml",
    "D1-3": "hbatune.probe.history:Stale",
    "D1-5": "hbatune.report.disk_sections:make_adapter_blocks",
    "D2-2": "hbatune.policy.budget:MAX_LUN_DEPTH",
    "D2-5": "rules/arrays.toml",
    "D2-6": "hbatune.operations.verify:VerificationResult",
    "D2-8": "hbatune.sizing.needs:find_running_depth",
    "D3-1": "rules/workloads/qd1.toml",
    "D3-2": "rules/workloads/block-sweep.toml",
    "D3-3": "rules/workloads/mix-sweep.toml",
    "D3-4": "rules/workloads/depth-sweep.toml",
    "D3-5": "rules/workloads/depth-sweep.toml",
    "D3-6": "hbatune.watch.readings:Reading",
    "D3-7": "hbatune.probe.result:ProbeResult",
    "D3-9": "rules/workloads/qd1-writes.toml",
    "D3-10": "rules/yardsticks.toml",
    "D3-11": "rules/sizing.toml",
    "D4-7": "rules/workloads/oltp1.toml",
    "D4-9": "rules/yardsticks.toml",
    "D4-10": "hbatune.cli.commands.size:run",
    "D4-11": "hbatune.probe.result:Workload",
    "D4-13": "rules/sizing.toml",
    "D4-14": "rules/sizing.toml",
    "D4-15": "templates/messages.toml",
}
"""What neither rules nor checks cite, and the code or the file that carries it and cites it."""


@pytest.fixture
def cited(site: SiteFolder) -> set[str]:
    return set(_cited(site))


def _cited(site: SiteFolder) -> Iterator[str]:
    for check in CHECKS:
        yield check.source
    for listed in list_profiles(site.library):
        profile = site.load(listed.name)
        yield from (rule.source for rule in profile.rules)
        yield from (objective.source for objective in profile.objectives)


def test_all_recommendations_are_covered(site: SiteFolder, cited: set[str]) -> None:
    advice = {name for name in site.library.sources() if name.startswith("D")}
    assert len(advice) == 56
    assert advice - cited - set(CARRIED) == set()


@pytest.mark.parametrize("advice", CARRIED)
def test_carrier_cites_recommendation(advice: str) -> None:
    module, _, name = CARRIED[advice].partition(":")
    if name:
        carrier = importlib.import_module(module)
        assert hasattr(carrier, name)
        path = Path(carrier.__file__ or "")
    else:
        path = CHECKOUT / module
    assert re.search(rf"\b{advice}\b", path.read_text(encoding="utf-8"))


def test_carried_list_names_recommendations(site: SiteFolder) -> None:
    assert set(CARRIED) <= set(site.library.sources())


def test_setting_advice_is_cited(cited: set[str]) -> None:
    settings = {"D0-1", "D0-2", "D0-4", "D0-12", "D3-8", "D4-1"}
    checks = {"D0-3", "D0-5", "D0-9", "D0-10", "D1-2", "D1-4"}
    checks |= {f"D4-{number}" for number in (2, 3, 4, 5, 6)}
    assert settings | checks <= cited
