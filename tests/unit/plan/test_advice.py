"""Vendors' advice: off by default, shown beside the plan, or followed within the site's word."""

import json

import pytest
from msgspec.structs import replace

from hbatune.checks.finding import Severity
from hbatune.checks.registry import run_checks
from hbatune.cli import main
from hbatune.facts.model import Endpoint, Medium, Protocol, Storage
from hbatune.plan.advice import Advice, Stance, find_advice
from hbatune.plan.make import EarlierChanges, PlanLimits, make_plan
from hbatune.plan.rows import Plan
from hbatune.policy.budget import compute_budgets, make_site_rules
from hbatune.policy.config import Site, SiteArray, Vendors
from hbatune.policy.library import Library, load_profile
from hbatune.policy.vendors import load_enabled_rules, load_followed_rules
from hbatune.shipped import find_shipped
from hbatune.text.limit_text import describe_limit
from tests.documented import validate
from tests.unit.check_inputs import facts, format_finding, seen
from tests.unit.command_runs import see_machine
from tests.unit.machines import adapter, attributes, endpoint, machine
from tests.unit.site_folder import SiteFolder

FOLLOW, ADVISE = Site(vendors=Vendors.FOLLOW), Site(vendors=Vendors.ADVISE)
ARRAYS = Library(find_shipped("rules")).arrays()
CARD = adapter(family="lpfc")
LUN = endpoint(
    family="lpfc",
    protocol=Protocol.FC,
    storage=Storage.ARRAY,
    vendor="Nimble",
    model="Server",
    port="0x500601613b240f3a",
    depth_cap=4096,
    attributes=attributes(
        device__queue_depth="30",
        device__timeout="30",
        queue__scheduler="[none] mq-deadline",
        queue__rq_affinity="1",
        queue__add_random="0",
    ),
)
HOST = machine(LUN, adapters=(CARD,))
NAMED = EarlierChanges(targets_named=True)


def index_advice(site: SiteFolder, wants: Site = ADVISE, disk: Endpoint = LUN) -> dict[str, Advice]:
    host = machine(disk, adapters=(CARD,))
    plan = make_plan(
        host, load_profile("oltp", site.library, load_followed_rules(site.library, wants))
    )
    advice = find_advice(host, load_enabled_rules(site.library, wants), plan, uses=wants.uses)
    return {entry.rule: entry for entry in advice}


def test_silent_site_gets_no_advice(site: SiteFolder) -> None:
    assert load_enabled_rules(site.library, Site()) == ()
    assert load_followed_rules(site.library, Site()) == ()
    assert index_advice(site, Site()) == {}


def test_advice_reports_plan_stance(site: SiteFolder) -> None:
    advice = index_advice(site)
    assert {name: entry.stance for name, entry in advice.items()} == {
        "nimble-scheduler": Stance.AGREES,
        "nimble-add-random": Stance.AGREES,
        "nimble-rq-affinity": Stance.OPEN,
        "nimble-depth-lpfc": Stance.OPEN,
    }
    affinity = advice["nimble-rq-affinity"]
    assert (affinity.current, affinity.advised, affinity.planned) == (1, 2, 1)
    assert "wrong way round" in str(affinity.note)


def test_contrary_site_rule_is_conflict(site: SiteFolder) -> None:
    site.put(
        "rules.d/x.toml",
        '[[rule]]\nname = "mine"\nsetting = "rq_affinity"\nvalue = 0\n'
        'because = "we measured it"\nsource = "site"\n',
    )
    advice = index_advice(site)["nimble-rq-affinity"]
    assert (advice.stance, advice.against, advice.planned) == (Stance.CONFLICT, "mine", 0)


def test_sufficient_depth_agrees(site: SiteFolder) -> None:
    deep = {**LUN.attributes, **attributes(device__queue_depth="128")}
    assert (
        index_advice(site, disk=replace(LUN, attributes=deep))["nimble-depth-lpfc"].stance
        is Stance.AGREES
    )


def test_unsettable_advice_is_fixed(site: SiteFolder) -> None:
    full = attributes(queue__nr_requests="8000", mq__0__nr_tags="8000")
    advice = index_advice(site, disk=replace(LUN, attributes={**LUN.attributes, **full}))
    requests = advice["nimble-nr-requests"]
    assert (requests.stance, requests.value) == (Stance.FIXED, 8000)
    assert "with scheduler none a disk has its adapter's 8000 tags" in describe_limit(
        requests.limit
    )


def test_excluded_disk_gets_no_advice(site: SiteFolder) -> None:
    rules = load_enabled_rules(site.library, ADVISE)
    assert find_advice(HOST, rules, Plan("", ()), excluded={LUN.id}) == ()
    assert find_advice(HOST, rules, Plan("", ()), only={"another"}) == ()


def test_site_rule_overrides_followed_advice(site: SiteFolder) -> None:
    site.put(
        "rules.d/x.toml",
        '[[rule]]\nname = "mine"\nsetting = "rq_affinity"\nvalue = 0\n'
        'because = "we measured it"\nsource = "site"\n',
    )
    profile = load_profile("oltp", site.library, load_followed_rules(site.library, FOLLOW))
    rows = {row.setting: row for row in make_plan(HOST, profile, earlier=NAMED).rows}
    assert (rows["rq_affinity"].value, rows["rq_affinity"].rule) == (0, "mine")
    assert (rows["queue_depth"].value, rows["queue_depth"].rule) == (64, "nimble-depth-lpfc")


def test_site_budget_outranks_vendor_depth(site: SiteFolder) -> None:
    facts = Site(
        vendors=Vendors.FOLLOW,
        array=(SiteArray(name="san", vendor="Nimble", hosts=100, port_limit=1000),),
    )
    profile = load_profile("oltp", site.library, load_followed_rules(site.library, facts))
    site_rules = make_site_rules(HOST, facts, ARRAYS, "hbatune.toml")
    rows = {
        row.setting: row
        for row in make_plan(
            HOST, profile, limits=PlanLimits(site_rules=site_rules), earlier=NAMED
        ).rows
    }
    assert (rows["queue_depth"].value, rows["queue_depth"].rule) == (10, "site-array-san")


@pytest.mark.parametrize(
    ("vendor", "model", "limit", "source"),
    [
        ("DGC", "VRAID", 1600, "V-emc-port"),
        ("IBM", "2145", 10000, "V-svc-port"),
        ("HITACHI", "OPEN-V", 2048, "V-hitachi-port"),
        ("HITACHI", "DF600F", 512, "V-hitachi-port"),
    ],
)
def test_vendor_port_limit_feeds_budget(vendor: str, model: str, limit: int, source: str) -> None:
    lun = replace(LUN, vendor=vendor, model=model)
    described = (SiteArray(name="san", vendor=vendor, hosts=100),)
    budgets = compute_budgets(machine(lun), Site(vendors=Vendors.FOLLOW, array=described), ARRAYS)
    port = budgets[lun.id].port
    assert port is not None
    assert (port.limit, port.source, port.depth) == (limit, source, max(1, limit // 100))
    for vendors in (Vendors.OFF, Vendors.ADVISE):
        budgets = compute_budgets(machine(lun), Site(vendors=vendors, array=described), ARRAYS)
        assert lun.id not in budgets or budgets[lun.id].port is None
    # The site's own figure goes before the vendor's, and no array that is not described gets one.
    own_array = (SiteArray(name="san", vendor=vendor, hosts=10, port_limit=300),)
    budgets = compute_budgets(machine(lun), Site(vendors=Vendors.FOLLOW, array=own_array), ARRAYS)
    assert budgets[lun.id].port == replace(port, limit=300, hosts=10, known=None, source=None)
    assert compute_budgets(machine(lun), FOLLOW, ARRAYS) == {}


def test_use_advice_covers_declared_disks(site: SiteFolder) -> None:
    wants = Site(vendors=Vendors.ADVISE, uses={"oracle-asm": ("sdb",)})
    two = endpoint(target="sdb", medium=Medium.SSD)
    host = machine(endpoint(), two)
    plan = make_plan(host, load_profile("oltp", site.library))
    advice = find_advice(host, load_enabled_rules(site.library, wants), plan, uses=wants.uses)
    assert [(entry.target, entry.rule, entry.stance) for entry in advice] == [
        ("sdb", "asm-scheduler-ssd", Stance.CONFLICT)
    ]
    followed = load_followed_rules(site.library, replace(wants, vendors=Vendors.FOLLOW))
    assert "asm-scheduler-ssd" not in {rule.name for rule in followed}


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch, site: SiteFolder) -> SiteFolder:
    """A host with a Nimble whose site wants to see what vendors advise."""
    see_machine(monkeypatch, lambda: HOST)
    site.put("hbatune.toml", '[site]\nvendors = "advise"\n')
    return site


def test_diff_shows_vendor_advice(asking: SiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", "--profile", "oltp", "--json"])
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert {entry["rule"]: entry["stance"] for entry in document["advice"]} == {
        "nimble-scheduler": "agrees",
        "nimble-add-random": "agrees",
        "nimble-rq-affinity": "open",
        "nimble-depth-lpfc": "open",
    }
    assert main(["diff", "--profile", "oltp"]) == 0
    output = capsys.readouterr().out
    assert "Vendor recommendations" in output
    assert "rq_affinity" in output
    assert "add_random" not in output
    main(["diff", "--profile", "oltp", "--all"])
    assert "add_random" in capsys.readouterr().out
    asking.put("hbatune.toml", "")
    main(["diff", "--profile", "oltp", "--all"])
    assert "Vendor recommendations" not in capsys.readouterr().out


def test_explain_shows_advice_without_rule(
    asking: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "sda", "rq_affinity", "--profile", "oltp"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "advice set it to 2: open; HPE: HPE's own udev rule has it" in output
    assert "99-nimble-tune.rules" in output  # the source is cited
    assert main(["explain", "sda", "--profile", "oltp", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    by_setting = {entry["setting"]: entry["advice"] for entry in document["explained"]}
    assert [entry["rule"] for entry in by_setting["rq_affinity"]] == ["nimble-rq-affinity"]


def test_bad_vendors_value_exits_2(asking: SiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    asking.put("hbatune.toml", '[site]\nvendors = "obey"\n')
    assert main(["diff", "--profile", "oltp"]) == 2
    assert 'found "obey", expected off, advise or follow' in capsys.readouterr().err


def test_check_reports_unmet_advice(site: SiteFolder) -> None:
    advice = tuple(index_advice(site).values())
    conflict = replace(
        advice[2], stance=Stance.CONFLICT, against="mine", planned=0, rule="nimble-rq-affinity"
    )
    inputs = replace(seen(HOST), advice=(*advice, conflict))
    findings = [check for check in run_checks(inputs) if check.id == "vendor-advice"]
    assert [(finding.severity, facts(finding)["rule"]) for finding in findings] == [
        (Severity.ADVICE, "nimble-rq-affinity"),
        (Severity.INFO, "nimble-rq-affinity"),
        (Severity.INFO, "nimble-depth-lpfc"),
    ]
    assert {finding.source for finding in findings} == {"V-nimble-rules", "V-nimble-fc"}
    assert "rule mine of the profile sets 0" in format_finding(findings[0]).evidence
    assert "overrides mine" in format_finding(findings[0]).advice
    assert 'vendors = "follow"' in format_finding(findings[1]).advice
