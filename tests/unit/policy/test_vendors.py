"""Tests of hbatune/policy/vendors.py."""

import shutil
from pathlib import Path

import pytest

from hbatune.policy.config import Site
from hbatune.policy.toml_files import PolicyError
from hbatune.policy.vendors import load_enabled_rules, load_vendors
from hbatune.shipped import find_shipped
from tests.unit.site_folder import SiteFolder


def test_unknown_use_is_refused(site: SiteFolder) -> None:
    with pytest.raises(PolicyError, match=r'unknown use "oracle-asn".*lustre') as caught:
        load_enabled_rules(site.library, Site(uses={"oracle-asn": ("sda",)}))
    assert caught.value.hint == 'did you mean "oracle-asm"?'


def test_exact_vendor_depth_is_refused(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    shutil.copytree(find_shipped("rules"), rules)
    with (rules / "vendors/pure.toml").open("a") as file:
        file.write(
            '\n[[rule]]\nname = "low"\nsetting = "queue_depth"\nvalue = 8\n'
            'because = "so"\nsource = "V-pure-rules"\n'
        )
    with pytest.raises(PolicyError, match=r'pure\.toml: line \d+: rule "low".*it lowers none'):
        load_vendors(rules)


def test_vendor_rules_unique_and_sourced() -> None:
    rules = load_vendors(find_shipped("rules"))
    names = [rule.rule.name for rule in rules]
    assert len(names) == len(set(names))
    assert all(rule.rule.source.startswith("V-") for rule in rules)
