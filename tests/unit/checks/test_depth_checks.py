"""Tests of hbatune/checks/depth_checks.py."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.checks.finding import Finding
from hbatune.facts.model import (
    Attribute,
    Endpoint,
    Kind,
    Machine,
    Missing,
    Module,
    PathGroup,
    Reason,
)
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


OPTIMIZED, RESERVE = "active/optimized", "active/non-optimized"


def mapped(number: int, *groups: str, access: dict[str, str | Missing]) -> list[Endpoint]:
    """Return a map and its paths; a group names the adapters of its paths, the first is active."""
    paths = [
        endpoint(
            target=f"sd{number}{name}",
            adapter=name,
            kind=Kind.PATH,
            map=f"dm-{number}",
            access=access.get(name, ABSENT),
        )
        for group in groups
        for name in group
    ]
    path_groups = []
    for group in groups:
        names = tuple(f"sd{number}{name}" for name in group)
        path_groups.append(PathGroup("service-time", group is groups[0], names))
    map_ = endpoint(
        target=f"dm-{number}",
        adapter=None,
        kind=Kind.MAP,
        paths=tuple(path.target for path in paths),
        path_groups=tuple(path_groups),
    )
    return [*paths, map_]


@pytest.mark.parametrize(
    ("groups", "access", "idle"),
    [
        (("a", "b"), {}, ("b",)),
        (("ab",), {}, ()),
        (("a", "b"), {"a": OPTIMIZED, "b": RESERVE}, ()),
        (("a", "b", "c"), {"a": OPTIMIZED, "b": RESERVE, "c": OPTIMIZED}, ("c",)),
        (("ab", "ab"), {}, ()),
        (("a", "b"), {"a": OPTIMIZED}, ()),  # one state is unknown
    ],
)
def test_idle_adapter_is_advice(
    groups: tuple[str, ...], access: dict[str, str | Missing], idle: tuple[str, ...]
) -> None:
    findings = found(seen(machine(*mapped(1, *groups, access=access))), "map-balance")
    assert [facts(finding)["idle"] for finding in findings] == ([idle] if idle else [])
    for finding in findings:
        assert (finding.severity, finding.source, finding.target) == (ADVICE, "D2-7", "dm-1")
        assert f"no I/O of dm-1 uses {idle[0]}" in format_finding(finding).evidence


def test_maps_share_adapters() -> None:
    same = [*mapped(1, "a", "b", access={}), *mapped(2, "a", "b", access={})]
    finding = only(found(seen(machine(*same)), "map-balance"))
    assert (finding.target, facts(finding)["maps"]) == ("machine", ("dm-1", "dm-2"))
    turned = [*mapped(1, "a", "b", access={}), *mapped(2, "b", "a", access={})]
    assert not found(seen(machine(*turned)), "map-balance")


def test_unread_path_groups_are_no_finding() -> None:
    denied = Missing(Reason.UNREADABLE, 13)
    *paths, map_ = mapped(1, "a", "b", access={})
    unread = seen(machine(*paths, replace(map_, path_groups=denied)))
    assert not found(unread, "map-balance")
    assert facts(only(found(unread, "disk-unread")))["facts"] == ("multipath table",)
