"""Tests of hbatune/checks/registry.py."""

from hbatune.checks.registry import CHECKS, is_clean, run_checks
from hbatune.facts.health import Errors
from hbatune.policy.library import load_sources
from hbatune.shipped import find_shipped
from tests.unit.check_inputs import CRITICAL, INFO, WARNING, adapters, disks, health, seen
from tests.unit.machines import machine


def test_healthy_machine_is_clean() -> None:
    findings = run_checks(seen(machine()))
    assert is_clean(findings)
    assert [finding.id for finding in findings] == ["drive-cache"]


def test_checks_have_valid_sources() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    unknown = {check.source for check in CHECKS} - set(load_sources(find_shipped("rules")))
    assert not unknown, "add the sources to rules/sources.toml"


def test_gravest_findings_come_first() -> None:
    sick = machine()
    fares = health(
        sick,
        **adapters(sick, errors=Errors(0, 0, 1)),
        **disks(sick, timeouts=1),
        tools={"fio": False},
    )
    order = [finding.severity for finding in run_checks(seen(sick, fares))]
    assert order == [CRITICAL, WARNING, INFO, INFO]
