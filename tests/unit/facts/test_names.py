"""Names for people: in the order in which people count, and in short where many follow."""

import random

import pytest

from hbatune.facts.names import add_siblings, join_groups, natural_key, shorten_names

IN_ORDER = [
    ["nvme2n1", "nvme10n1", "sda", "sdb", "sdaa"],
    ["sda", "sda1", "sda2", "sda10", "sdb", "sdz", "sdaa", "sdab", "sdzz", "sdaaa"],
    ["sd1", "sd2", "sd10"],
    ["dm-2", "dm-10"],
    ["mpatha", "mpathz", "mpathaa"],
    ["irq9", "irq27", "irq101"],
    ["host0", "host2", "host10"],
    ["0000:09:00.0", "0000:0a:00.0", "0000:10:00.0", "0000:9a:00.0", "10000:01:00.0"],
    ["0:0:2:0", "0:0:10:0"],
    ["data01", "data1", "data2"],
    ["nvme0n1", "nvme0n1p1", "nvme0n2"],
    ["", "a", "aa"],
]


@pytest.mark.parametrize("names", IN_ORDER, ids=lambda names: names[-1])
def test_names_sort_naturally(names: list[str]) -> None:
    shuffled = random.Random(1).sample(names, len(names))
    assert sorted(shuffled, key=natural_key) == names


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["sda", "sdb", "sdc"], ["sda", "sdb", "sdc"]),
        (["sdd", "sdb", "sdc", "sda"], ["sda..sdd"]),
        (["sdy", "sdz", "sdaa", "sdab"], ["sdy..sdab"]),
        (["sda", "sdc", "sdd", "sde", "sdf", "sdx"], ["sda", "sdc..sdf", "sdx"]),
        ([f"irq{n}" for n in range(40, 48)], ["irq40..irq47"]),
        ([f"nvme{n}n1" for n in range(8)], ["nvme0n1..nvme7n1"]),
        # Two numbers that go up, one after the other: two ranges, and not one with holes.
        (
            [f"nvme0n{n}" for n in range(1, 5)] + [f"nvme{n}n4" for n in range(1, 5)],
            ["nvme0n1..nvme0n4", "nvme1n4..nvme4n4"],
        ),
        (["sda", "sdb", "sdd", "sde"], ["sda", "sdb", "sdd", "sde"]),
        (["sda", "sda", "sdb"], ["sda", "sdb"]),
        ([f"oracle-data{n:02}" for n in range(8, 13)], ["oracle-data08..oracle-data12"]),
        ([], []),
    ],
)
def test_consecutive_names_form_range(names: list[str], short: list[str]) -> None:
    assert list(shorten_names(names)) == short


def test_siblings_share_groups_directly_or_by_others() -> None:
    groups = [("md0", "sda", "sdb"), ("dm-1", "sdc", "sdd"), ("dm-0", "sdb", "sdc"), ("md1", "sde")]
    assert add_siblings(["sdd", "sdx"], groups) == {
        *("dm-0", "dm-1", "md0", "sda", "sdb", "sdc", "sdd", "sdx")
    }
    assert add_siblings(["sde"], groups) == {"sde", "md1"}


def test_large_groups_have_no_siblings() -> None:
    chain = [(f"sd{number}", f"sd{number + 1}") for number in range(256)]
    assert add_siblings(["sd1"], chain) == {"sd1"}
    assert len(add_siblings(["sd1"], chain[1:])) == 256


class CountedName(str):
    """A name that counts its look-ups in dictionaries."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        CountedName.lookups += 1
        return super().__hash__()


def test_many_volumes_on_disk_are_joined_fast() -> None:
    """At an event, the daemon joins thousands of volumes on one array."""
    disk, volumes = CountedName("sda"), [CountedName(f"dm-{number}") for number in range(2000)]
    join_groups((volume, disk) for volume in volumes)
    assert CountedName.lookups < 100 * len(volumes)
