from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.facts.model import (
    CpuRestriction,
    Endpoint,
    Kind,
    Machine,
    Medium,
    Missing,
    Processors,
    Protocol,
    Reason,
    Storage,
)
from hbatune.facts.processors import with_probing
from hbatune.probe.result import Skip
from hbatune.probe.selection import Selection, choose_representatives, list_subjects
from tests.unit.machines import adapter, endpoint, machine, vector

ONE, TWO = "0000:01:00.0", "0000:02:00.0"


def choose(*endpoints: Endpoint, shared: bool = False, busy: Sequence[str] = ()) -> Selection:
    """Choose among all of these endpoints."""
    names = {disk.target for disk in endpoints}
    return choose_representatives(host(*endpoints), names, shared=shared, busy=busy)


def host(*endpoints: Endpoint) -> Machine:
    """Return a machine with two adapters."""
    return machine(*endpoints, adapters=(adapter(target=ONE), adapter(target=TWO)))


def chosen(selection: Selection) -> list[str]:
    """Return the names of what is to be probed."""
    return [subject.target for subject in selection.subjects]


def test_identical_disks_share_one_probe() -> None:
    selection = choose(
        endpoint(target="sdb"),
        endpoint(target="sda"),
        endpoint(target="sdc", adapter=TWO),
        endpoint(target="sdd", medium=Medium.HDD),
        endpoint(target="sde", model="other"),
    )
    assert chosen(selection) == ["sda", "sdc", "sdd", "sde"]
    assert selection.skipped == ()


def test_untouched_disk_is_not_probed() -> None:
    selection = choose_representatives(
        machine(endpoint(target="sda"), endpoint(target="sdb")), {"sdb"}
    )
    assert chosen(selection) == ["sdb"]


def test_adapter_change_selects_endpoints() -> None:
    selection = choose_representatives(
        machine(endpoint(), endpoint(target="sdb", adapter=TWO)), {TWO}
    )
    assert chosen(selection) == ["sdb"]


def test_idle_unmounted_disk_is_preferred() -> None:
    disks = (
        endpoint(target="sda", mounts=("/",)),
        endpoint(target="sdb", holders=("md0",)),
        endpoint(target="sdc"),
        endpoint(target="sdaa"),
    )
    assert chosen(choose(*disks)) == ["sdc"]
    assert chosen(choose(*disks, busy=["sdc"])) == ["sdaa"]
    assert chosen(choose(*disks, busy=["sdc", "sdaa"])) == ["sdb"]
    assert chosen(choose(*disks[:1])) == ["sda"]


def head_and_paths(protocol: Protocol = Protocol.NVME) -> tuple[Endpoint, ...]:
    """Return one namespace over two controllers, hidden paths first."""
    paths = tuple(
        endpoint(
            target=name,
            kind=Kind.PATH,
            adapter=where,
            map="nvme0n1",
            protocol=protocol,
            device_node=None,
        )
        for name, where in (("nvme0c0n1", ONE), ("nvme0c1n1", TWO))
    )
    head = endpoint(
        target="nvme0n1",
        kind=Kind.MAP,
        adapter=None,
        protocol=protocol,
        paths=("nvme0c0n1", "nvme0c1n1"),
    )
    return (*paths, head)


def test_multipath_head_replaces_paths() -> None:
    first, second, head = head_and_paths()
    for targets in ({first.target}, {first.target, second.target}, {head.target}, {TWO}):
        (subject,) = choose_representatives(host(first, second, head), targets).subjects
        assert subject.endpoint == head
        assert subject.paths == (first, second)
        assert [hba.target for hba in subject.adapters] == [ONE, TWO]


def test_mapless_path_is_skipped() -> None:
    first, *_ = head_and_paths()
    (skipped,) = choose(first).skipped
    assert skipped.reason is Skip.NO_NODE


@pytest.mark.parametrize("protocol", [Protocol.FC, Protocol.ISCSI])
def test_shared_array_needs_consent(protocol: Protocol) -> None:
    lun = endpoint(protocol=protocol)
    (skipped,) = choose(lun).skipped
    assert (skipped.reason, skipped.detail) == (Skip.NOT_ASKED, protocol.value)
    assert chosen(choose(lun, shared=True)) == ["sda"]


@pytest.mark.parametrize("storage", [Storage.ARRAY, Storage.FABRIC])
def test_remote_arrays_need_consent(storage: Storage) -> None:
    lun = endpoint(storage=storage)
    (skipped,) = choose(lun).skipped
    assert (skipped.reason, skipped.detail) == (Skip.NOT_ASKED, storage.value)
    assert chosen(choose(lun, shared=True)) == ["sda"]


@pytest.mark.parametrize("protocol", [Protocol.UNKNOWN, Protocol.FC, Protocol.VIRTUAL])
def test_fc_map_counts_as_shared(protocol: Protocol) -> None:
    first, second, _ = head_and_paths(Protocol.FC)
    top = endpoint(
        target="nvme0n1", kind=Kind.MAP, protocol=protocol, paths=("nvme0c0n1", "nvme0c1n1")
    )
    (skipped,) = choose(first, second, top).skipped
    assert skipped.reason is Skip.NOT_ASKED
    assert chosen(choose(first, second, top, shared=True)) == ["nvme0n1"]


UNREADABLE = Missing(Reason.UNREADABLE, errno=5)
REFUSED = [
    ({"protocol": Protocol.UNKNOWN}, Skip.UNCLASSIFIED),
    ({"zoned": True}, Skip.ZONED),
    ({"state": "offline"}, Skip.NOT_RUNNING),
    ({"state": UNREADABLE}, Skip.UNREADABLE),
    ({"zoned": UNREADABLE}, Skip.UNREADABLE),
    ({"size": Missing(Reason.VANISHED)}, Skip.UNREADABLE),
    ({"size": Missing(Reason.ABSENT)}, Skip.NO_SIZE),
    ({"size": 0}, Skip.NO_SIZE),
    ({"device_node": None}, Skip.NO_NODE),
]


@pytest.mark.parametrize(("facts", "reason"), REFUSED)
def test_unprobeable_disk_gives_reason(facts: dict[str, object], reason: Skip) -> None:
    selection = choose(endpoint(**facts))
    assert [skip.reason for skip in selection.skipped] == [reason]
    assert selection.subjects == ()


@pytest.mark.parametrize(("facts", "reason"), REFUSED)
def test_similar_disk_is_substituted(facts: dict[str, object], reason: Skip) -> None:
    selection = choose(endpoint(target="sda", **facts), endpoint(target="sdb"))
    assert chosen(selection) == ["sdb"]
    assert selection.skipped == ()


def test_stateless_map_is_probed() -> None:
    absent = Missing(Reason.ABSENT)
    assert chosen(choose(endpoint(state=absent, zoned=absent))) == ["sda"]


def test_unprobeable_group_appears_once() -> None:
    disks = [endpoint(target=f"sd{letter}", zoned=True) for letter in "bcad"]
    (skipped,) = choose(*disks).skipped
    assert skipped.target == "sda"


DISKS = st.lists(
    st.builds(
        lambda number, where, medium, model, protocol, zoned, size: endpoint(
            target=f"sd{number}",
            adapter=where,
            medium=medium,
            model=model,
            protocol=protocol,
            zoned=zoned,
            size=size,
        ),
        st.integers(0, 300),
        st.sampled_from([ONE, TWO, None]),
        st.sampled_from(Medium),
        st.sampled_from(["a", "b", ""]),
        st.sampled_from(Protocol),
        st.booleans(),
        st.sampled_from([0, 1 << 30]),
    ),
    unique_by=lambda disk: disk.target,
)


@given(DISKS, st.booleans())
def test_groups_are_probed_or_skipped(disks: list[Endpoint], shared: bool) -> None:
    selection = choose(*disks, shared=shared)
    by_name = {disk.target: disk for disk in disks}
    answered = [*chosen(selection), *(skip.target for skip in selection.skipped)]
    groups = [(by_name[t].adapter, by_name[t].medium, by_name[t].model) for t in answered]
    assert sorted(groups, key=str) == sorted(
        {(disk.adapter, disk.medium, disk.model) for disk in disks}, key=str
    )
    for subject in selection.subjects:
        assert subject.endpoint.protocol is not Protocol.UNKNOWN
        assert shared or subject.endpoint.protocol not in (Protocol.FC, Protocol.ISCSI)
        assert subject.endpoint.size
        assert not subject.endpoint.zoned


@given(DISKS, st.randoms(use_true_random=False))
def test_selection_ignores_discovery_order(disks: list[Endpoint], random: object) -> None:
    shuffled = list(disks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert choose(*disks) == choose(*shuffled)


@pytest.mark.parametrize(
    ("effective", "isolated", "away"),
    [
        (("0", "2"), (), (1, 3)),
        (("0", "2"), (3,), (1,)),
        (("0", "1", "2", "3"), (), ()),
        (("nonsense",), (), ()),
        ((), (), (0, 1, 2, 3)),
    ],
)
def test_load_avoids_adapter_cpus(
    effective: tuple[str, ...], isolated: tuple[int, ...], away: tuple[int, ...]
) -> None:
    vectors = tuple(vector(irq=30 + n, effective=cpu) for n, cpu in enumerate(effective))
    foreign = vector(irq=90, adapter="0000:09:00.0", effective="1")
    server = replace(
        machine(endpoint()),
        vectors=(*vectors, foreign),
        processors=Processors(online=(0, 1, 2, 3), isolated=isolated),
    )
    [subject] = list_subjects(server, {"sda"})
    assert subject.cpus == away


def test_load_avoids_cpu_partitions() -> None:
    restrictions = {CpuRestriction.PARTITION: (0, 1, 2), CpuRestriction.DEFAULT: (0,)}
    server = replace(
        machine(endpoint()),
        vectors=(vector(effective="0"),),
        processors=Processors(online=(0, 1, 2, 3), restrictions=restrictions),
    )
    [subject] = list_subjects(server, {"sda"})
    assert subject.cpus == (1, 2), "a mask for interrupts excludes no load"


@pytest.mark.parametrize(
    ("isolated", "serving", "cpus"),
    [
        ((2, 3), "0", (2, 3)),
        ((2, 3), "2", (3,)),
        ((3,), "3", (0, 1, 2)),  # none is left but those that serve
        ((), "0", (1, 2, 3)),
        ((9,), "0", (1, 2, 3)),  # not online
    ],
)
def test_site_grants_isolated_cpus(
    isolated: tuple[int, ...], serving: str, cpus: tuple[int, ...]
) -> None:
    server = replace(
        machine(endpoint()),
        vectors=(vector(effective=serving),),
        processors=Processors(online=(0, 1, 2, 3), isolated=isolated),
    )
    [subject] = list_subjects(with_probing(server, isolated=True), {"sda"})
    assert subject.cpus == cpus
    [careful] = list_subjects(with_probing(server, isolated=False), {"sda"})
    assert not set(careful.cpus) & set(isolated)


def test_subject_carries_firmware() -> None:
    serving = adapter(target=ONE, firmware="24.21")
    server: Machine = machine(endpoint(), adapters=(serving,))
    assert choose_representatives(server, {"sda"}).subjects[0].adapters == (serving,)
