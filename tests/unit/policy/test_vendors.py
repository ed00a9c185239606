"""Tests of hbatune/policy/vendors.py."""

import shutil
from pathlib import Path

import msgspec
import pytest

from hbatune.policy.config import Site, Vendors
from hbatune.policy.toml_files import PolicyError
from hbatune.policy.vendors import load_enabled_rules, load_vendors
from hbatune.shipped import find_shipped
from tests.unit.site_folder import SiteFolder


def test_unknown_use_is_refused(site: SiteFolder) -> None:
    with pytest.raises(PolicyError, match=r'unknown use "oracle-asn".*lustre') as caught:
        load_enabled_rules(site.library, Site(uses={"oracle-asn": ("sda",)}))
    assert caught.value.hint == 'did you mean "oracle-asm"?'


def test_use_of_a_local_rule_is_known(site: SiteFolder) -> None:
    site.put(
        "rules.d/own.toml",
        '[[rule]]\nname = "own"\nsetting = "scheduler"\nwhen = { use = "postgresql" }\n'
        'value = "none"\nbecause = "so"\nsource = "site"\n',
    )
    own = Site(uses={"postgresql": ("sda",)}, vendors=Vendors.ADVISE)
    assert all(rule.use is None for rule in load_enabled_rules(site.library, own))
    with pytest.raises(PolicyError, match="no rule names it"):
        load_enabled_rules(site.library, Site(uses={"postgresq": ("sda",)}))


def test_exact_vendor_depth_is_refused(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    shutil.copytree(find_shipped("rules"), rules)
    with (rules / "vendors/pure.toml").open("a") as file:
        file.write(
            '\n[[rule]]\nname = "low"\nsetting = "queue_depth"\nvalue = 8\n'
            'because = "so"\nsource = "V-nimble-fc"\n'
        )
    with pytest.raises(PolicyError, match=r'pure\.toml: line \d+: rule "low".*use `at_least`'):
        load_vendors(rules)


def test_vendor_rules_unique_and_sourced() -> None:
    rules = load_vendors(find_shipped("rules"))
    names = [rule.rule.name for rule in rules]
    assert len(names) == len(set(names))
    assert all(rule.rule.source.startswith("V-") for rule in rules)


CONDITIONS = (
    ("google-io-timeout azure-io-timeout ebs-io-timeout", "protocol model"),
    ("instance-io-timeout", "protocol model"),
    ("openshift-io-timeout", "protocol use:openshift"),
    ("cassandra-rotational cassandra-scheduler cassandra-read-ahead", "medium use:cassandra"),
    ("elasticsearch-read-ahead", "use:elasticsearch"),
    ("eve-depth-hdd eve-depth-ssd", "protocol medium use:eve"),
    ("ravendb-read-ahead", "medium use:ravendb-random-access"),
    # The guide means SSDs that a hypervisor reports as rotational. Its udev rule has fewer
    # conditions than its text. `rotational` cannot be one: the first rule changes it.
    ("ravendb-rotational ravendb-scheduler", "storage use:ravendb-virtual-ssd"),
    # 60-io-scheduler.rules: ENV{DM_MULTIPATH_DEVICE_PATH}=="1".
    ("suse-path-scheduler", "kind multipath use:suse"),
    # packaging/ubuntu/99-gce.rules: ENV{ID_VENDOR}=="*Google*" and ATTR{queue/rotational}=="1".
    ("google-scheduler", "vendor rotational use:ubuntu"),
    ("sc-scheduler", "vendor"),
    ("sc-sas-depth", "vendor protocol"),
    ("vmware-timeout", "vendor model"),
    ("alletra-iopolicy ontap-iopolicy eseries-iopolicy vast-iopolicy", "protocol kind model"),
    ("alletra-loss ontap-loss", "model transport"),
    ("vast-loss", "model"),
    ("pure-scheduler pure-add-random pure-rq-affinity pure-timeout", "vendor model"),
    ("pure-max-sectors nimble-scheduler nimble-nr-requests nimble-max-sectors", "vendor model"),
    ("nimble-read-ahead nimble-add-random nimble-rotational nimble-rq-affinity", "vendor model"),
    ("nimble-depth-qla2xxx nimble-depth-lpfc", "vendor model family"),
    ("nimble-depth-others", "vendor model family protocol"),
    ("nimble-depth-iscsi 3par-depth-iscsi", "vendor model protocol"),
    ("netapp-afd-max-sectors", "vendor model use:oracle-afd"),
    ("netapp-mysql-scheduler", "vendor model use:mysql"),
    ("beegfs-scheduler beegfs-nr-requests", "vendor model kind use:beegfs"),
    ("beegfs-read-ahead beegfs-max-sectors", "vendor model kind use:beegfs"),
    ("asm-scheduler-hdd asm-scheduler-ssd asm-scheduler-nvme", "medium use:oracle-asm"),
    ("sap-scheduler", "use:sap"),
    ("scale-scheduler", "protocol use:spectrum-scale"),
    # Its source names the devices nvme*, of drives that do not rotate.
    ("scale-scheduler-nvme", "protocol medium use:spectrum-scale"),
    ("scale-read-ahead", "use:spectrum-scale"),
    ("lustre-scheduler", "use:lustre"),
)
"""The conditions of the rules' sources. A rule with fewer changes disks that its vendor does not
mean, as Google's once did."""


def test_rules_have_conditions_of_sources() -> None:
    expected: dict[str, set[str]] = {}
    for names, keys in CONDITIONS:
        for name in names.split():
            expected[name] = set(keys.split())
    conditions: dict[str, set[str]] = {}
    for vendor in load_vendors(find_shipped("rules")):
        conditions[vendor.rule.name] = set(msgspec.to_builtins(vendor.rule.when))
        if vendor.use is not None:
            conditions[vendor.rule.name].add(f"use:{vendor.use}")
    assert conditions == expected
