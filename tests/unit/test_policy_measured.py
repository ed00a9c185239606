"""Rules that a measurement becomes: for this kind of disk and no other, whatever its name."""

import re

import pytest

from hbatune.operations.measured_rules import (
    MeasuredRule,
    format_rules,
    is_measured,
    make_disk_criteria,
    make_rule_file_name,
)
from hbatune.policy.match import build_traits, is_match
from hbatune.policy.profile import Exactly, Origin
from tests.unit.factory import endpoint
from tests.unit.policy_site import SiteFolder

RULES = (
    MeasuredRule("queue_depth", 96, "the best of 6 probes"),
    MeasuredRule("scheduler", "kyber", '-80 % "p99"\nof a reader'),
)
SOURCE = "autotune of sda on 2026-11-22, kernel 6.1, driver mpt3sas, firmware 16.00"


@pytest.mark.parametrize(
    "model",
    ["XS400ME70084", "A*", "[ab]c?", 'a"b\\c', "x\ny = 1", "a\x7f\x00b", "'''", "", "µ \u2028"],
)
def test_a_rule_is_for_its_model_alone_whatever_that_is_called(
    site: SiteFolder, model: str
) -> None:
    there = endpoint(model=model)
    when = make_disk_criteria(there)
    site.put(f"rules.d/{make_rule_file_name(when)}", format_rules(when, RULES, SOURCE))
    found = [each for each in site.load().rules if each.name.startswith("autotune-")]
    assert [(each.setting, each.effect) for each in found] == [
        ("queue_depth", Exactly(96)),
        ("scheduler", Exactly("kyber")),
    ]
    assert {each.source for each in found} == {f"site: {SOURCE}"}
    assert {each.origin for each in found} == {Origin.SITE}
    assert found[1].because == RULES[1].because
    other = endpoint(model=f"another{model}")
    for rule in found:
        assert is_match(rule.when, build_traits(there, None))
        assert is_match(rule.when, build_traits(other, None)) is (model == "")
        assert not is_match(rule.when, build_traits(endpoint(model=model, family="mpi3mr"), None))


@pytest.mark.parametrize("model", ["../../etc/passwd", "a/b", "x" * 300, "\n", ".."])
def test_the_name_of_the_file_is_plain(model: str) -> None:
    name = make_rule_file_name(make_disk_criteria(endpoint(model=model)))
    assert re.fullmatch(r"autotune-[a-z0-9-]{1,73}\.toml", name)


def test_each_kind_of_disk_has_a_file_of_its_own() -> None:
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


def test_a_file_of_hbatunes_own_is_known_by_its_first_line() -> None:
    text = format_rules(make_disk_criteria(endpoint()), RULES, SOURCE)
    assert is_measured(text.encode())
    assert not is_measured(b"# mine\n" + text.encode())
