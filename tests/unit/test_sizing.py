"""Sizing by the documents' figures: their own examples come out, and headroom is kept."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Kind, Machine, Medium, Protocol, Storage
from hbatune.shipped import find_shipped
from hbatune.sizing.needs import (
    MediumNeed,
    Needs,
    RaidNeed,
    WantedLoad,
    find_needs,
    load_sizing,
    make_load,
)
from hbatune.sizing.shortfall import (
    Resource,
    ResourceComparison,
    Selector,
    SharedArray,
    can_carry,
    compare_host,
    count_array_adapters,
    count_array_luns,
    find_depth,
)
from tests.unit import factory
from tests.unit.policy_site import SiteFolder

Find = Callable[..., Needs]
FIGURES = load_sizing(find_shipped("rules"))


@pytest.fixture
def needs(site: SiteFolder) -> Find:
    def find(load: WantedLoad, headroom: float = 0.0) -> Needs:
        return find_needs(load, headroom, site.library.yardsticks(), FIGURES)

    return find


def random(
    iops: float, *, reads: int = 100, block: int = 4096, p99: float | None = None
) -> WantedLoad:
    return make_load(iops, None, block, reads, p99)


def large(gb_per_s: float, reads: int = 100) -> WantedLoad:
    return make_load(None, gb_per_s, None, reads, None)


def raid(found: Needs, card: str, gen: int, level: int) -> RaidNeed:
    [one] = [e for e in found.raid if (e.card, e.gen, e.level) == (f"{card} (D4)", gen, level)]
    return one


def medium(found: Needs, name: str) -> MediumNeed:
    [one] = [each for each in found.media if each.medium == name]
    return one


def test_gen1_slots_double_pairs(needs: Find) -> None:
    found = needs(random(1_100_000))
    assert raid(found, "57CE", 3, 0).pairs == 1
    assert raid(found, "57CE", 3, 0).used == pytest.approx(1)
    assert raid(found, "57CE", 1, 0).pairs == 2
    assert raid(needs(random(1_100_001)), "57CE", 3, 0).pairs == 2


def test_bandwidth_sets_pairs_and_links(needs: Find) -> None:
    found = needs(large(11.7))
    assert (raid(found, "57CE", 3, 0).pairs, raid(found, "57CE", 1, 0).pairs) == (1, 4)
    links = {(each.gen, each.width): each for each in found.links}
    # The document's are two adapters: 11.7 GB/s on two links, 3.75 on two in Gen1 slots.
    assert (links[3, 8].links, links[3, 8].source) == (2, "D4-9")
    assert (links[1, 8].links, links[1, 8].each) == (7, 3.75 / 2)
    assert links[4, 8].source == "PCI Express"


def test_raid_writes_match_document(needs: Find) -> None:
    found = needs(random(150_000, reads=0))
    for level, most in ((0, 184_000), (5, 158_000), (10, 192_000), (6, 150_000)):
        assert raid(found, "57CE", 3, level).used == pytest.approx(150_000 / most)
    assert raid(found, "57CE", 3, 6).pairs == 1
    assert raid(found, "57B4", 1, 0).used < raid(found, "57CE", 1, 0).used


def test_gen3_pair_takes_26_drives(needs: Find) -> None:
    """W1 of RAID 5 at its peak takes the numbers of the table (D4-10)."""
    small = needs(random(1_070_000))
    assert raid(small, "57CE", 3, 5).ssds == {"Gen1": 48, "Gen2": 48, "Gen3": 26, "Gen4": 23}
    big = needs(large(9.4))
    assert raid(big, "57CE", 3, 5).ssds == {"Gen1": 48, "Gen2": 47, "Gen3": 28, "Gen4": 22}
    assert raid(needs(random(824_000)), "57CE", 1, 5).ssds["Gen4"] == 17
    assert raid(small, "57CE", 3, 0).ssds == {}, "the table is that of RAID 5"


def test_raid_6_needs_cache(needs: Find) -> None:
    found = needs(random(100_000))
    assert [(e.card, e.level) for e in found.raid if not e.advised] == [("57B4 (D4)", 6)]


def test_busy_nvme_needs_two_paths(needs: Find) -> None:
    assert medium(needs(random(200_000)), "nvme").paths == 2
    assert "D0-9" in medium(needs(random(200_000)), "nvme").sources
    assert medium(needs(random(199_999)), "nvme").paths == 1
    assert medium(needs(random(200_000)), "sas ssd").paths == 1


def test_peak_drive_stays_within_knee(needs: Find) -> None:
    """200,000 I/Os of 0.56 ms each are 112 in flight: at the knee of 64 to 128 (D0-12)."""
    found = medium(needs(random(200_000)), "nvme")
    assert (found.drives, found.knee) == (1, (64, 128))
    assert found.in_flight == pytest.approx(112)


def test_headroom_reduces_capacity(needs: Find) -> None:
    # A drive of 350,000 with 40 % free has 210,000 to give.
    assert medium(needs(random(210_000), 0.4), "nvme").drives == 1
    assert medium(needs(random(210_001), 0.4), "nvme").drives == 2


def test_mix_costs_at_most_quarter(needs: Find) -> None:
    assert medium(needs(random(1, reads=70)), "nvme").each == 350_000 * 0.75
    assert medium(needs(random(1, reads=85)), "nvme").each == 350_000 * 0.875
    assert medium(needs(random(1, reads=0)), "nvme").each == 350_000 * 0.75
    assert needs(random(1, reads=70)).mix_known
    assert not needs(random(1, reads=69)).mix_known


def test_p99_is_judged_with_headroom(needs: Find) -> None:
    found = needs(random(1000, p99=2.0), 0.3)
    assert {each.medium: each.met for each in found.media} == {
        "nvme": True,
        "sas ssd": True,
        "sata ssd": False,
    }
    assert medium(needs(random(1000, p99=2.0), 0.4), "sas ssd").met is False
    assert medium(needs(random(1000)), "nvme").met is None


def test_undocumented_load_has_no_number(needs: Find) -> None:
    found = needs(random(1000, block=32_768))
    assert medium(found, "sas ssd").drives is None
    assert medium(found, "nvme").sources == ("D3-1",)
    assert medium(needs(large(3.4)), "nvme").drives == 2


def test_larger_throughput_counts() -> None:
    assert make_load(1000, 2.0, 4096, 100, None).gb_per_s == 2.0
    assert make_load(1e6, 2.0, 4096, 100, None).gb_per_s == pytest.approx(4.096)


def machine(drives: int, **link: object) -> Machine:
    made = (
        factory.endpoint(target=f"sd{chr(97 + n)}", storage=Storage.LOCAL) for n in range(drives)
    )
    return factory.machine(*made, adapters=(factory.adapter(link=factory.link(**link)),))


def held(
    found: tuple[ResourceComparison, ...],
) -> dict[Resource, tuple[float, float | None, bool | None]]:
    return {each.what: (each.has, each.needs, each.enough) for each in found}


def test_drives_and_links_are_counted(needs: Find) -> None:
    wanted = needs(random(240_000))
    few = held(compare_host(wanted, machine(1)))
    assert few[Resource.DRIVES] == (1, 2, False)
    assert held(compare_host(wanted, machine(2)))[Resource.DRIVES] == (2, 2, True)
    assert can_carry(compare_host(wanted, machine(1))) is False
    assert can_carry(compare_host(wanted, machine(2))) is True


def test_slow_link_limits_throughput(needs: Find) -> None:
    wanted = needs(random(120_000))
    found = compare_host(wanted, machine(2, speed=2.5, width=1))
    by_kind = held(found)
    assert by_kind[Resource.LINK][2] is False
    assert by_kind[Resource.THROUGHPUT][2] is False
    assert can_carry(found) is False
    slow_enough = compare_host(wanted, machine(2, width=4))
    assert held(slow_enough)[Resource.LINK][2] is False
    assert can_carry(slow_enough) is True


def test_one_path_is_too_little(needs: Find) -> None:
    def drives(adapters: int) -> tuple[ResourceComparison, ...]:
        made = (
            factory.endpoint(
                target=f"nvme{n}n1", protocol=Protocol.NVME, adapter=f"a{n % adapters}"
            )
            for n in range(2)
        )
        here = (factory.adapter(target=f"a{n}") for n in range(adapters))
        return compare_host(needs(random(200_000)), factory.machine(*made, adapters=tuple(here)))

    assert held(drives(1))[Resource.DRIVES] == (2, 1, True)
    assert held(drives(1))[Resource.PATHS] == (1, 2, False)
    assert can_carry(drives(1)) is False
    assert can_carry(drives(2)) is True


def test_missed_p99_is_too_little(needs: Find) -> None:
    wanted = needs(random(1000, p99=1.0))
    found = compare_host(wanted, machine(8))
    assert held(found)[Resource.DRIVES] == (8, 1, False)


def test_card_pairs_are_counted(needs: Find) -> None:
    card = factory.adapter(family="ipr", document="57CE (D4)")
    volume = factory.endpoint(protocol=Protocol.VOLUME, medium=Medium.UNKNOWN)
    here = factory.machine(volume, adapters=(card, replace(card, target="0000:02:00.0")))
    found = compare_host(needs(random(1_000_000)), here)
    assert held(found)[Resource.PAIRS] == (1.0, 1, True)
    assert held(compare_host(needs(random(2_000_000)), here))[Resource.PAIRS][2] is False


def test_unknown_hardware_stays_unjudged(needs: Find) -> None:
    disk = factory.endpoint(medium=Medium.HDD)
    bare = factory.machine(disk, adapters=(factory.adapter(link=None),))
    assert can_carry(compare_host(needs(random(1000)), bare)) is None


ARRAY = SharedArray(
    hosts=8, luns=10, hbas=2, ports=1, selector=Selector.SERVICE_TIME, port_limit=1600
)


def test_hosts_share_port_limit() -> None:
    """1600 of a port, 8 hosts, 10 LUNs by two adapters: 10 each, and the port is full."""
    found = find_depth(ARRAY)
    assert (found.depth, found.source, found.in_flight, found.at_port) == (10, "D2-4", 20, 1600)


def test_separate_fabrics_share_no_port() -> None:
    assert find_depth(replace(ARRAY, fabrics=2)).depth == 20


def test_failover_path_gets_full_depth() -> None:
    one = replace(ARRAY, selector=Selector.FAILOVER)
    assert find_depth(one).depth == 20
    lun = replace(one, port_limit=None, lun_limit=88)
    assert find_depth(lun).depth == 88
    assert find_depth(replace(lun, selector=Selector.ROUND_ROBIN)).depth == 44


def test_four_drives_give_depth_88(site: SiteFolder) -> None:
    [vnx] = [each for each in site.library.arrays() if "VNX" in each.name]
    alone = replace(ARRAY, port_limit=10_000, hosts=1, luns=1, hbas=1, model=vnx, data_drives=4)
    found = find_depth(alone)
    assert (found.depth, found.source) == (88, "D2-5")
    by_paper = find_depth(replace(ARRAY, port_limit=None, model=vnx, data_drives=4))
    assert (by_paper.depth, by_paper.port_source) == (10, "V-emc-port")


def test_depth_stays_within_emulex_limit() -> None:
    alone = replace(ARRAY, hosts=1, luns=1, hbas=1, port_limit=None)
    assert (find_depth(alone).depth, find_depth(alone).source) == (256, "D2-2")


def test_host_luns_are_counted() -> None:
    paths = [
        factory.endpoint(
            target=f"sd{n}", id=f"wwn-{n % 2}@a/{n}", protocol=Protocol.FC, adapter=f"a{n // 2}"
        )
        for n in range(4)
    ]
    on_map = factory.endpoint(target="dm-0", id="m", kind=Kind.MAP, adapter=None)
    adapters = tuple(factory.adapter(target=f"a{n}") for n in range(2))
    here = factory.machine(*paths, on_map, adapters=adapters)
    assert (count_array_luns(here), count_array_adapters(here)) == (2, 2)
