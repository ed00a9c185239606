"""A shared array on Fibre Channel: real remote ports, two paths, and the array's rules (D2)."""

from collections.abc import Iterator

import pytest

from tests.lab.guest import multipath, service
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.fibre import Fabric, fabric
from tests.lab.guest.values import cat, put

KERNELS = ("6.12",)

# The port takes 1,600 commands from four hosts: 400 from this one, 200 for each of its two LUNs.
# The LUN takes 32, and 14 for each of four data drives: 88, over both paths (D2-4, D2-5).
SHARED = """
[[site.array]]
name = "clariion"
vendor = "DGC"
hosts = 4
port_limit = 1600
data_drives = 4
"""
EACH = "44"


@pytest.fixture(scope="module")
def array(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A CLARiiON with two LUNs, over two ports of its own and two of this host."""
    folder = tmp_path_factory.mktemp("luns")
    with fabric(folder, paths=2, luns=2, vendor="DGC", model="RAID 5") as made:
        yield made


@pytest.fixture(autouse=True)
def _as_before(array: Fabric) -> Iterator[None]:
    depths = {disk: cat(disk, "device/queue_depth") for disk in array.disks()}
    yield
    hbatune("uninstall")
    configure("")
    for disk in set(array.disks()) & set(depths):
        put(disk, "device/queue_depth", depths[disk])


def depths(disks: list[str]) -> list[str]:
    """Return the depths in force."""
    return [cat(disk, "device/queue_depth") for disk in disks]


def test_an_array_is_listed_by_the_port_that_leads_to_it(array: Fabric) -> None:
    listed = hbatune("list", "--json").json["endpoints"]
    found = {each["target"]: each for each in listed if each["protocol"] == "fc"}
    assert sorted(found) == array.disks()
    for path in (0, 1):
        for lun, disk in enumerate(array.disks_of(path)):
            assert found[disk]["vendor"] == "DGC"
            assert found[disk]["id"].startswith("naa.")
            # Interface and port name: nothing of it is a number that a boot gives.
            assert found[disk]["id"].endswith(f"@i{path}/fc-0x20000200000002{path:02x}-lun-{lun}")


def test_without_the_sites_facts_the_depth_stands(array: Fabric) -> None:
    was = depths(array.disks())
    done = hbatune("apply", "--profile", "oltp", "--no-probe", *array.disks())
    assert done.code == 0, done.err
    assert depths(array.disks()) == was


def test_the_depth_is_this_hosts_share_of_the_port_and_the_luns_own_limit(array: Fabric) -> None:
    configure(SHARED)
    was = depths(array.disks())
    with multipath.joined_disks("DGC", "RAID 5") as maps:
        assert len(maps) == 2
        done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *maps)
        assert done.code == 0, done.err
        assert depths(array.disks()) == [EACH] * 4
        again = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *maps)
        assert not again.rows(outcome="written")
        said = hbatune("explain", array.disks()[0], "queue_depth").out
        for part in ("32", "14", "88", "1600", "D2-4", "D2-5"):
            assert part in said, said
    assert depths(array.disks()) == was


def test_a_port_with_less_room_leaves_less_to_each_lun(array: Fabric) -> None:
    configure(SHARED.replace("1600", "160"))
    with multipath.joined_disks("DGC", "RAID 5") as maps:
        done = hbatune("apply", "--profile", "oltp", "--no-probe", *maps)
        assert done.code == 0, done.err
        assert depths(array.disks()) == ["20"] * 4  # 160 over four hosts, and two LUNs


def test_a_path_that_was_lost_and_comes_back_is_set_again(array: Fabric) -> None:
    config = service.QUIET + SHARED
    joined = multipath.joined_disks("DGC", "RAID 5")
    with joined, service.running(config), service.without_rules():
        assert depths(array.disks()) == [EACH] * 4
        array.lose(0)
        assert depths(array.disks()) == [EACH] * 2
        with service.Journal() as journal:
            back = array.give_back(0)
            journal.until_all_set(back, "queue_depth")
        assert depths(back) == [EACH] * 2
