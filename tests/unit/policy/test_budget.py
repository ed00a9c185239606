"""Array budgets: the documents' arithmetic, and nothing lowered but by a site's own facts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.facts.model import Adapter, Endpoint, Kind, Machine, Missing, Protocol, Reason
from hbatune.plan import make
from hbatune.plan.rows import Row, State
from hbatune.policy.budget import DepthBudget, compute_budgets, has_priority, make_site_rules
from hbatune.policy.config import LimitScope, Site, SiteArray
from hbatune.policy.library import Library, find_model, load_profile
from hbatune.policy.profile import AtMost, Leave, Match, Origin, Rule
from hbatune.shipped import find_shipped
from tests.unit.machines import adapter, attributes, endpoint, link, machine
from tests.unit.site_folder import SiteFolder

ARRAYS = Library(find_shipped("rules")).arrays()


def lun(target: str = "sda", depth: int = 64, **overrides: Any) -> Endpoint:
    fields = {
        "target": target,
        "family": "lpfc",
        "protocol": Protocol.FC,
        "vendor": "DGC",
        "model": "RAID 5",
        "depth_cap": 4096,
        "port": "0x500601613b240f3a",
        "attributes": attributes(device__queue_depth=str(depth)),
    }
    return endpoint(**{**fields, **overrides})


def array(**overrides: Any) -> Site:
    return Site(array=(SiteArray(**{"name": "db", "hosts": 1, **overrides}),))


def budget_of(host: Machine, site: Site, target: str = "sda") -> DepthBudget:
    budgets = compute_budgets(host, site, ARRAYS)
    return next(budgets[lun_path.id] for lun_path in host.endpoints if lun_path.target == target)


def depth_row(site: SiteFolder, host: Machine, facts: Site, profile: str = "oltp") -> Row | None:
    loaded = load_profile(profile, site.library)
    rules = make_site_rules(host, facts, ARRAYS, "hbatune.toml")
    rows = make.make_plan(host, loaded, limits=make.PlanLimits(site_rules=rules)).rows
    return next((row for row in rows if row.setting == "queue_depth" and row.target == "sda"), None)


@pytest.mark.parametrize(
    ("vendor", "model", "drives", "depth"),
    [
        # D2-5's own example: a 4+1 RAID 5 and a 4+4 RAID 10 have four data drives
        ("DGC", "RAID 5", 4, 88),
        ("DGC", "RAID 10", 4, 88),
        ("DGC", "VRAID", 8, 144),
        ("HITACHI", "OPEN-V", None, 32),
        ("HITACHI", "DF600F", None, 32),
        ("HP", "OPEN-V", None, 32),
        ("IBM", "2107900", None, 256),
        ("IBM", "2810XIV", None, 256),
        ("IBM", "2145", None, 256),
    ],
)
def test_array_limit_follows_document(
    vendor: str, model: str, drives: int | None, depth: int
) -> None:
    host = machine(lun(vendor=vendor, model=model))
    assert budget_of(host, array(data_drives=drives)).depth == depth


@pytest.mark.parametrize(
    ("vendor", "model"), [("dgc", "RAID 5"), ("DGC", "LUNZ"), ("HP", "LOGICAL VOLUME"), ("", "")]
)
def test_unknown_array_is_unlimited(vendor: str, model: str) -> None:
    assert find_model(vendor, model, ARRAYS) is None
    assert not compute_budgets(machine(lun(vendor=vendor, model=model)), array(), ARRAYS)


def test_clariion_drives_are_not_guessed() -> None:
    assert not compute_budgets(machine(lun()), array(), ARRAYS)


def test_hosts_and_luns_share_port() -> None:
    luns = [lun(f"sd{letter}") for letter in "abcde"]
    elsewhere = lun("sdf", port="0x500601623b240f3a")
    budget = budget_of(machine(*luns, elsewhere), array(hosts=4, port_limit=1600))
    assert budget.port is not None
    assert (budget.port.limit, budget.port.hosts, budget.port.luns) == (1600, 4, 5)
    assert (budget.depth, budget.source) == (80, "D2-4")


def test_adapters_share_named_port() -> None:
    facts = array(port_limit=100)
    two = [lun("sda", adapter="a"), lun("sdb", adapter="b", address="1:0:0:0")]
    assert budget_of(machine(*two), facts).depth == 50
    nameless = [lun("sda", port=None), lun("sdb", port=None, address="1:0:0:0")]
    assert budget_of(machine(*nameless), facts).depth == 100


def test_lun_limit_ignores_lun_count() -> None:
    luns = [lun(f"sd{letter}") for letter in "abcde"]
    facts = array(hosts=4, port_limit=512, counting=LimitScope.LUN)
    assert budget_of(machine(*luns), facts).depth == 128


def test_serving_paths_share_lun_limit() -> None:
    def paths(*states: str) -> Machine:
        return machine(
            *(
                lun(f"sd{'abcd'[n]}", kind=Kind.PATH, map="dm-0", access=state, port=f"{n}")
                for n, state in enumerate(states)
            )
        )

    facts = array(data_drives=4)
    assert budget_of(paths("active/optimized", "active/non-optimized"), facts).depth == 88
    assert budget_of(paths("active/optimized", "active/optimized"), facts).depth == 44
    assert budget_of(paths("unknown", "unknown"), facts).depth == 44


def test_unmapped_path_counts_for_lun() -> None:
    name = "naa.600601601bb0"
    mapped_path = lun("sda", id=f"{name}@a/rport-1", port="1", kind=Kind.PATH, map="dm-0")
    mapped_path = replace(mapped_path, access="active/optimized")
    new = lun("sdb", id=f"{name}@a/rport-2", port="2")
    for target in ("sda", "sdb"):
        assert budget_of(machine(mapped_path, new), array(data_drives=4), target).depth == 44
    other_lun = lun("sdb", id="naa.600601601bb1@a/rport-2", port="2")
    assert budget_of(machine(mapped_path, other_lun), array(data_drives=4)).depth == 88


def test_depth_stays_within_driver_maximum() -> None:
    budget = budget_of(machine(lun(vendor="ACME")), array(port_limit=4096))
    assert (budget.depth, budget.source) == (256, "D2-2")


def test_last_fitting_array_counts() -> None:
    general = SiteArray(name="all", hosts=1, vendor="D*", port_limit=200)
    special = SiteArray(name="one", hosts=1, targets=("sdb",), port_limit=100)
    budgets = compute_budgets(
        machine(lun("sda"), lun("sdb")), Site(array=(general, special)), ARRAYS
    )
    assert sorted((budget.array, budget.depth) for budget in budgets.values()) == [
        ("all", 200),
        ("one", 100),
    ]


def test_only_shared_luns_have_budgets() -> None:
    host = machine(lun(protocol=Protocol.SAS), lun("dm-0", kind=Kind.MAP))
    assert not compute_budgets(host, array(port_limit=100), ARRAYS)


def test_missing_site_facts_preserve_depth(site: SiteFolder) -> None:
    assert depth_row(site, machine(lun(vendor="HITACHI", model="OPEN-V")), Site()) is None


def test_budget_lowers_and_cites_source(site: SiteFolder) -> None:
    row = depth_row(site, machine(lun()), array(hosts=8, port_limit=256))
    assert row is not None
    assert (row.current, row.wanted, row.value, row.state) == (64, 32, 32, State.DRIFT)
    assert (row.source, row.rule) == ("D2-4", "site-array-db")


def test_only_port_limit_raises_depth(site: SiteFolder) -> None:
    raised = depth_row(site, machine(lun()), array(port_limit=2048, data_drives=4))
    assert raised is not None
    assert (raised.value, raised.state, raised.source) == (88, State.DRIFT, "D2-5")
    current = depth_row(site, machine(lun()), array(data_drives=4))
    assert current is not None
    assert (current.wanted, current.value, current.state) == (88, 64, State.OK)
    assert current.limit
    lowered = depth_row(site, machine(lun(depth=128)), array(data_drives=4))
    assert lowered is not None
    assert (lowered.value, lowered.state) == (88, State.DRIFT)


def test_budget_yields_to_doubtful_rule() -> None:
    lowered = Rule("array", Match(), "queue_depth", AtMost(8), "", "D2-3", "hbatune.toml")
    doubtful = replace(lowered, effect=Leave(doubtful=True), source="D0-1", origin=Origin.SITE)
    assert not has_priority(lowered, doubtful)
    assert has_priority(lowered, replace(doubtful, effect=Leave()))


def test_budget_yields_to_site_rule(site: SiteFolder) -> None:
    facts = array(hosts=8, port_limit=256)
    assert depth_row(site, machine(lun()), facts, "balanced") is None
    site.put(
        "rules.d/own.toml",
        '[[rule]]\nname = "own"\nsetting = "queue_depth"\nvalue = 48\n'
        'when = { protocol = "fc" }\nbecause = "tested"\nsource = "site"\n',
    )
    row = depth_row(site, machine(lun()), facts)
    assert row is not None
    assert (row.value, row.rule) == (48, "own")


def volume(depth: int = 6, **overrides: Any) -> Endpoint:
    return lun(
        depth=depth,
        family="ipr",
        protocol=Protocol.VOLUME,
        vendor="IBM",
        depth_cap=1000,
        **overrides,
    )


def ipr(speed: float | Missing) -> tuple[Adapter, ...]:
    return (adapter(family="ipr", link=link(speed=speed)),)


@pytest.mark.parametrize(
    ("speed", "facts", "value"),
    [
        (8.0, Site(members={"sda": 5}), 80),
        (8.0, Site(members={"wwn-0x5000c500sda": 10}), 160),
        (8.0, Site(members={"sdb": 5}), 16),
        (8.0, Site(members={"sda": 100}), 1000),
        (5.0, Site(members={"sda": 5}), 80),  # no figure for Gen2: as in a Gen3 slot
        (16.0, Site(members={"sda": 5}), 80),
        (2.5, Site(members={"sda": 3}), 64),  # Gen1: 64 at least for each array
        (2.5, Site(members={"sda": 5}), 80),
        (Missing(Reason.UNREADABLE), Site(members={"sda": 5}), 80),
    ],
)
def test_ipr_array_depth_counts_drives(
    site: SiteFolder, speed: float | Missing, facts: Site, value: int
) -> None:
    row = depth_row(site, machine(volume(), adapters=ipr(speed)), facts)
    assert row is not None
    assert (row.value, row.source) == (value, "D4-1")


def test_plain_drive_ignores_members(site: SiteFolder) -> None:
    host = machine(replace(volume(), protocol=Protocol.SAS), adapters=ipr(8.0))
    row = depth_row(site, host, Site(members={"sda": 5}))
    assert row is not None
    assert row.value == 16


def test_array_members_never_lower_depth(site: SiteFolder) -> None:
    host = machine(volume(depth=200), adapters=ipr(8.0))
    row = depth_row(site, host, Site(members={"sda": 2}))
    assert row is not None
    assert (row.value, row.state) == (200, State.OK)


@given(
    limit=st.integers(1, 65536),
    hosts=st.integers(1, 4096),
    luns=st.integers(1, 12),
    counting=st.sampled_from(LimitScope),
)
def test_total_depth_stays_within_share(
    limit: int, hosts: int, luns: int, counting: LimitScope
) -> None:
    host = machine(*(lun(f"sd{chr(97 + n)}") for n in range(luns)))
    budgets = compute_budgets(host, array(hosts=hosts, port_limit=limit, counting=counting), ARRAYS)
    together = sum(budget.depth for budget in budgets.values())
    share = limit // hosts * (luns if counting is LimitScope.LUN else 1)
    assert together <= max(share, luns)  # a depth of 1 is the least there is
