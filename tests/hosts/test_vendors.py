"""Each vendor's rule on a machine that it is for, and none where a site asks for none."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.plan.advice import Advice, Stance, find_advice
from hbatune.plan.make import make_plan
from hbatune.plan.rows import State
from hbatune.policy.config import Site, Vendors
from hbatune.policy.library import Library, load_profile
from hbatune.policy.vendors import list_uses, load_enabled_rules, load_followed_rules, load_vendors
from hbatune.settings.table import Value
from hbatune.shipped import find_shipped
from tests.hosts.conftest import ALL, Surveyed

Survey = Callable[[str], Surveyed]

AGREES, OPEN, CONFLICT, FIXED = Stance.AGREES, Stance.OPEN, Stance.CONFLICT, Stance.FIXED
NEVER = 4_294_967_295

RULES: dict[str, tuple[str, str, Value | None, Stance]] = {
    "pure-scheduler": ("pure", "dm-0", "none", OPEN),
    "pure-add-random": ("pure", "sda", 0, OPEN),
    "pure-rq-affinity": ("pure", "sda", 2, OPEN),
    "pure-timeout": ("pure", "sda", 60, OPEN),
    "pure-max-sectors": ("pure", "sda", 4096, OPEN),
    "nimble-scheduler": ("nimble", "sda", "none", AGREES),
    "nimble-nr-requests": ("nimble", "sda", 512, FIXED),
    "nimble-max-sectors": ("nimble", "sda", 4096, OPEN),
    "nimble-read-ahead": ("nimble", "sda", 128, OPEN),
    "nimble-add-random": ("nimble", "sda", 0, OPEN),
    "nimble-rotational": ("nimble", "sda", 0, OPEN),
    "nimble-rq-affinity": ("nimble", "sda", 2, OPEN),
    "nimble-depth-lpfc": ("nimble", "sda", 64, OPEN),
    "nimble-depth-qla2xxx": ("nimble_qla2xxx", "sda", 64, OPEN),
    "nimble-depth-others": ("nimble_fnic", "sda", 64, OPEN),
    "nimble-depth-iscsi": ("nimble_iscsi", "sda", 256, OPEN),
    "3par-depth-iscsi": ("threepar_iscsi", "sda", 256, OPEN),
    "alletra-iopolicy": ("alletra_nvme", "nvme0n1", "round-robin", OPEN),
    "alletra-loss": ("alletra_nvme", "nvme0", -1, OPEN),
    "ontap-iopolicy": ("ontap_nvme", "nvme0n1", "queue-depth", OPEN),
    "ontap-loss": ("ontap_nvme", "nvme0", -1, OPEN),
    "eseries-iopolicy": ("eseries_nvme", "nvme0n1", "round-robin", OPEN),
    "netapp-afd-max-sectors": ("ontap_lun", "sda", 4096, OPEN),
    "netapp-mysql-scheduler": ("ontap_lun", "sda", "none", AGREES),
    "beegfs-scheduler": ("eseries", "dm-0", "none", OPEN),
    "beegfs-nr-requests": ("eseries", "dm-0", 64, OPEN),
    "beegfs-read-ahead": ("eseries", "dm-0", 4096, OPEN),
    "beegfs-max-sectors": ("eseries", "dm-0", 1024, OPEN),
    "vast-iopolicy": ("vast_nvme", "nvme0n1", "round-robin", OPEN),
    "vast-loss": ("vast_nvme", "nvme0", -1, OPEN),
    "sc-scheduler": ("compellent", "sda", "mq-deadline", OPEN),
    "sc-sas-depth": ("compellent_sas", "sda", None, AGREES),
    "vmware-timeout": ("vmware_disk", "sda", 180, OPEN),
    "google-scheduler": ("google_disk", "sda", "none", OPEN),
    "google-io-timeout": ("google_nvme", "nvme0n1", NEVER, OPEN),
    "azure-io-timeout": ("azure_nvme", "nvme0n1", 240_000, OPEN),
    "ebs-io-timeout": ("ebs", "nvme0n1", NEVER, OPEN),
    "instance-io-timeout": ("ec2_instance", "nvme0n1", 90_000, OPEN),
    "openshift-io-timeout": ("database", "nvme0n1", NEVER, OPEN),
    "cassandra-rotational": ("database", "sdb", 0, AGREES),
    "cassandra-scheduler": ("database", "sdb", "mq-deadline", AGREES),
    "cassandra-read-ahead": ("database", "sdb", 8, OPEN),
    "elasticsearch-read-ahead": ("database", "sda", 128, AGREES),
    "eve-depth-hdd": ("iscsi_hdd", "sda", 64, OPEN),
    "eve-depth-ssd": ("iscsi_tcp", "sda", 128, OPEN),
    "ravendb-read-ahead": ("database", "nvme0n1", 32, OPEN),
    "ravendb-rotational": ("azure_disk", "sda", 0, OPEN),
    "ravendb-scheduler": ("azure_disk", "sda", "none", OPEN),
    "suse-path-scheduler": ("pure", "sda", "none", AGREES),
    "asm-scheduler-hdd": ("database", "sda", "mq-deadline", AGREES),
    "asm-scheduler-ssd": ("database", "sdb", "none", CONFLICT),
    "asm-scheduler-nvme": ("database", "nvme0n1", "none", AGREES),
    "sap-scheduler": ("database", "sdb", "none", CONFLICT),
    "scale-scheduler": ("database", "sdb", "mq-deadline", AGREES),
    "scale-scheduler-nvme": ("database", "nvme0n1", "none", AGREES),
    "scale-read-ahead": ("database", "sdb", 0, OPEN),
    "lustre-scheduler": ("database", "nvme0n1", "mq-deadline", CONFLICT),
}
"""Machine and target of each vendor's rule, the value that it asks for, and oltp's stance."""

USES = list_uses(load_vendors(find_shipped("rules")))
EVERYTHING = Site(
    vendors=Vendors.ADVISE, uses=dict.fromkeys(USES, ("sda", "sdb", "dm-0", "nvme0n1"))
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    site: Path = tmp_path_factory.mktemp("etc")
    return Library(find_shipped("rules"), site=site)


def advice_on(described: Surveyed, library: Library, site: Site) -> tuple[Advice, ...]:
    profile = load_profile("oltp", library, load_followed_rules(library, site))
    plan = make_plan(described.machine, profile)
    return find_advice(described.machine, load_enabled_rules(library, site), plan, uses=site.uses)


def test_table_covers_vendor_rules() -> None:
    assert {vendor.rule.name for vendor in load_vendors(find_shipped("rules"))} == set(RULES)
    assert len(RULES) >= 30


@pytest.mark.parametrize("rule", RULES)
def test_rule_advises_intended_machine(surveyed: Survey, library: Library, rule: str) -> None:
    machine, target, advised, stance = RULES[rule]
    all_advice = advice_on(surveyed(machine), library, EVERYTHING)
    matching = [advice for advice in all_advice if (advice.rule, advice.target) == (rule, target)]
    assert len(matching) == 1, f"{rule} advises {target} of the machine {machine} no longer"
    [rule_advice] = matching
    assert (rule_advice.advised, rule_advice.stance) == (advised, stance)
    assert rule_advice.source in library.sources()
    assert (rule_advice.against is not None) == (stance is CONFLICT)


@pytest.mark.parametrize("rule", RULES)
def test_rule_skips_foreign_machines(surveyed: Survey, library: Library, rule: str) -> None:
    own_machine, *_ = RULES[rule]
    site = Site(vendors=Vendors.ADVISE)
    for machine in ("mpt3sas", "nvme", "fc_arrays", "megaraid_sas", "virtio_scsi", own_machine):
        advising_rules = {advice.rule for advice in advice_on(surveyed(machine), library, site)}
        assert machine == own_machine or rule not in advising_rules
        assert not advising_rules & {
            name for name in advising_rules if name.startswith(("asm", "sap", "beegfs"))
        }


def test_controller_advice_depends_on_transport(surveyed: Survey, library: Library) -> None:
    machine_advice = advice_on(surveyed("ontap_nvme_fc"), library, EVERYTHING)
    assert [advice.rule for advice in machine_advice if advice.setting == "ctrl_loss_tmo"] == []
    assert "ontap-iopolicy" in {advice.rule for advice in machine_advice}


def test_google_advice_skips_solid_disks(surveyed: Survey, library: Library) -> None:
    described = surveyed("google_disk")
    [disk] = described.machine.endpoints
    assert disk.rotational is True
    solid = replace(described.machine, endpoints=(replace(disk, rotational=False),))
    described = Surveyed(described.root, solid)
    rules = {advice.rule for advice in advice_on(described, library, EVERYTHING)}
    assert "google-scheduler" not in rules


@pytest.mark.parametrize("name", ALL)
def test_advice_off_changes_nothing(surveyed: Survey, library: Library, name: str) -> None:
    machine, off = surveyed(name).machine, Site()
    assert advice_on(surveyed(name), library, off) == ()
    vendors = {vendor.rule.name for vendor in load_vendors(library.shipped)}
    for profile in ("balanced", "latency", "oltp", "throughput"):
        plan = make_plan(machine, load_profile(profile, library, load_followed_rules(library, off)))
        assert plan == make_plan(machine, load_profile(profile, library))
        advising_site = Site(vendors=Vendors.ADVISE)
        assert plan == make_plan(
            machine, load_profile(profile, library, load_followed_rules(library, advising_site))
        )
        assert not {row.rule for row in plan.rows} & vendors


@pytest.mark.parametrize("name", ALL)
def test_following_skips_uses_and_reductions(surveyed: Survey, library: Library, name: str) -> None:
    site = Site(vendors=Vendors.FOLLOW, uses=EVERYTHING.uses)
    plan = make_plan(
        surveyed(name).machine, load_profile("oltp", library, load_followed_rules(library, site))
    )
    bound = {vendor.rule.name for vendor in load_vendors(library.shipped) if vendor.use is not None}
    for row in plan.rows:
        assert row.rule not in bound
        if row.setting == "queue_depth" and row.state is State.DRIFT:
            assert isinstance(row.value, int)
            assert isinstance(row.current, int)
            assert row.value >= row.current


def test_followed_advice_is_planned(surveyed: Survey, library: Library) -> None:
    site = Site(vendors=Vendors.FOLLOW)
    profile = load_profile("oltp", library, load_followed_rules(library, site))
    for name, target, setting, value in (
        ("pure", "sda", "timeout", 60),
        ("nimble", "sda", "queue_depth", 64),
        ("nimble_fnic", "sda", "queue_depth", 64),
        ("nimble_iscsi", "sda", "queue_depth", 113),
        ("threepar_iscsi", "sda", "queue_depth", 256),
        ("vast_nvme", "nvme0", "ctrl_loss_tmo", -1),
        ("vast_nvme", "nvme0n1", "iopolicy", "round-robin"),
        ("ebs", "nvme0n1", "io_timeout", NEVER),
    ):
        rows = make_plan(surveyed(name).machine, profile).rows
        matching = [row for row in rows if (row.target, row.setting) == (target, setting)]
        assert len(matching) == 1, f"no vendor's rule sets {setting} of {target} on {name}"
        [row] = matching
        assert (row.value, row.state) == (value, State.DRIFT)
