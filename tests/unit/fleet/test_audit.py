"""The odd ones out among alike hosts: those that differ from nearly all others, and no more."""

import pytest

from hbatune.facts.model import Attribute, Missing, Reason
from hbatune.fleet.audit import Audit, audit_fleet, find_outliers, group_peers
from hbatune.fleet.hosts import audit_host
from hbatune.snapshot.file import Snapshot
from hbatune.text.fleet_tables import describe_nearest
from tests.unit import machines as factory
from tests.unit.fleets import depth, host
from tests.unit.snapshots import snapshot


def audited(*snapshots: Snapshot) -> Audit:
    return audit_fleet(
        audit_host(host_snapshot, f"{host_snapshot.machine.hostname}.snap", "balanced")
        for host_snapshot in snapshots
    )


def odd(*snapshots: Snapshot) -> list[tuple[str, str, tuple[object, ...], tuple[object, ...]]]:
    outliers = audited(*snapshots).odd
    return [
        (outlier.host, outlier.what, tuple(value.value for value in outlier.found), outlier.usual)
        for outlier in outliers
    ]


def test_odd_hosts_show_difference() -> None:
    narrow = host(10, adapter={"link": factory.link(width=4)})
    old = host(11, adapter={"firmware": "15.00.00.00"})
    shallow = host(12, **depth(32))
    assert odd(*map(host, range(10)), narrow, old, shallow) == [
        ("db10", "link width", (4,), (8,)),
        ("db11", "firmware", ("15.00.00.00",), ("16.00.12.00",)),
        ("db12", "queue_depth", (32,), (254,)),
    ]


def test_single_odd_adapter_suffices() -> None:
    def two(number: int, **second: object) -> Snapshot:
        base = host(number)
        more = factory.adapter(target="0000:81:00.0", **second)
        adapters = (*base.machine.adapters, more)
        changed = factory.machine(adapters=adapters, hostname=f"db{number}")
        return snapshot(changed)

    narrow = two(9, link=factory.link(width=1))
    outliers = audited(*map(two, range(6)), narrow).odd
    assert [(outlier.host, outlier.what) for outlier in outliers] == [("db9", "link width")]
    assert [(value.value, value.targets) for value in outliers[0].found] == [
        (1, ("0000:81:00.0",)),
        (8, ("0000:01:00.0",)),
    ]


def test_partial_rollout_has_no_outliers() -> None:
    new = [host(number, adapter={"firmware": "17.00.00.00"}) for number in range(10, 18)]
    assert odd(*map(host, range(10)), *new) == []


def test_odd_hosts_limited_to_tenth() -> None:
    def fleet(upgraded: int) -> list[Snapshot]:
        new = (host(50 + number, adapter={"firmware": "17.00"}) for number in range(upgraded))
        return [*map(host, range(40 - upgraded)), *new]

    assert len(odd(*fleet(4))) == 4
    assert odd(*fleet(5)) == []


def test_majority_needs_two_thirds() -> None:
    def fleet(agreeing: int, outlier_count: int) -> list[Snapshot]:
        outliers = (host(50 + n, adapter={"firmware": f"17.{n}"}) for n in range(outlier_count))
        return [*map(host, range(agreeing)), *outliers]

    assert len(odd(*fleet(8, 4))) == 4
    assert odd(*fleet(7, 4)) == []


def test_two_hosts_have_no_outlier() -> None:
    upgraded_host = host(2, adapter={"firmware": "17.00"})
    assert odd(host(1), upgraded_host) == []
    assert [outlier[0] for outlier in odd(host(0), host(1), upgraded_host)] == ["db2"]


def test_different_adapters_separate_groups() -> None:
    raid = factory.adapter(family="megaraid_sas", product="MR 9560", firmware="5.1")
    raid_hosts = [
        host(number, adapter={"family": raid.family, "product": raid.product, "firmware": "5.1"})
        for number in range(20, 24)
    ]
    audit = audited(*map(host, range(8)), *raid_hosts)
    assert [(group.adapters, len(group.hosts)) for group in audit.groups] == [
        (("HBA 9300-8i",), 8),
        (("MR 9560",), 4),
    ]
    assert audit.odd == ()


def test_lost_adapter_is_named() -> None:
    second = factory.adapter(target="0000:81:00.0", family="megaraid_sas", product="MR 9560")

    def two(number: int) -> Snapshot:
        adapters = (factory.adapter(), second)
        return snapshot(factory.machine(adapters=adapters, hostname=f"db{number}"))

    fc_adapter = factory.adapter(family="qla2xxx", product="QLE2742")
    stranger = snapshot(factory.machine(adapters=(fc_adapter,), hostname="san1"))
    audit = audited(*map(two, range(6)), host(9), stranger)
    assert [(lone_host.host, lone_host.group, lone_host.lacks) for lone_host in audit.lone] == [
        ("db9", 1, ("MR 9560",)),
        ("san1", None, ()),
    ]
    assert describe_nearest(audit.lone[0]) == "group 1 is nearest: it lacks MR 9560"
    assert audited(*map(two, range(6))).lone == ()


def test_lone_host_has_its_own_models() -> None:
    def with_drive(number: int, model: str) -> Snapshot:
        return host(number, adapter={"family": "nvme", "product": model})

    audit = audited(with_drive(1, "DRIVE A"), with_drive(2, "DRIVE B"))
    assert [lone_host.adapters for lone_host in audit.lone] == [("DRIVE A",), ("DRIVE B",)]
    assert audit.groups[0].adapters == ("DRIVE A or DRIVE B",)
    known = [with_drive(number, "DRIVE A") for number in range(3, 6)]
    second = factory.adapter(target="0000:81:00.0", family="megaraid_sas", product="MR 9560")
    lone = snapshot(
        factory.machine(
            adapters=(factory.adapter(family="nvme", product="DRIVE B"), second), hostname="db9"
        )
    )
    [stranger] = audited(*known, lone).lone
    assert (stranger.lacks, stranger.besides) == ((), ("MR 9560",))


def test_unreadable_value_is_odd() -> None:
    blind = host(7, adapter={"firmware": Missing(Reason.UNREADABLE, 5)})
    assert odd(*map(host, range(7)), blind) == [("db7", "firmware", (None,), ("16.00.12.00",))]


@pytest.mark.parametrize(
    ("depth", "outliers"),
    [
        (Missing(Reason.UNREADABLE, 5), [("db7", "queue_depth", (None,), (254,))]),
        (Attribute("many", True), [("db7", "queue_depth", (None,), (254,))]),
        (Missing(Reason.ABSENT), []),
    ],
)
def test_unread_setting_is_outlier(depth: Attribute | Missing, outliers: list[object]) -> None:
    attributes = {**factory.endpoint().attributes, "device/queue_depth": depth}
    assert odd(*map(host, range(7)), host(7, attributes=attributes)) == outliers


def test_missing_disk_is_odd() -> None:
    def disks(number: int, count: int) -> Snapshot:
        endpoints = tuple(
            factory.endpoint(target=f"sd{chr(97 + position)}") for position in range(count)
        )
        return snapshot(factory.machine(*endpoints, hostname=f"db{number}"))

    assert odd(*(disks(number, 4) for number in range(5)), disks(9, 3)) == [
        ("db9", "disks", (3,), (4,))
    ]


def test_groups_ignore_host_order() -> None:
    hosts = {
        f"db{number}": audit_host(host(number), f"{number}", "balanced") for number in range(5)
    }
    forwards, backwards = group_peers(hosts), group_peers(dict(reversed(hosts.items())))
    assert {frozenset(forward.hosts) for forward in forwards} == {
        frozenset(backward.hosts) for backward in backwards
    }
    assert find_outliers(forwards, hosts) == ()
