"""Tests of hbatune/checks/error_checks.py."""

from typing import Any

import pytest

from hbatune.checks.finding import Finding, Severity
from hbatune.checks.registry import run_checks
from hbatune.facts.health import ErrorKind
from hbatune.facts.model import Missing, Protocol
from tests.unit.check_inputs import (
    CRITICAL,
    DENIED,
    INFO,
    WARNING,
    disks,
    format_finding,
    found,
    health,
    only,
    seen,
)
from tests.unit.machines import ABSENT, endpoint, machine


def test_command_timeouts_are_reported() -> None:
    sick = machine()
    finding = only(found(seen(sick, health(sick, **disks(sick, timeouts=1))), "command-timeouts"))
    assert (finding.severity, finding.target) == (WARNING, "sda")
    assert format_finding(finding).evidence == "1 of 1000000 commands timed out"
    native = health(sick, **disks(sick, timeouts=ABSENT, logged={ErrorKind.TIMEOUT: 2}))
    text = format_finding(only(found(seen(sick, native), "command-timeouts")))
    assert text.evidence == "2 commands timed out"


def test_unreadable_log_advises_root() -> None:
    sick = machine()
    for log, roots in ((True, False), (DENIED, True), (ABSENT, False)):
        fares = health(sick, **disks(sick, timeouts=1), log=log)
        text = format_finding(only(found(seen(sick, fares), "command-timeouts")))
        assert "journalctl -k -g sda" in text.advice
        assert ("as root" in text.advice) is roots


@pytest.mark.parametrize("errors", [0, 3, 41, 9078])
def test_polling_errors_are_ignored(errors: int) -> None:
    polled = machine()
    fares = health(polled, **disks(polled, errors=errors, done=errors))
    assert {check.id for check in run_checks(seen(polled, fares))} == {"drive-cache"}


@pytest.mark.parametrize(("log", "advice"), [(DENIED, "as root"), (ABSENT, "no action")])
def test_unreadable_log_shows_count(log: Missing, advice: str) -> None:
    polled = machine()

    def findings(errors: int) -> list[Finding]:
        fares = health(polled, **disks(polled, errors=errors), log=log)
        return found(seen(polled, fares), "command-errors")

    assert only(findings(300)).severity is INFO
    assert advice in format_finding(only(findings(300))).advice
    assert not findings(3)


@pytest.mark.parametrize(
    ("fault", "id", "severity"),
    [
        (ErrorKind.MEDIUM, "medium-errors", CRITICAL),
        (ErrorKind.HARDWARE, "medium-errors", CRITICAL),
        (ErrorKind.PROTECTION, "medium-errors", CRITICAL),
        (ErrorKind.SPACE, "space-errors", CRITICAL),
        (ErrorKind.TRANSPORT, "transport-errors", WARNING),
        (ErrorKind.OTHER, "io-errors", WARNING),
        (ErrorKind.TIMEOUT, "command-timeouts", WARNING),
        (ErrorKind.RESET, None, INFO),
    ],
)
def test_failed_io_is_classified(fault: ErrorKind, id: str | None, severity: Severity) -> None:
    sick = machine()
    findings = run_checks(seen(sick, health(sick, **disks(sick, logged={fault: 5}))))
    assert [finding.id for finding in findings] == [*([id] if id else []), "drive-cache"]
    assert findings[0].severity is severity
    assert ("5" in format_finding(findings[0]).evidence) is (id is not None)


def test_failed_io_advice_fits_protocol() -> None:
    def advice(fault: ErrorKind, **overrides: Any) -> str:
        sick = machine(endpoint(**overrides))
        fares = health(sick, **disks(sick, logged={fault: 1}))
        return format_finding(run_checks(seen(sick, fares))[0]).advice

    assert "replace the drive" in advice(ErrorKind.MEDIUM)
    assert "which drive of volume sda" in advice(ErrorKind.MEDIUM, protocol=Protocol.VOLUME)
    assert "connectors of sda" in advice(ErrorKind.TRANSPORT, protocol=Protocol.SAS)
    assert "switch port" in advice(ErrorKind.TRANSPORT, protocol=Protocol.FC)
    assert "below this host" in advice(ErrorKind.TRANSPORT, protocol=Protocol.VIRTIO)


def test_offline_device_is_reported() -> None:
    lost = machine(endpoint(state="transport-offline"))
    finding = only(found(seen(lost), "device-state"))
    assert finding.severity is WARNING
    assert "> /sys/block/sda/device/state" in format_finding(finding).advice
    dead = machine(endpoint(state="dead", address=None, controller="nvme0"))
    assert "nvme0" in format_finding(only(found(seen(dead), "device-state"))).advice
    assert not found(seen(machine(endpoint(state="live"))), "device-state")
