"""Tests of hbatune/checks/software_checks.py."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.checks.finding import MACHINE_TARGET, Severity
from hbatune.checks.registry import run_checks
from hbatune.facts.health import ModuleOptionLine, TunedProfile, TunedWrite, UdevRule
from hbatune.facts.model import Missing, Reason
from hbatune.plan.advice import find_advice
from hbatune.plan.rows import Plan
from hbatune.policy.config import ApprovedVersions, Site
from hbatune.policy.profile import AtLeast, Exactly, Match, OptionRule, Rule, VendorRule
from tests.unit.check_inputs import (
    ADVICE,
    DENIED,
    INFO,
    WARNING,
    Text,
    facts,
    format_finding,
    found,
    health,
    only,
    placed,
    seen,
    served,
)
from tests.unit.machines import ABSENT, adapter, attributes, endpoint, machine
from tests.unit.profiles import profile


def test_unapproved_versions_are_reported() -> None:
    def ids(*approved: ApprovedVersions) -> list[tuple[str, Severity]]:
        check_input = seen(machine(), site=Site(approved=approved))
        return [
            (check.id, check.severity)
            for check in run_checks(check_input)
            if check.id.endswith("-approved")
        ]

    assert ids() == []
    assert ids(ApprovedVersions("mpt3sas", firmware=("16.00.12.*",), driver=("43.*",))) == []
    assert ids(ApprovedVersions("mpt3sas", firmware=("17.*",))) == [
        ("firmware-not-approved", WARNING)
    ]
    assert ids(ApprovedVersions("mpt3sas", driver=("48.*",))) == [("driver-not-approved", WARNING)]
    assert ids(ApprovedVersions("mpi3mr", firmware=("17.*",))) == []
    assert ids(ApprovedVersions("mpt3sas", product="HBA 9400*", firmware=("17.*",))) == []


def test_unknown_firmware_version_is_advice() -> None:
    sick = machine(adapters=(adapter(firmware=ABSENT),))
    site = Site(approved=(ApprovedVersions("mpt3sas", firmware=("16.*",)),))
    finding = only(found(seen(sick, site=site), "firmware-not-approved"))
    assert finding.severity is ADVICE
    text = format_finding(finding)
    assert text.evidence == (
        "the version of its firmware is not known (absent), and only these are approved: 16.*"
    )
    assert "vendor's own tool" in text.advice


def test_missing_driver_version_means_kernel() -> None:
    def get_evidence(version: Missing) -> str:
        sick = machine(adapters=(adapter(driver_version=version),))
        site = Site(approved=(ApprovedVersions("mpt3sas", driver=("48.*",)),))
        return format_finding(only(found(seen(sick, site=site), "driver-not-approved"))).evidence

    assert get_evidence(ABSENT).startswith(f"driver {machine().kernel} is not among")
    assert get_evidence(DENIED).startswith("the version of its driver is not known (unreadable)")


def test_competing_setters_are_reported() -> None:
    wants = profile(("scheduler", Exactly("none")))
    rules = (
        UdevRule("/etc/udev/rules.d/60-a.rules", 3, "queue/scheduler", "bfq"),
        UdevRule("/etc/udev/rules.d/60-a.rules", 4, "bdi/read_ahead_kb", "4096"),
        UdevRule("/etc/udev/rules.d/60-a.rules", 5, "power/control", "auto"),
    )
    busy = machine()
    fares = health(busy, udev_rules=rules, daemons={"irqbalance": True, "tuned": True})
    assert only(found(seen(busy, fares), "irqbalance-running")).severity is INFO
    findings = found(seen(busy, fares, profile=wants), "udev-rule")
    assert [(facts(finding)["setting"], finding.severity) for finding in findings] == [
        ("scheduler", ADVICE),
        ("read_ahead_kb", INFO),
    ]


@pytest.mark.parametrize(
    ("of", "is_reported"),
    [
        ((), True),
        (("SEAGATE",), True),
        (("PURE|SEA*",), True),
        (("XS400ME70084", "of another line"), True),
        (("NetApp ONTAP Controller",), False),
        (("*6c9ce9*",), True),
        (("mpath-3624a937*",), True),
    ],
)
def test_foreign_vendor_rule_is_ignored(of: tuple[str, ...], is_reported: bool) -> None:
    busy = machine()
    rule = UdevRule("/lib/udev/rules.d/71-a.rules", 3, "device/timeout", "60", of)
    findings = found(seen(busy, health(busy, udev_rules=(rule,))), "udev-rule")
    assert bool(findings) is is_reported
    if of and is_reported:
        assert f"sets timeout to 60 of {', '.join(of)}" in format_finding(findings[0]).evidence


def test_later_module_options_override_profile() -> None:
    depth = OptionRule("d", "mpt3sas", "max_queue_depth", AtLeast(1), "because", "D4-3", "x.toml")
    wants = replace(profile(), options=(depth,))
    lines = (
        ModuleOptionLine("/etc/modprobe.d/a.conf", 2, "mpt3sas", "max_queue_depth", "100"),
        ModuleOptionLine("/etc/modprobe.d/site.conf", 1, "mpt3sas", "max_queue_depth", "200"),
        ModuleOptionLine("/etc/modprobe.d/site.conf", 1, "mpt3sas", "max_sgl_entries", "64"),
    )
    busy = machine()
    findings = found(seen(busy, health(busy, module_options=lines), profile=wants), "module-option")
    assert [(facts(finding)["value"], finding.severity) for finding in findings] == [
        ("200", ADVICE),
        ("100", INFO),
        ("64", INFO),
    ]
    text = format_finding(findings[0])
    place = "/etc/modprobe.d/site.conf, line 1, sets mpt3sas.max_queue_depth to 200"
    assert text.evidence == place
    assert f"after {Paths.modprobe}" in text.advice


def test_tuned_versus_plan_is_advice() -> None:
    def found_with(tuned: TunedProfile | Missing) -> tuple[Severity, Text]:
        busy = machine()
        fares = health(busy, daemons={"irqbalance": False, "tuned": True}, tuned=tuned)
        wants = profile(("scheduler", Exactly("none")))
        finding = only(found(seen(busy, fares, profile=wants), "tuned-running"))
        return finding.severity, format_finding(finding)

    file = "/etc/tuned/ours/tuned.conf"
    ahead = TunedWrite(file, "queue/read_ahead_kb", "4096")
    severity, text = found_with(TunedProfile("ours", (ahead,)))
    evidence = "tuned is running with the profile ours (it sets read_ahead_kb 4096)"
    assert (severity, text.evidence) == (INFO, evidence)
    assert text.advice.startswith("nothing")
    both = TunedProfile("ours", (ahead, TunedWrite(file, "queue/scheduler", "bfq")))
    severity, text = found_with(both)
    assert severity is ADVICE
    assert text.evidence.endswith(f"which sets what hbatune sets: scheduler ({file})")
    assert "does not set scheduler" in text.advice
    severity, text = found_with(Missing(Reason.UNREADABLE, text="no profile 'x' is found"))
    assert severity is INFO
    assert "could not be read (no profile 'x' is found)" in text.evidence


def test_one_shot_tuned_is_reported() -> None:
    """With daemon = 0 no process remains."""
    server = machine()
    ahead = TunedProfile("ours", (TunedWrite("/x", "queue/read_ahead_kb", "4096"),))
    finding = only(found(seen(server, health(server, tuned=ahead)), "tuned-running"))
    assert format_finding(finding).evidence.startswith("tuned applies, without a daemon, the prof")
    assert not found(seen(server, health(server, tuned=ABSENT)), "tuned-running")


def test_tuned_versus_vendor_is_advice() -> None:
    busy = machine(endpoint(attributes=attributes(queue__read_ahead_kb="128")))
    ahead = TunedWrite("/usr/lib/tuned/mssql/tuned.conf", "queue/read_ahead_kb", ">4096")
    fares = health(
        busy,
        daemons={"irqbalance": False, "tuned": True},
        tuned=TunedProfile("mssql", (ahead,)),
    )
    check_input = seen(busy, fares)
    assert only(found(check_input, "tuned-running")).severity is INFO
    of_acme = Rule("ahead", Match(), "read_ahead_kb", Exactly(128), "so", "V-nimble-rules", "")
    advice = find_advice(busy, [VendorRule(of_acme, "ACME")], Plan("", ()))
    finding = only(found(replace(check_input, advice=advice), "tuned-running"))
    assert finding.severity is ADVICE
    assert "sets what hbatune sets: read_ahead_kb" in format_finding(finding).evidence


def test_iotune_gets_settings_notice() -> None:
    busy = machine()
    fares = health(busy, tools={"iotune": True, "fio": True})
    assert not found(seen(busy, fares), "iotune-installed")
    wants = profile(("nr_requests", Exactly(200)))
    finding = only(found(seen(busy, fares, profile=wants), "iotune-installed"))
    assert finding.severity is INFO
    assert "the profile sets nr_requests" in format_finding(finding).evidence


def test_missing_fio_is_information() -> None:
    bare = machine()
    findings = run_checks(seen(bare, health(bare, tools={"fio": False})))
    assert [finding.id for finding in findings if finding.target == MACHINE_TARGET] == [
        "fio-missing"
    ]


def test_unaware_irqbalance_is_advice() -> None:
    sick = placed(*served("0", "1"))
    place = profile(("irq_affinity", Exactly("local")))

    def severity(**overrides: Any) -> Severity:
        fares = health(sick, daemons={"irqbalance": True}, **overrides)
        return only(found(seen(sick, fares, profile=place), "irqbalance-running")).severity

    assert severity() is ADVICE
    assert severity(irq_policies=("/usr/local/bin/theirs",)) is ADVICE
    assert severity(irq_policies=(str(Paths.irq_policy),)) is INFO
    unplaced = health(sick, daemons={"irqbalance": True})
    assert only(found(seen(sick, unplaced), "irqbalance-running")).severity is INFO


def test_unproven_daemon_is_unknown() -> None:
    sick = placed(*served("0", "1"))
    unproven = Missing(Reason.UNPARSABLE, text="process 400 is not part of irqbalance.service")
    findings = run_checks(
        seen(sick, health(sick, daemons={"irqbalance": unproven, "tuned": DENIED}))
    )
    assert not [finding for finding in findings if finding.id == "irqbalance-running"]
    hidden, unknown = [finding for finding in findings if finding.id == "processes-hidden"]
    assert format_finding(hidden).evidence == "not known whether they run: tuned"
    assert "as root" in format_finding(hidden).advice
    assert format_finding(unknown).evidence == (
        "not known whether they run: irqbalance: process 400 is not part of irqbalance.service"
    )
    assert format_finding(unknown).advice.startswith("run it as irqbalance.service, or stop it")


SHARES = {"io.bfq.weight": ("db.service",), "ionice": ("backup.service",)}


@pytest.mark.parametrize(
    ("scheduler", "unused"),
    [
        ("[none] mq-deadline", "db.service (io.bfq.weight), backup.service (ionice)"),
        ("none [mq-deadline]", "db.service (io.bfq.weight)"),
        ("none mq-deadline [bfq]", None),
    ],
)
def test_unused_weights_name_units(scheduler: str, unused: str | None) -> None:
    server = machine(endpoint(attributes=attributes(queue__scheduler=scheduler)))
    findings = found(seen(server, health(server, io_shares=SHARES)), "io-shares-unused")
    if unused is None:
        assert not findings
        return
    assert (only(findings).severity, only(findings).target) == (INFO, MACHINE_TARGET)
    assert format_finding(only(findings)).evidence.endswith(unused)
    assert not found(seen(server, health(server)), "io-shares-unused")


def test_ignored_elevator_option_is_reported() -> None:
    server = machine()
    finding = only(
        found(seen(server, health(server, elevator="elevator=noop")), "elevator-ignored")
    )
    assert (finding.severity, finding.target) == (ADVICE, MACHINE_TARGET)
    assert "ignores elevator=noop" in format_finding(finding).evidence
    assert not found(seen(server), "elevator-ignored")
