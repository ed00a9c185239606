"""No recommendation of the documents is forgotten.

Each is cited by a rule, an objective or a check, or stands below with the part that carries it.
"""

from collections.abc import Iterator

import pytest

from hbatune.checks.registry import CHECKS
from hbatune.policy.load import profiles
from tests.unit.policy_site import SiteFolder

ELSEWHERE = {
    "D0-6": "probes: the depth comes from the profile",
    "D0-7": "the watch's alerts",
    "D0-13": "probes: pinned off the CPUs that serve interrupts",
    "D1-1": "probes: CPU time of each I/O",
    "D1-3": "probes: results carry driver and firmware",
    "D2-2": "a site's facts: hosts that share an array",
    "D2-3": "a site's facts: budgets by target or by LUN",
    "D2-5": "a site's facts: limits of arrays by model",
    "D2-6": "probes before and after",
    "D3-1": "probes: the baseline",
    "D3-2": "probes: the sweep of block sizes",
    "D3-3": "probes: the sweep of mixes",
    "D3-4": "probes: the sweep of depths",
    "D3-5": "probes: the table of tails",
    "D3-6": "probes: Little's law",
    "D3-7": "probes: jobs one by one",
    "D4-7": "probes: oltp1, oltp2 and oltp3",
    "D4-9": "probes: the link's ceiling beside each throughput",
    "D4-10": "sizing: drives that saturate an adapter pair",
    "D4-11": "probes: the depth of the short one",
}
"""What neither rules nor checks cite, and what carries it."""


@pytest.fixture
def cited(site: SiteFolder) -> set[str]:
    return set(_cited(site))


def _cited(site: SiteFolder) -> Iterator[str]:
    for check in CHECKS:
        yield check.source
    for listed in profiles(site.library):
        profile = site.load(listed.name)
        yield from (rule.source for rule in profile.rules)
        yield from (objective.source for objective in profile.objectives)


def test_each_recommendation_is_cited_or_carried_elsewhere(
    site: SiteFolder, cited: set[str]
) -> None:
    advice = {name for name in site.library.sources() if name.startswith("D")}
    assert len(advice) == 44
    assert advice - cited - set(ELSEWHERE) == set()


def test_the_list_names_recommendations_only(site: SiteFolder) -> None:
    assert set(ELSEWHERE) <= set(site.library.sources())


def test_what_concerns_a_setting_or_a_check_is_cited(cited: set[str]) -> None:
    settings = {"D0-1", "D0-2", "D0-4", "D0-12", "D3-8", "D4-1"}
    checks = {"D0-3", "D0-5", "D0-9", "D0-10", "D1-2", "D1-4"}
    checks |= {f"D4-{number}" for number in (2, 3, 4, 5, 6)}
    assert settings | checks <= cited
