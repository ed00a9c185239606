"""Checks of udev rules that did not take effect."""

import pytest

from hbatune.facts.health import UdevDisks, UdevRule
from hbatune.facts.udev import UnsetSetting
from hbatune.policy.profile import Exactly
from tests.unit.check_inputs import INFO, WARNING, facts, format_finding, found, health, only, seen
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import profile

FILE = "/usr/lib/udev/rules.d/60-io.rules"
SLOW = UdevDisks(("sd*",), True)
FAST = UdevDisks(("sd[a-z]", "vd*"), False)


def rule(value: str, disks: UdevDisks | None, attribute: str = "queue/scheduler") -> UdevRule:
    return UdevRule(FILE, 7, attribute, value, (), disks)


def test_unset_settings_are_reported() -> None:
    texts = attributes(queue__scheduler="[none] mq-deadline", queue__nomerges="0")
    two = machine(endpoint(attributes=texts), endpoint(target="sdb", attributes=texts))
    unset = (
        UnsetSetting("sda", "scheduler", "busy"),
        UnsetSetting("sda", "nr_requests", "busy"),
        UnsetSetting("sda", "nomerges", "commands"),
    )
    wants = profile(("scheduler", Exactly("mq-deadline")), ("nomerges", Exactly(1)))
    findings = found(seen(two, health(two, unset=unset), profile=wants), "boot-unset")
    assert [(finding.target, finding.severity) for finding in findings] == [("sda", WARNING)] * 2
    assert facts(findings[0]) == {"settings": ("scheduler",), "reason": "busy"}
    assert format_finding(findings[0]).evidence.endswith(
        "could not set scheduler as the disk appeared: the kernel refused it for 5 s, because "
        "other disks of the adapter were being set"
    )
    assert facts(findings[1]) == {"settings": ("nomerges",), "reason": "commands"}


def test_repaired_setting_is_no_finding() -> None:
    one = machine(endpoint(attributes=attributes(queue__scheduler="none [mq-deadline] kyber")))
    unset = (UnsetSetting("sda", "scheduler", "busy"),)
    wants = profile(("scheduler", Exactly("mq-deadline")))
    assert found(seen(one, health(one, unset=unset), profile=wants), "boot-unset") == []


def test_unstarted_program_is_reported() -> None:
    one = machine()
    unset = (UnsetSetting("sda", None, "unstarted"),)
    wants = profile(("scheduler", Exactly("mq-deadline")))
    finding = only(found(seen(one, health(one, unset=unset), profile=wants), "boot-unset"))
    assert facts(finding) == {"settings": ("scheduler",), "reason": None}
    assert "hbatune install" in format_finding(finding).advice


def test_lost_distribution_rule_is_reported() -> None:
    disks = [
        endpoint(target="sda", attributes=attributes(queue__scheduler="none [mq-deadline] kyber")),
        endpoint(target="sdb", attributes=attributes(queue__scheduler="[none] mq-deadline kyber")),
        endpoint(target="sdc", attributes=attributes(queue__scheduler="none [mq-deadline] kyber")),
    ]
    three = machine(*disks)
    finding = only(found(seen(three, health(three, udev_rules=(rule("none", FAST),))), LOST))
    assert finding.severity is INFO
    assert facts(finding) == {
        "setting": "scheduler",
        "value": "none",
        "file": FILE,
        "line": 7,
        "disks": ("sda", "sdc"),
    }
    assert "trigger --action=add /dev/sda /dev/sdc" in format_finding(finding).advice


LOST = "udev-rule-lost"


@pytest.mark.parametrize(
    "rules",
    [
        (rule("none", SLOW),),  # for other disks
        (rule("none", None),),  # perhaps for other disks
        (rule("none", UdevDisks(())),),  # for another event
        (rule("none", FAST), rule("mq-deadline", FAST)),  # the last one decides
        (rule("none", FAST), rule("bfq", None)),  # and perhaps does
        (rule("junk", FAST, "queue/nr_requests"),),
        (rule("64", FAST, "queue/read_ahead_kb"),),  # no lock is in its way
    ],
)
def test_other_rules_are_no_finding(rules: tuple[UdevRule, ...]) -> None:
    one = machine(endpoint(attributes=attributes(queue__scheduler="none [mq-deadline] kyber")))
    assert found(seen(one, health(one, udev_rules=rules)), LOST) == []


def test_planned_setting_hides_other_rules() -> None:
    one = machine(endpoint(attributes=attributes(queue__scheduler="none [mq-deadline] kyber")))
    wants = profile(("scheduler", Exactly("mq-deadline")))
    fares = health(one, udev_rules=(rule("none", FAST),))
    assert found(seen(one, fares, profile=wants), LOST) == []
