"""Rules that a measurement becomes: for this kind of disk and no other, whatever its name."""

import re

import pytest

from hbatune.operations.measured_rules import (
    MeasuredRule,
    format_rules,
    make_disk_criteria,
    make_rule_file_name,
)
from hbatune.policy.match import build_traits, is_match
from hbatune.policy.profile import Exactly, Origin
from tests.unit.machines import endpoint
from tests.unit.site_folder import SiteFolder

RULES = (
    MeasuredRule("queue_depth", 96, "the best of 6 probes"),
    MeasuredRule("scheduler", "kyber", '-80 % "p99"\nof a reader'),
)
SOURCE = "autotune of sda on 2026-11-22, kernel 6.1, driver mpt3sas, firmware 16.00"


@pytest.mark.parametrize(
    "model",
    ["XS400ME70084", "A*", "[ab]c?", 'a"b\\c', "x\ny = 1", "a\x7f\x00b", "'''", "", "µ \u2028"],
)
def test_measured_rule_matches_only_model(site: SiteFolder, model: str) -> None:
    disk = endpoint(model=model)
    when = make_disk_criteria(disk)
    site.put(f"rules.d/{make_rule_file_name(when)}", format_rules(when, RULES, SOURCE))
    rules = [rule for rule in site.load().rules if rule.name.startswith("autotune-")]
    assert [(rule.setting, rule.effect) for rule in rules] == [
        ("queue_depth", Exactly(96)),
        ("scheduler", Exactly("kyber")),
    ]
    assert {rule.source for rule in rules} == {f"site: {SOURCE}"}
    assert {rule.origin for rule in rules} == {Origin.SITE}
    assert rules[1].because == RULES[1].because
    other_disk = endpoint(model=f"another{model}")
    for rule in rules:
        assert is_match(rule.when, build_traits(disk, None))
        assert is_match(rule.when, build_traits(other_disk, None)) is (model == "")
        assert not is_match(rule.when, build_traits(endpoint(model=model, family="mpi3mr"), None))


@pytest.mark.parametrize("model", ["../../etc/passwd", "a/b", "x" * 300, "\n", ".."])
def test_rule_file_name_is_plain(model: str) -> None:
    name = make_rule_file_name(make_disk_criteria(endpoint(model=model)))
    assert re.fullmatch(r"autotune-[a-z0-9-]{1,73}\.toml", name)


def test_rule_file_names_are_distinct() -> None:
    names = {
        make_rule_file_name(make_disk_criteria(endpoint(model=model, family=family)))
        for model in ("A B", "A-B", "a b")
        for family in ("mpt3sas", "mpi3mr")
    }
    assert len(names) == 6
    first, again = (
        make_rule_file_name(make_disk_criteria(endpoint(target=name))) for name in ("sda", "sdb")
    )
    assert first == again, "of one model there is one file"
