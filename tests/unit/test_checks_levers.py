"""Findings on a driver's own levers, on ports that run slowly, and on arrays' ports."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.checks.finding import CheckInput, Finding, Severity
from hbatune.facts.health import LinkRate
from hbatune.facts.model import Endpoint, Protocol, Storage
from hbatune.facts.observe import parse_gigabits
from hbatune.policy.library import load_arrays
from hbatune.policy.profile import AtLeast
from hbatune.shipped import find_shipped
from tests.unit.checks import adapter_health, facts, format_finding, found, health, seen
from tests.unit.factory import adapter, attributes, endpoint, host, machine
from tests.unit.test_plan import profile

ADAPTER = "0000:01:00.0"
INFO, ADVICE = Severity.INFO, Severity.ADVICE
WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL


def lun(number: int = 0, depth: int = 64, **overrides: Any) -> Endpoint:
    target = f"sd{chr(97 + number)}"
    made = {
        "family": "lpfc",
        "protocol": Protocol.FC,
        "storage": Storage.ARRAY,
        "address": f"0:0:0:{number}",
        "attributes": attributes(device__queue_depth=str(depth)),
    }
    return endpoint(target=target, **{**made, **overrides})


def looked(*luns: Endpoint, family: str = "lpfc", **facts: Any) -> CheckInput:
    it = machine(*luns, adapters=(adapter(family=family),))
    fares = health(it, adapters={ADAPTER: adapter_health(**facts)})
    return replace(seen(it, fares), arrays=load_arrays(find_shipped("rules")))


def only(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


@pytest.mark.parametrize(
    ("inspected", "severity", "words"),
    [
        ({"lpfc_cr_delay": "20", "lpfc_cr_count": "8"}, ADVICE, "up to 20000 µs (lpfc_cr_delay)"),
        ({"lpfc_cr_delay": "20", "lpfc_cr_count": "1"}, None, ""),
        ({"lpfc_cr_delay": "0", "lpfc_cr_count": "8"}, None, ""),
        ({"zio": "Mode 6", "zio_timer": "20000 us"}, ADVICE, "up to 20000 µs (zio)"),
        ({"zio": "Mode 6", "zio_timer": "200 us"}, INFO, "up to 200 µs (zio)"),
        ({"zio": "Disabled", "zio_timer": "20000 us"}, None, ""),
    ],
)
def test_interrupt_coalescing_sets_severity(
    inspected: dict[str, str], severity: Severity | None, words: str
) -> None:
    facts = {f"host0 {name}": text for name, text in inspected.items()}
    findings = found(looked(lun(), inspected=facts), "coalescing-on")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    assert all(
        f"host0: completions wait for company for {words}" in format_finding(finding).evidence
        for finding in findings
    )


def test_perf_mode_coalesces_all_queues() -> None:
    it = looked(lun(), family="mpt3sas", options={"perf_mode": "1"})
    assert format_finding(only(found(it, "coalescing-on"))).evidence == (
        "completions wait for company (perf_mode=1)"
    )
    assert not found(looked(lun(), options={"perf_mode": "0"}), "coalescing-on")


def test_low_target_depth_is_advice() -> None:
    luns = [lun(number) for number in range(4)]
    it = looked(*luns, inspected={"host0 lpfc_tgt_queue_depth": "100"})
    finding = only(found(it, "target-commands"))
    assert (finding.severity, facts(finding)["depths"], facts(finding)["luns"]) == (
        ADVICE,
        256,
        4,
    )
    enough = looked(*luns, inspected={"host0 lpfc_tgt_queue_depth": "256"})
    assert not found(enough, "target-commands")
    elsewhere = [lun(number, address=f"0:0:{number}:0") for number in range(4)]
    assert not found(
        looked(*elsewhere, inspected={"host0 lpfc_tgt_queue_depth": "100"}), "target-commands"
    )


def test_timed_depth_lowering_is_reported() -> None:
    it = looked(lun(), inspected={"host0 lpfc_max_scsicmpl_time": "30"})
    assert "longer than 30 ms" in format_finding(only(found(it, "target-time"))).evidence
    assert not found(looked(lun(), inspected={"host0 lpfc_max_scsicmpl_time": "0"}), "target-time")


@pytest.mark.parametrize(
    ("state", "severity"), [("1", None), ("2", CRITICAL), ("3", WARNING), ("4", CRITICAL)]
)
def test_inactive_adapter_is_reported(state: str, severity: Severity | None) -> None:
    findings = found(looked(family="mpi3mr", inspected={"host0 adp_state": state}), "adapter-state")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


@pytest.mark.parametrize(("offered", "told"), [(9664, False), (20000, True)])
def test_low_can_queue_is_reported(offered: int, told: bool) -> None:
    it = looked(family="mpi3mr", credits={"host0": offered})
    findings = found(it, "host-commands")
    assert bool(findings) is told
    if told:
        assert format_finding(findings[0]).evidence == (
            "host0 takes 9664 commands, and the firmware offers 20000"
        )
        assert "no option for it" in format_finding(findings[0]).advice


def test_slow_ports_are_reported() -> None:
    rates = {"host0": LinkRate(8, 16), "phy-1:0": LinkRate(6, 12), "phy-1:1": LinkRate(6, 12)}
    ports, phys = sorted(
        found(looked(lun(), rates=rates), "port-rate"), key=lambda each: each.severity
    )
    assert (ports.severity, facts(ports)["ports"]) == (ADVICE, ("host0",))
    assert "switch port of host0" in format_finding(ports).advice
    assert (phys.severity, facts(phys)["ports"]) == (INFO, ("phy-1:0", "phy-1:1"))
    assert "at 6 Gbit/s, where 12 are possible" in format_finding(phys).evidence
    assert not found(looked(lun(), rates={"host0": LinkRate(16, 16)}), "port-rate")


def test_port_speeds_are_parsed() -> None:
    assert parse_gigabits("4 Gbit, 8 Gbit, 16 Gbit") == [4, 8, 16]
    assert parse_gigabits("12.0 Gbit") == [12]
    assert parse_gigabits("Unknown") == parse_gigabits("Phy disabled") == []


@pytest.mark.parametrize(
    ("vendor", "model", "luns", "depth", "limit"),
    [
        ("DGC", "VRAID", 26, 64, 1600),  # 1664
        ("DGC", "VRAID", 25, 64, None),  # 1600
        ("HITACHI", "DF600F", 9, 64, 512),
        ("HITACHI", "OPEN-V", 26, 80, 2048),
        ("IBM", "2107900", 26, 255, None),  # no paper that says it
        ("ACME", "BOX", 26, 255, None),
    ],
)
def test_array_port_overload_is_advice(
    vendor: str, model: str, luns: int, depth: int, limit: int | None
) -> None:
    """Nobody has described it in [[site.array]]."""
    port = "0x500601613b240f3a"
    disks = [lun(number, depth, vendor=vendor, model=model, port=port) for number in range(luns)]
    findings = found(looked(*disks), "array-port")
    assert [facts(finding)["limit"] for finding in findings] == ([limit] if limit else [])
    for finding in findings:
        assert (finding.severity, facts(finding)["depths"]) == (ADVICE, luns * depth)
        assert "[[site.array]]" in format_finding(finding).advice


def test_share_counts_current_depth() -> None:
    """15 drives of a depth of 32 on an adapter that takes 253, and a profile that wants 4."""
    serving = host(can_queue=253)
    drives = [
        endpoint(
            target=f"sd{chr(97 + number)}",
            host=serving,
            protocol=Protocol.SPI,
            attributes=attributes(device__queue_depth="32"),
        )
        for number in range(15)
    ]
    it = machine(*drives, adapters=(adapter(hosts=(serving,)),))
    finding = only(
        found(seen(it, profile=profile(("queue_depth", AtLeast(4)))), "host-depth-share")
    )
    assert (finding.severity, facts(finding)["wanted"]) == (INFO, 32)
    assert facts(finding)["share"] == 16
