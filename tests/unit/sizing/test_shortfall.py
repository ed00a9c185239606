"""Tests of hbatune/sizing/shortfall.py."""

from msgspec.structs import replace

from hbatune.facts.model import Kind, Machine, Medium, Protocol, Storage
from hbatune.sizing.shortfall import (
    Resource,
    ResourceComparison,
    Selector,
    SharedArray,
    compare_host,
    count_array_parts,
    evaluate_host,
    find_depth,
)
from tests.unit import machines as factory
from tests.unit.site_folder import SiteFolder
from tests.unit.sizing.load_needs import Find, random


def machine(drives: int, **link: object) -> Machine:
    disks = (
        factory.endpoint(target=f"sd{chr(97 + n)}", storage=Storage.LOCAL) for n in range(drives)
    )
    return factory.machine(*disks, adapters=(factory.adapter(link=factory.link(**link)),))


def index_by_resource(
    comparisons: tuple[ResourceComparison, ...],
) -> dict[Resource, tuple[float, float | None, bool | None]]:
    return {
        comparison.what: (comparison.has, comparison.needs, comparison.enough)
        for comparison in comparisons
    }


def test_drives_and_links_are_counted(needs: Find) -> None:
    wanted = needs(random(240_000))
    few = index_by_resource(compare_host(wanted, machine(1)))
    assert few[Resource.DRIVES] == (1, 2, False)
    assert index_by_resource(compare_host(wanted, machine(2)))[Resource.DRIVES] == (2, 2, True)
    assert evaluate_host(compare_host(wanted, machine(1))) == "short"
    assert evaluate_host(compare_host(wanted, machine(2))) == "carries"


def test_slow_link_limits_throughput(needs: Find) -> None:
    wanted = needs(random(120_000))
    comparisons = compare_host(wanted, machine(2, speed=2.5, width=1))
    by_kind = index_by_resource(comparisons)
    assert by_kind[Resource.LINK][2] is False
    assert by_kind[Resource.THROUGHPUT][2] is False
    assert evaluate_host(comparisons) == "short"
    slow_enough = compare_host(wanted, machine(2, width=4))
    assert index_by_resource(slow_enough)[Resource.LINK][2] is False
    assert evaluate_host(slow_enough) == "carries"


def test_one_path_is_too_little(needs: Find) -> None:
    def drives(adapters: int) -> tuple[ResourceComparison, ...]:
        disks = (
            factory.endpoint(
                target=f"nvme{n}n1",
                protocol=Protocol.NVME,
                medium=Medium.NVME,
                adapter=f"a{n % adapters}",
            )
            for n in range(2)
        )
        cards = (factory.adapter(target=f"a{n}") for n in range(adapters))
        return compare_host(needs(random(200_000)), factory.machine(*disks, adapters=tuple(cards)))

    assert index_by_resource(drives(1))[Resource.DRIVES] == (2, 1, True)
    assert index_by_resource(drives(1))[Resource.PATHS] == (1, 2, False)
    assert evaluate_host(drives(1)) == "short"
    assert evaluate_host(drives(2)) == "carries"


def test_nvme_hdd_is_no_solid_drive(needs: Find) -> None:
    disk = factory.endpoint(protocol=Protocol.NVME, medium=Medium.HDD)
    comparisons = compare_host(needs(random(1000)), factory.machine(disk))
    assert Resource.DRIVES not in index_by_resource(comparisons)


def test_missed_p99_is_too_little(needs: Find) -> None:
    wanted = needs(random(1000, p99=1.0))
    comparisons = compare_host(wanted, machine(8))
    assert index_by_resource(comparisons)[Resource.DRIVES] == (8, 1, False)


def test_hdds_are_counted(needs: Find) -> None:
    disks = (factory.endpoint(target=f"sd{n}", id=f"wwn-{n}@a", medium=Medium.HDD) for n in "abc")
    host = factory.machine(*disks, adapters=(factory.adapter(link=factory.link()),))
    stated = index_by_resource(compare_host(needs(random(450, hdd_iops=150.0)), host))
    assert stated[Resource.DRIVES] == (3, 3, True)
    assert evaluate_host(compare_host(needs(random(451, hdd_iops=150.0)), host)) == "short"
    assert Resource.DRIVES not in index_by_resource(compare_host(needs(random(450)), host))


def test_wanted_p99_without_figure_is_unknown(needs: Find) -> None:
    """No document has the p99 of an HDD, so enough drives do not answer."""
    disk = factory.endpoint(medium=Medium.HDD)
    wanted = needs(random(100, p99=2.0, hdd_iops=150.0))
    comparisons = compare_host(wanted, factory.machine(disk))
    assert index_by_resource(comparisons)[Resource.DRIVES] == (1, 1, None)
    assert evaluate_host(comparisons) == "unknown"


def test_documented_link_counts_less(needs: Find) -> None:
    """A Gen3 x8 link carries 5.85 GB/s by the document, 7.88 by PCI Express."""
    for width, has, source in ((8, 5.85, "D4-9"), (4, 3.938, "PCI Express")):
        host = machine(2, speed=8.0, width=width, max_speed=8.0, max_width=width)
        [through] = [
            row for row in compare_host(needs(random(1)), host) if row.what is Resource.THROUGHPUT
        ]
        assert (round(through.has, 3), through.source) == (has, source)


def test_card_pairs_are_counted(needs: Find) -> None:
    card = factory.adapter(family="ipr", document="57CE (D4)")
    volume = factory.endpoint(protocol=Protocol.VOLUME, medium=Medium.UNKNOWN)
    host = factory.machine(volume, adapters=(card, replace(card, target="0000:02:00.0")))
    comparisons = compare_host(needs(random(1_000_000)), host)
    assert index_by_resource(comparisons)[Resource.PAIRS] == (1.0, 1, True)
    assert (
        index_by_resource(compare_host(needs(random(2_000_000)), host))[Resource.PAIRS][2] is False
    )


def test_unknown_hardware_stays_unjudged(needs: Find) -> None:
    disk = factory.endpoint(medium=Medium.HDD)
    bare = factory.machine(disk, adapters=(factory.adapter(link=None),))
    assert evaluate_host(compare_host(needs(random(1000)), bare)) == "unknown"


ARRAY = SharedArray(
    hosts=8, luns=10, hbas=2, ports=1, selector=Selector.SERVICE_TIME, port_limit=1600
)


def test_hosts_share_port_limit() -> None:
    """1600 of a port, 8 hosts, 10 LUNs by two adapters: 10 each, and the port is full."""
    array_depth = find_depth(ARRAY)
    assert (array_depth.depth, array_depth.source, array_depth.in_flight, array_depth.at_port) == (
        10,
        "D2-4",
        20,
        1600,
    )


def test_separate_fabrics_share_no_port() -> None:
    assert find_depth(replace(ARRAY, fabrics=2)).depth == 20


def test_failover_path_gets_full_depth() -> None:
    failover_array = replace(ARRAY, selector=Selector.FAILOVER)
    assert find_depth(failover_array).depth == 20
    lun = replace(failover_array, port_limit=None, lun_limit=88)
    assert find_depth(lun).depth == 88
    assert find_depth(replace(lun, selector=Selector.ROUND_ROBIN)).depth == 44


def test_four_drives_give_depth_88(site: SiteFolder) -> None:
    [vnx] = [array for array in site.library.arrays() if "VNX" in array.name]
    alone = replace(ARRAY, port_limit=10_000, hosts=1, luns=1, hbas=1, model=vnx, data_drives=4)
    array_depth = find_depth(alone)
    assert (array_depth.depth, array_depth.source) == (88, "D2-5")
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
    host = factory.machine(*paths, on_map, adapters=adapters)
    assert count_array_parts(host) == (2, 2)
