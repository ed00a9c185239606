"""Which endpoints a rule is for, and which rule wins."""

from typing import Any

import msgspec
import pytest

from hbatune.facts.model import Endpoint, Kind, Medium, Missing, Protocol, Reason
from hbatune.policy.match import (
    Matcher,
    Traits,
    build_traits,
    find_objective,
    is_match,
)
from hbatune.policy.profile import (
    Exactly,
    Match,
    Multipath,
    Objective,
    Origin,
    ProbeSpec,
    Profile,
    Rule,
)
from tests.unit.machines import adapter, endpoint, link

ABSENT = Missing(Reason.ABSENT)


def when(**keys: Any) -> Match:
    return msgspec.convert(keys, Match)


def profile(*rules: tuple[str, Match, str, int], objectives: tuple[Objective, ...] = ()) -> Profile:
    profile_rules = tuple(
        Rule(name, match, setting, Exactly(value), "why", "site", "x.toml")
        for name, match, setting, value in rules
    )
    return Profile("p", "P", Origin.SITE, profile_rules, objectives, ProbeSpec(), ())


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({}, True),
        ({"family": ["mpt3sas"]}, True),
        ({"family": ["mpi3mr", "mpt3sas"]}, True),
        ({"family": ["mpt"]}, False),
        ({"protocol": ["sas"]}, True),
        ({"protocol": ["sata"]}, False),
        ({"protocol": ["sas"], "medium": ["hdd"]}, False),
        ({"medium": ["ssd", "hdd"]}, True),
        ({"kind": ["path"]}, False),
        ({"multipath": ["none"]}, True),
        ({"multipath": ["dm"]}, False),
        ({"vendor": ["SEA*"]}, True),
        ({"vendor": ["sea*"]}, False),
        ({"vendor": ["SEA"]}, False),
        ({"model": ["HUS*", "XS???ME*"]}, True),
        ({"model": ["XS[0-3]*"]}, False),
        ({"rotational": False}, True),
        ({"rotational": True}, False),
        ({"tri_mode": False}, True),
        ({"tri_mode": True}, False),
        ({"link": {"gen": [3]}}, True),
        ({"link": {"gen": [1]}}, False),
        ({"link": {"gen": [3], "width": [4]}}, False),
    ],
)
def test_every_condition_key_counts(match: dict[str, Any], fits: bool) -> None:
    assert is_match(when(**match), build_traits(endpoint(), adapter())) is fits


@pytest.mark.parametrize("speed", [ABSENT, 0.5])
def test_unknown_link_matches_no_condition(speed: float | Missing) -> None:
    unknown = adapter(link=link(speed=speed, width=ABSENT))
    for behind in (unknown, adapter(link=None), None):
        for gen in range(1, 8):
            assert not is_match(when(link={"gen": [gen]}), build_traits(endpoint(), behind))
        assert not is_match(when(link={"width": [8]}), build_traits(endpoint(), behind))
        assert is_match(when(), build_traits(endpoint(), behind))


@pytest.mark.parametrize(("speed", "gen"), [(2.5, 1), (5.0, 2), (8.0, 3), (16.0, 4), (32.0, 5)])
def test_generation_follows_running_link(speed: float, gen: int) -> None:
    running = adapter(link=link(speed=speed, max_speed=64.0))
    assert build_traits(endpoint(), running).gen == gen


@pytest.mark.parametrize(
    ("disk", "layer"),
    [
        (endpoint(), Multipath.NONE),
        (endpoint(target="dm-3", kind=Kind.MAP), Multipath.DM),
        (endpoint(kind=Kind.PATH, map="dm-3"), Multipath.DM),
        (endpoint(kind=Kind.PATH, map="dm-3", family="nvme"), Multipath.DM),
        (endpoint(target="nvme0n1", kind=Kind.MAP, family="nvme"), Multipath.NVME),
        (endpoint(kind=Kind.PATH, map="nvme0n1", family="nvme"), Multipath.NVME),
        (endpoint(kind=Kind.PATH, map=None, family="nvme"), Multipath.NVME),
        (endpoint(kind=Kind.PATH, map=None), Multipath.DM),
    ],
)
def test_multipath_layers_differ(disk: Endpoint, layer: Multipath) -> None:
    assert build_traits(disk, adapter()).multipath is layer


def test_last_rule_wins_per_setting() -> None:
    matcher = Matcher(
        profile(
            ("a", when(), "nr_requests", 1),
            ("b", when(protocol=["sas"]), "queue_depth", 2),
            ("c", when(protocol=["sas"]), "nr_requests", 3),
            ("d", when(protocol=["nvme"]), "nr_requests", 4),
        )
    )
    matched = matcher.matched(build_traits(endpoint(), adapter()))
    assert [rule.name for rule in matched] == ["a", "b", "c"]
    won = matcher.won(build_traits(endpoint(), adapter()))
    assert {setting: rule.name for setting, rule in won.items()} == {
        "nr_requests": "c",
        "queue_depth": "b",
    }


def test_differing_endpoints_match_separately() -> None:
    matcher = Matcher(profile(("a", when(model=["X*"]), "nr_requests", 1)))
    assert matcher.won(build_traits(endpoint(model="XY"), adapter()))
    assert not matcher.won(build_traits(endpoint(model="Y"), adapter()))
    assert matcher.won(build_traits(endpoint(model="XY", target="sdb"), adapter()))


def test_identical_luns_match_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matched_traits = []

    def counted(match: Match, traits: Traits) -> bool:
        matched_traits.append(traits)
        return is_match(match, traits)

    monkeypatch.setattr("hbatune.policy.match.is_match", counted)
    matcher = Matcher(profile(("a", when(), "nr_requests", 1)))
    for number in range(4096):
        assert matcher.won(build_traits(endpoint(target=f"sd{number}"), adapter()))
    assert len(matched_traits) == 1


def test_last_matching_objective_wins() -> None:
    wanted = (
        Objective(5.0, "any", "site"),
        Objective(2.0, "sas", "site", when(protocol=["sas"])),
        Objective(1.0, "nvme", "site", when(protocol=["nvme"])),
    )
    goal_profile = profile(objectives=wanted)
    assert find_objective(goal_profile, build_traits(endpoint(), None)) == wanted[1]
    assert (
        find_objective(goal_profile, build_traits(endpoint(protocol=Protocol.FC), None))
        == wanted[0]
    )
    assert find_objective(profile(), build_traits(endpoint(medium=Medium.HDD), None)) is None
