"""Tests of hbatune/policy/vendors.py."""

import shutil
from collections.abc import Mapping
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


PURE = {"vendor": "PURE", "model": "FlashArray"}
NIMBLE = {"vendor": "Nimble", "model": "Server"}
ESERIES_MAP = {"vendor": "NETAPP", "model": "INF-01-00", "kind": "map", "use": "beegfs"}
ONTAP_LUN = {"vendor": "NETAPP", "model": "LUN*"}
NVME, NVME_MAP = {"protocol": "nvme"}, {"protocol": "nvme", "kind": "map"}
ISCSI = {"protocol": "iscsi"}
ISCSI_HDD, ISCSI_SSD = ({**ISCSI, "medium": medium, "use": "eve"} for medium in ("hdd", "ssd"))
SSD_OF_CASSANDRA = {"medium": "ssd", "use": "cassandra"}
NOT_NVME = ["sas", "sata", "volume", "fc", "iscsi", "virtio", "virtual"]
Conditions = Mapping[str, object]

CONDITIONS: tuple[tuple[str, Conditions], ...] = (
    ("google-io-timeout", {**NVME, "model": "nvme_card-pd"}),
    ("azure-io-timeout", {**NVME, "model": "MSFT NVMe Accelerator v1.0"}),
    ("ebs-io-timeout", {**NVME, "model": "Amazon Elastic Block Store"}),
    ("instance-io-timeout", {**NVME, "model": "Amazon EC2 NVMe Instance Storage"}),
    ("openshift-io-timeout", {**NVME, "use": "openshift"}),
    ("cassandra-rotational cassandra-scheduler cassandra-read-ahead", SSD_OF_CASSANDRA),
    ("elasticsearch-read-ahead", {"use": "elasticsearch"}),
    ("eve-depth-hdd", ISCSI_HDD),
    ("eve-depth-ssd", ISCSI_SSD),
    ("ravendb-read-ahead", {"medium": ["ssd", "nvme"], "use": "ravendb-random-access"}),
    # The guide means SSDs that a hypervisor reports as rotational. Its udev rule has fewer
    # conditions than its text. `rotational` cannot be one: the first rule changes it.
    ("ravendb-rotational ravendb-scheduler", {"storage": "virtual", "use": "ravendb-virtual-ssd"}),
    # 60-io-scheduler.rules: ENV{DM_MULTIPATH_DEVICE_PATH}=="1".
    ("suse-path-scheduler", {"kind": "path", "multipath": "dm", "use": "suse"}),
    # packaging/ubuntu/99-gce.rules: ENV{ID_VENDOR}=="*Google*" and ATTR{queue/rotational}=="1".
    ("google-scheduler", {"vendor": "*Google*", "rotational": True, "use": "ubuntu"}),
    ("sc-scheduler", {"vendor": "COMPELNT"}),
    ("sc-sas-depth", {"vendor": "COMPELNT", "protocol": "sas"}),
    ("vmware-timeout", {"vendor": "VMware*", "model": "Virtual disk*"}),
    ("alletra-iopolicy", {**NVME_MAP, "model": "HPE Alletra"}),
    ("ontap-iopolicy", {**NVME_MAP, "model": "NetApp ONTAP Controller"}),
    ("eseries-iopolicy", {**NVME_MAP, "model": "NetApp E-Series"}),
    ("vast-iopolicy", {**NVME_MAP, "model": "VASTData"}),
    ("alletra-loss", {"model": "HPE Alletra", "transport": "tcp"}),
    ("ontap-loss", {"model": "NetApp ONTAP Controller", "transport": "tcp"}),
    ("vast-loss", {"model": "VASTData"}),
    ("pure-scheduler pure-add-random pure-rq-affinity pure-timeout pure-max-sectors", PURE),
    ("nimble-scheduler nimble-nr-requests nimble-max-sectors nimble-read-ahead", NIMBLE),
    ("nimble-add-random nimble-rotational nimble-rq-affinity", NIMBLE),
    ("nimble-depth-qla2xxx", {**NIMBLE, "family": "qla2xxx"}),
    ("nimble-depth-lpfc", {**NIMBLE, "family": "lpfc"}),
    ("nimble-depth-others", {**NIMBLE, "family": "scsi", "protocol": "fc"}),
    # config.json: the vendor "3PARdata" has the product "VV".
    ("nimble-depth-iscsi", {**NIMBLE, **ISCSI}),
    ("3par-depth-iscsi", {**ISCSI, "vendor": "3PARdata", "model": "VV"}),
    ("netapp-afd-max-sectors", {**ONTAP_LUN, "use": "oracle-afd"}),
    ("netapp-mysql-scheduler", {**ONTAP_LUN, "use": "mysql"}),
    ("beegfs-scheduler beegfs-nr-requests beegfs-read-ahead beegfs-max-sectors", ESERIES_MAP),
    ("asm-scheduler-hdd", {"medium": "hdd", "use": "oracle-asm"}),
    ("asm-scheduler-ssd", {"medium": "ssd", "use": "oracle-asm"}),
    ("asm-scheduler-nvme", {"medium": "nvme", "use": "oracle-asm"}),
    ("sap-scheduler", {"use": "sap"}),
    ("scale-scheduler", {"protocol": NOT_NVME, "use": "spectrum-scale"}),
    # Its source names the devices nvme*, of drives that do not rotate.
    ("scale-scheduler-nvme", {**NVME, "medium": "nvme", "use": "spectrum-scale"}),
    ("scale-read-ahead", {"use": "spectrum-scale"}),
    ("lustre-scheduler", {"use": "lustre"}),
)
"""The conditions of the rules' sources. A rule with others changes disks that its vendor does not
mean, as Google's once did."""


def test_rules_have_conditions_of_sources() -> None:
    expected = {name: given for names, given in CONDITIONS for name in names.split()}
    conditions: dict[str, Conditions] = {}
    for vendor in load_vendors(find_shipped("rules")):
        given: dict[str, object] = {"use": vendor.use} if vendor.use is not None else {}
        for key, value in msgspec.to_builtins(vendor.rule.when).items():
            is_list = isinstance(value, (list, tuple))
            given[key] = (value[0] if len(value) == 1 else list(value)) if is_list else value
        conditions[vendor.rule.name] = given
    assert conditions == expected
