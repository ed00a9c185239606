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
        audit_host(each, f"{each.machine.hostname}.snap", "balanced") for each in snapshots
    )


def odd(*snapshots: Snapshot) -> list[tuple[str, str, tuple[object, ...], tuple[object, ...]]]:
    found = audited(*snapshots).odd
    return [
        (each.host, each.what, tuple(one.value for one in each.found), each.usual) for each in found
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
        found = host(number)
        more = factory.adapter(target="0000:81:00.0", **second)
        adapters = (*found.machine.adapters, more)
        seen = factory.machine(adapters=adapters, hostname=f"db{number}")
        return snapshot(seen)

    narrow = two(9, link=factory.link(width=1))
    found = audited(*map(two, range(6)), narrow).odd
    assert [(each.host, each.what) for each in found] == [("db9", "link width")]
    assert [(each.value, each.targets) for each in found[0].found] == [
        (1, ("0000:81:00.0",)),
        (8, ("0000:01:00.0",)),
    ]


def test_partial_rollout_has_no_outliers() -> None:
    new = [host(number, adapter={"firmware": "17.00.00.00"}) for number in range(10, 18)]
    assert odd(*map(host, range(10)), *new) == []


def test_odd_hosts_limited_to_tenth() -> None:
    def fleet(others: int) -> list[Snapshot]:
        new = (host(50 + each, adapter={"firmware": "17.00"}) for each in range(others))
        return [*map(host, range(40 - others)), *new]

    assert len(odd(*fleet(4))) == 4
    assert odd(*fleet(5)) == []


def test_majority_needs_two_thirds() -> None:
    def fleet(agreeing: int, others: int) -> list[Snapshot]:
        each = (host(50 + n, adapter={"firmware": f"17.{n}"}) for n in range(others))
        return [*map(host, range(agreeing)), *each]

    assert len(odd(*fleet(8, 4))) == 4
    assert odd(*fleet(7, 4)) == []


def test_two_hosts_have_no_outlier() -> None:
    other = host(2, adapter={"firmware": "17.00"})
    assert odd(host(1), other) == []
    assert [each[0] for each in odd(host(0), host(1), other)] == ["db2"]


def test_different_adapters_separate_groups() -> None:
    raid = factory.adapter(family="megaraid_sas", product="MR 9560", firmware="5.1")
    others = [
        host(number, adapter={"family": raid.family, "product": raid.product, "firmware": "5.1"})
        for number in range(20, 24)
    ]
    found = audited(*map(host, range(8)), *others)
    assert [(each.adapters, len(each.hosts)) for each in found.groups] == [
        (("HBA 9300-8i",), 8),
        (("MR 9560",), 4),
    ]
    assert found.odd == ()


def test_lost_adapter_is_named() -> None:
    second = factory.adapter(target="0000:81:00.0", family="megaraid_sas", product="MR 9560")

    def two(number: int) -> Snapshot:
        adapters = (factory.adapter(), second)
        return snapshot(factory.machine(adapters=adapters, hostname=f"db{number}"))

    other = factory.adapter(family="qla2xxx", product="QLE2742")
    stranger = snapshot(factory.machine(adapters=(other,), hostname="san1"))
    found = audited(*map(two, range(6)), host(9), stranger)
    assert [(each.host, each.group, each.lacks) for each in found.lone] == [
        ("db9", 1, ("MR 9560",)),
        ("san1", None, ()),
    ]
    assert describe_nearest(found.lone[0]) == "group 1 is nearest: it lacks MR 9560"
    assert audited(*map(two, range(6))).lone == ()


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
        found = tuple(factory.endpoint(target=f"sd{chr(97 + each)}") for each in range(count))
        return snapshot(factory.machine(*found, hostname=f"db{number}"))

    assert odd(*(disks(each, 4) for each in range(5)), disks(9, 3)) == [
        ("db9", "disks", (3,), (4,))
    ]


def test_groups_ignore_host_order() -> None:
    hosts = [
        (f"db{number}", audit_host(host(number), f"{number}", "balanced")) for number in range(5)
    ]
    forwards, backwards = group_peers(hosts), group_peers(hosts[::-1])
    assert {frozenset(each.hosts) for each in forwards} == {
        frozenset(each.hosts) for each in backwards
    }
    assert find_outliers(forwards, hosts) == ()
