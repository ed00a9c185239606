"""Tests of hbatune/checks/depth_checks.py."""

from typing import Any

from msgspec.structs import replace

from hbatune.checks.finding import Finding
from hbatune.facts.model import Attribute, Machine, Missing, Module
from hbatune.policy.profile import AtLeast, Exactly
from tests.unit.check_inputs import (
    ADVICE,
    INFO,
    WARNING,
    adapters,
    facts,
    format_finding,
    found,
    health,
    only,
    seen,
)
from tests.unit.machines import ABSENT, adapter, attributes, endpoint, host, machine
from tests.unit.profiles import profile


def crowd(count: int, can_queue: int, depth: str = "32") -> Machine:
    small = host(can_queue=can_queue)
    luns = (
        endpoint(target=f"sd{number}", host=small, attributes=attributes(device__queue_depth=depth))
        for number in range(count)
    )
    return machine(*luns, adapters=(adapter(hosts=(small,)),))


def test_starving_limit_is_reported() -> None:
    wants = profile(("queue_depth", AtLeast(64)))
    finding = only(found(seen(crowd(8, 500), profile=wants), "host-depth-share"))
    assert (finding.severity, finding.source) == (WARNING, "D1-2")
    assert facts(finding)["share"] == 62
    assert "raise max_queue_depth" in format_finding(finding).advice
    assert not found(seen(crowd(8, 512), profile=wants), "host-depth-share")


def test_fixed_limit_advises_more_hosts() -> None:
    starved = crowd(8, 500)
    fixed = replace(starved, adapters=(replace(starved.adapters[0], family="ahci"),))
    finding = only(
        found(seen(fixed, profile=profile(("queue_depth", AtLeast(64)))), "host-depth-share")
    )
    assert format_finding(finding).advice == "spread the LUNs over more hosts"


def test_starvation_without_profile_is_info() -> None:
    assert only(found(seen(crowd(8, 200)), "host-depth-share")).severity is INFO
    assert not found(seen(crowd(8, 256)), "host-depth-share")


def test_low_credits_are_reported() -> None:
    sick = machine()

    def findings(value: str, offered: int | Missing) -> list[Finding]:
        loaded = adapters(sick, options={"max_queue_depth": value}, credits={"host0": offered})
        return found(seen(sick, health(sick, **loaded)), "host-credits")

    assert only(findings("1000", 9680)).source == "D4-3"
    assert not findings("-1", 9680)
    assert not findings("9680", 9680)
    assert not findings("1000", ABSENT)
    assert not findings("many", 9680)


def sunk(depth: str, errors: str = "0xb", **overrides: Any) -> Machine:
    """Return a machine with a disk of this depth, which has counted as many errors as a ramp."""
    lowered_attributes = attributes(device__queue_depth=depth, device__ioerr_cnt=errors)
    lowered = endpoint(target="sdb", attributes=lowered_attributes, **overrides)
    return machine(endpoint(family=overrides.get("family", "mpt3sas")), lowered)


def test_sunk_depth_is_reported() -> None:
    finding = only(found(seen(sunk("17")), "depth-sunk"))
    assert (finding.target, facts(finding)["began"], finding.severity) == ("sdb", 254, ADVICE)
    assert not found(seen(sunk("254")), "depth-sunk")
    # The firmware determines the depth: only an equal disk shows it.
    assert only(found(seen(sunk("17", family="mpi3mr")), "depth-sunk")).severity is INFO
    assert not found(seen(sunk("17", family="mpi3mr", model="ANOTHER")), "depth-sunk")
    # Drivers that never lower a depth by themselves.
    assert not found(seen(sunk("17", family="megaraid_sas")), "depth-sunk")
    fibre = machine(
        replace(sunk("31").endpoints[1], family="lpfc"),
        adapters=(adapter(family="lpfc"),),
        modules=(Module("lpfc", {"lpfc_lun_queue_depth": Attribute("64", False)}),),
    )
    finding = only(found(seen(fibre), "depth-sunk"))
    assert (facts(finding)["option"], finding.severity) == ("lpfc_lun_queue_depth", ADVICE)


def test_low_depth_without_errors_blames_no_queue() -> None:
    assert not found(seen(sunk("17", errors="0x0")), "depth-sunk")
    assert not found(seen(sunk("17", errors="0xa")), "depth-sunk")
    assert not found(seen(sunk("17", errors="?")), "depth-sunk")


def test_requested_depth_never_sinks() -> None:
    wants = profile(("queue_depth", Exactly(17)))
    assert "sdb" not in {
        finding.target for finding in found(seen(sunk("17"), profile=wants), "depth-sunk")
    }
