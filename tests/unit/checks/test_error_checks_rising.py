"""Counters of errors: what rose since they were looked at before, and what is remembered."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act.marks import load_counted, save_counted
from hbatune.act.paths import Paths
from hbatune.checks.finding import CheckInput, Severity
from hbatune.checks.registry import run_checks
from hbatune.cli import main
from hbatune.facts.health import (
    ErrorCounters,
    ErrorKind,
    Errors,
    Health,
    Root,
    collect_counters,
)
from hbatune.facts.model import Kind
from hbatune.snapshot.anonymous import anonymise_snapshot
from hbatune.snapshot.file import encode_snapshot
from tests.unit.check_inputs import (
    adapter_health,
    disk_health,
    facts,
    format_finding,
    found,
    health,
    port,
    seen,
)
from tests.unit.machines import ABSENT, endpoint, machine
from tests.unit.snapshots import snapshot

HOST = machine()
[DISK], [CARD] = HOST.endpoints, HOST.adapters


def fares(
    failed: int = 0, timeouts: int = 0, logged: dict[str, int] | None = None, **adapter: Any
) -> Health:
    disk = disk_health(errors=failed, timeouts=timeouts, logged=logged or {})
    return health(
        HOST,
        disks={DISK.target: disk},
        adapters={CARD.target: adapter_health(**adapter)},
    )


def build_input(before: Health, current: Health, *, seconds: int = 3600) -> CheckInput:
    """Build the input of a check whose earlier counters are ``seconds`` old."""
    return replace(
        seen(HOST, current),
        counted=collect_counters(HOST, current, 1_000_000 + seconds),
        earlier=collect_counters(HOST, before, 1_000_000),
    )


def test_rise_shows_range_and_time() -> None:
    [finding] = found(build_input(fares(timeouts=2), fares(timeouts=5)), "counters-rising")
    assert (finding.target, finding.severity) == (DISK.target, Severity.WARNING)
    assert format_finding(finding).evidence == "timeouts: from 2 to 5 within 60 minutes"


def test_link_errors_rise_at_adapter() -> None:
    current = fares(errors=Errors(7, ABSENT, 0), link_errors={"host0 invalid_crc_count": 3})
    findings = found(build_input(fares(errors=Errors(2, ABSENT, 0)), current), "counters-rising")
    assert {
        (finding.target, facts(finding)["counter"], facts(finding)["was"]) for finding in findings
    } == {
        (CARD.target, "correctable", 2),
        (CARD.target, "host0 invalid_crc_count", 0),
    }
    assert {finding.severity for finding in findings} == {Severity.ADVICE}


def test_counter_set_to_zero_rises_again() -> None:
    assert not found(build_input(fares(timeouts=9), fares()), "counters-rising")
    [finding] = found(build_input(fares(timeouts=9), fares(timeouts=5)), "counters-rising")
    assert format_finding(finding).evidence == "timeouts: from 0 to 5 within 60 minutes"


def test_old_timeouts_lose_severity() -> None:
    old = fares(failed=100, timeouts=2)
    assert not found(build_input(old, old), "counters-rising")
    assert [e.severity for e in found(build_input(old, old), "command-timeouts")] == [Severity.INFO]
    assert [e.severity for e in found(seen(HOST, old), "command-timeouts")] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("fault", "id", "new_severity", "old_severity"),
    [
        (ErrorKind.MEDIUM, "medium-errors", Severity.CRITICAL, Severity.WARNING),
        (ErrorKind.SPACE, "space-errors", Severity.CRITICAL, Severity.WARNING),
        (ErrorKind.TRANSPORT, "transport-errors", Severity.WARNING, Severity.INFO),
        (ErrorKind.OTHER, "io-errors", Severity.WARNING, Severity.INFO),
        (ErrorKind.TIMEOUT, "command-timeouts", Severity.WARNING, Severity.INFO),
    ],
)
def test_old_failures_lose_severity(
    fault: ErrorKind, id: str, new_severity: Severity, old_severity: Severity
) -> None:
    old, more = fares(logged={fault: 2}), fares(logged={fault: 3})
    assert [finding.severity for finding in found(build_input(old, more), id)] == [new_severity]
    assert [finding.severity for finding in found(build_input(old, old), id)] == [old_severity]
    # Messages that the log has lost since are no news.
    assert [finding.severity for finding in found(build_input(more, old), id)] == [old_severity]
    assert not found(build_input(old, more), "counters-rising")


def test_polling_errors_are_ignored() -> None:
    findings = run_checks(build_input(fares(failed=1), fares(failed=9078)))
    assert {finding.id for finding in findings} == {"drive-cache"}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("host0 invalid_crc_count", "transceiver at host0"),
        ("phy-0:3 invalid_dword_count", "transceiver at phy-0:3"),
    ],
)
def test_rise_advice_names_place(name: str, advice: str) -> None:
    [finding] = found(build_input(fares(), fares(link_errors={name: 3})), "counters-rising")
    assert advice in format_finding(finding).advice
    [finding] = found(build_input(fares(), fares(errors=Errors(3, 0, 0))), "counters-rising")
    assert "slot and riser of 0000:01:00.0" in format_finding(finding).advice
    [finding] = found(build_input(fares(), fares(timeouts=3)), "counters-rising")
    assert "-g sda" in format_finding(finding).advice


def test_old_corrections_lose_severity() -> None:
    def severities(before: Health | None, current: Health) -> list[Severity]:
        check_input = build_input(before, current) if before else seen(HOST, current)
        return [finding.severity for finding in found(check_input, "pcie-errors")]

    noisy = port(errors=Errors(5, 0, 0))
    root = Root("0000:00:01.0", Errors(6, 0, 0))
    old = fares(errors=Errors(3, 0, 0), port=noisy, root=root)
    assert severities(None, old) == [Severity.ADVICE]
    assert severities(old, old) == [Severity.INFO]
    for more in (
        fares(errors=Errors(4, 0, 0), port=noisy, root=root),
        fares(errors=Errors(3, 0, 0), port=port(errors=Errors(6, 0, 0)), root=root),
        fares(errors=Errors(3, 0, 0), port=noisy, root=Root(root.address, Errors(7, 0, 0))),
    ):
        assert severities(old, more) == [Severity.ADVICE]
    # What was not corrected stays a reason to look.
    bad = fares(errors=Errors(3, 1, 0))
    assert severities(bad, bad) == [Severity.WARNING]


def test_root_port_rise_is_ignored() -> None:
    current = fares(root=Root("0000:00:01.0", Errors(6, 1, 0)))
    assert not found(build_input(fares(), current), "counters-rising")
    current = fares(port=port(errors=Errors(0, 1, 0)))
    [finding] = found(build_input(fares(), current), "counters-rising")
    assert (facts(finding)["counter"], finding.severity) == ("port nonfatal", Severity.WARNING)
    assert "slot and riser of 0000:01:00.0" in format_finding(finding).advice


def test_damaged_counters_are_empty(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    assert load_counted(file) == ()
    file.write_bytes(b"[{")
    assert load_counted(file) == ()
    save_counted(file, [ErrorCounters("b", 5, {})])
    assert load_counted(file) == (ErrorCounters("b", 5, {}),)


def test_check_reports_rise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def check(health: Health, timestamp: int) -> str:
        stored = list(tmp_path.rglob("*"))
        looks = load_counted(Paths.counters)
        host_snapshot = replace(snapshot(HOST), health=health, taken=timestamp, looks=looks)
        monkeypatch.setattr(
            "hbatune.operations.snapshot._read_host", lambda context, config: (host_snapshot,)
        )
        main(["check"])
        assert list(tmp_path.rglob("*")) == stored, "it writes no file"
        return capsys.readouterr().out

    assert "from" not in check(fares(timeouts=1), 1_000_000)
    assert "from" not in check(fares(timeouts=4), 1_001_200), "only the daemon stores counters"
    Paths.counters.parent.mkdir(parents=True)
    save_counted(Paths.counters, [collect_counters(HOST, fares(timeouts=1), 1_000_000)])
    assert "timeouts: from 1 to 4 within 20 minutes" in check(fares(timeouts=4), 1_001_200)


def test_snapshots_show_rise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, timeouts, timestamp in (("old", 1, 1_000_000), ("new", 4, 1_001_200)):
        host_snapshot = replace(snapshot(HOST), health=fares(timeouts=timeouts), taken=timestamp)
        (tmp_path / name).write_bytes(encode_snapshot(host_snapshot))
    main(["check", "--snapshot", str(tmp_path / "new"), "--since", str(tmp_path / "old")])
    assert "timeouts: from 1 to 4 within 20 minutes" in capsys.readouterr().out
    assert main(["check", "--since", str(tmp_path / "old")]) == 2


def test_snapshots_show_lost_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A snapshot of an earlier boot counts as well."""
    for name, boot, slaves in (("old", "b", ("sda", "sdb")), ("new", "c", ("sda",))):
        joined = endpoint(target="dm-0", id="wwn-1", kind=Kind.MAP, paths=slaves)
        members = [endpoint(target=slave, kind=Kind.PATH, map="dm-0") for slave in slaves]
        server = replace(HOST, boot_id=boot, endpoints=(joined, *members))
        (tmp_path / name).write_bytes(encode_snapshot(snapshot(server)))
    command = ["check", "--snapshot", str(tmp_path / "new")]
    for arguments, severity in (([], "advice"), (["--since", str(tmp_path / "old")], "warning")):
        assert main([*command, *arguments, "--json"]) == 1
        findings = json.loads(capsys.readouterr().out)["findings"]
        [finding] = [finding for finding in findings if finding["id"] == "map-paths"]
        assert (finding["severity"], finding["target"]) == (severity, "dm-0")


def test_anonymous_snapshot_drops_counters() -> None:
    host_snapshot = replace(
        snapshot(HOST), looks=(ErrorCounters("b", 5, {DISK.id: {"errors": 1}}),)
    )
    assert anonymise_snapshot(host_snapshot).looks == ()
