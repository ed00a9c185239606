"""The sections on adapters and interrupts."""

from msgspec.structs import replace

from hbatune.facts.model import Kind, PathGroup
from hbatune.report.topology import make_topology_blocks
from tests.unit import report_server as reported
from tests.unit.machines import endpoint
from tests.unit.report.parsed_page import Parsed


def test_slow_links_are_reported(full: Parsed) -> None:
    assert "link 8 GT/s x8 of 16 GT/s x16" in full.text["adapters"]
    assert "sda..sdl (12)" in full.text["adapters"]
    assert "Isolated CPUs: 30-31" in full.text["interrupts"]
    assert "nvme0q1" in full.text["interrupts"]


def test_card_is_not_over_several_adapters() -> None:
    report = reported.seen()
    card = endpoint(target="mmcblk0", adapter=None)
    groups = (PathGroup("queue-length", True, ("sda",)),)
    joined = endpoint(
        target="dm-0", kind=Kind.MAP, adapter=None, paths=("sda", "sdb"), path_groups=groups
    )
    machine = replace(report.machine, endpoints=(joined, card))
    [block] = make_topology_blocks(replace(report, machine=machine))
    below = {node.name: [child.name for child in node.below] for node in block.tree}
    assert below["Without an adapter"] == ["mmcblk0"]
    assert below["Over several adapters"] == ["dm-0"]
    [node] = [node for node in block.tree if node.name == "Over several adapters"]
    assert "queue-length over 1 of 2 paths" in node.below[0].facts


def test_names_in_use_are_reported() -> None:
    report = reported.seen()
    maps = [
        endpoint(target=f"dm-{n}", id=f"dm-{n}", kind=Kind.MAP, adapter=None, alias=f"mpath{n}")
        for n in range(12)
    ]
    maps = [replace(map, mounts=(f"/srv{map.target[3:]}",), volumes=("vg0/pg",)) for map in maps]
    machine = replace(report.machine, endpoints=tuple(maps))
    [block] = make_topology_blocks(replace(report, machine=machine))
    [node] = block.tree[-1].below
    assert node.name == "dm-0..dm-11 (12) (mpath0..mpath11)"
    uses = " ".join(f"/srv{n}" for n in range(8))
    assert node.facts[-1] == f"used by {uses} and 5 others"
