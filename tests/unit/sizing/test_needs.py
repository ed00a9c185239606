"""Sizing by the documents' figures: their own examples come out, and headroom is kept."""

from pathlib import Path

import pytest

from hbatune.policy.library import SIZING, load_cited
from hbatune.policy.toml_files import PolicyError
from hbatune.shipped import find_shipped
from hbatune.sizing.needs import (
    MediumNeed,
    Needs,
    RaidNeed,
    SizingFigures,
    WantedLoad,
    make_load,
)
from tests.unit.sizing.load_needs import Find, random


def large(gb_per_s: float, reads: int = 100) -> WantedLoad:
    return make_load(None, gb_per_s, None, reads, None)


def raid(load_needs: Needs, card: str, gen: int, level: int) -> RaidNeed:
    [need] = [
        e for e in load_needs.raid if (e.card, e.gen, e.level) == (f"{card} (D4)", gen, level)
    ]
    return need


def medium(load_needs: Needs, name: str) -> MediumNeed:
    [need] = [need for need in load_needs.media if need.medium == name]
    return need


@pytest.mark.parametrize("table", ["[drive]", "[[saturation]]"])
def test_unknown_source_is_refused(table: str, tmp_path: Path) -> None:
    shipped = find_shipped("rules")
    (tmp_path / "sources.toml").write_text((shipped / "sources.toml").read_text())
    before, header, after = (shipped / "sizing.toml").read_text().partition(table)
    wrong = after.replace('source = "D', 'source = "X', 1)
    (tmp_path / "sizing.toml").write_text(before + header + wrong)
    with pytest.raises(
        PolicyError, match=r"sizing\.toml: line .*: cites X.*, which is not a source"
    ):
        load_cited(tmp_path / SIZING, SizingFigures)


def test_gen1_slots_double_pairs(needs: Find) -> None:
    load_needs = needs(random(1_100_000))
    assert raid(load_needs, "57CE", 3, 0).pairs == 1
    assert raid(load_needs, "57CE", 3, 0).used == pytest.approx(1)
    assert raid(load_needs, "57CE", 1, 0).pairs == 2
    assert raid(needs(random(1_100_001)), "57CE", 3, 0).pairs == 2


def test_bandwidth_sets_pairs_and_links(needs: Find) -> None:
    load_needs = needs(large(11.7))
    assert (raid(load_needs, "57CE", 3, 0).pairs, raid(load_needs, "57CE", 1, 0).pairs) == (1, 4)
    links = {(link.gen, link.width): link for link in load_needs.links}
    # The document's are two adapters: 11.7 GB/s on two links, 3.75 on two in Gen1 slots.
    assert (links[3, 8].links, links[3, 8].source) == (2, "D4-9")
    assert (links[1, 8].links, links[1, 8].each) == (7, 3.75 / 2)
    assert links[4, 8].source == "PCI Express"


def test_raid_writes_match_document(needs: Find) -> None:
    load_needs = needs(random(150_000, reads=0))
    for level, most in ((0, 184_000), (5, 158_000), (10, 192_000), (6, 150_000)):
        assert raid(load_needs, "57CE", 3, level).used == pytest.approx(150_000 / most)
    assert raid(load_needs, "57CE", 3, 6).pairs == 1
    assert raid(load_needs, "57B4", 1, 0).used < raid(load_needs, "57CE", 1, 0).used


def test_gen3_pair_takes_26_drives(needs: Find) -> None:
    """W1 of RAID 5 at its peak takes the numbers of the table (D4-10)."""
    small = needs(random(1_070_000))
    assert raid(small, "57CE", 3, 5).ssds == {"Gen1": 48, "Gen2": 48, "Gen3": 26, "Gen4": 23}
    big = needs(large(9.4))
    assert raid(big, "57CE", 3, 5).ssds == {"Gen1": 48, "Gen2": 47, "Gen3": 28, "Gen4": 22}
    assert raid(small, "57CE", 3, 5).more_than == ("Gen1", "Gen2")
    assert raid(needs(random(824_000)), "57CE", 1, 5).ssds["Gen4"] == 17
    assert raid(small, "57CE", 3, 0).ssds == {}, "the table is that of RAID 5"


def test_raid_6_needs_cache(needs: Find) -> None:
    load_needs = needs(random(100_000))
    assert [(e.card, e.level) for e in load_needs.raid if not e.advised] == [("57B4 (D4)", 6)]


def test_busy_nvme_needs_two_paths(needs: Find) -> None:
    assert medium(needs(random(200_000)), "nvme").paths == 2
    assert "D0-9" in medium(needs(random(200_000)), "nvme").sources
    assert medium(needs(random(199_999)), "nvme").paths == 1
    assert medium(needs(random(200_000)), "sas ssd").paths == 1


def test_peak_drive_stays_within_knee(needs: Find) -> None:
    """200,000 I/Os of 0.56 ms each are 112 in flight: at the knee of 64 to 128 (D0-12)."""
    nvme_need = medium(needs(random(200_000)), "nvme")
    assert (nvme_need.drives, nvme_need.knee) == (1, (64, 128))
    assert nvme_need.in_flight == pytest.approx(112)


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
    load_needs = needs(random(1000, p99=2.0), 0.3)
    assert {need.medium: need.met for need in load_needs.media} == {
        "nvme": True,
        "sas ssd": True,
        "sata ssd": False,
    }
    assert medium(needs(random(1000, p99=2.0), 0.4), "sas ssd").met is False
    assert medium(needs(random(1000)), "nvme").met is None


def test_undocumented_load_has_no_number(needs: Find) -> None:
    load_needs = needs(random(1000, block=32_768))
    assert medium(load_needs, "sas ssd").drives is None
    assert medium(load_needs, "nvme").sources == ("D3-11",)
    assert medium(needs(large(3.4)), "nvme").drives == 2


def test_larger_throughput_counts() -> None:
    assert make_load(1000, 2.0, 4096, 100, None).gb_per_s == 2.0
    assert make_load(1e6, 2.0, 4096, 100, None).gb_per_s == pytest.approx(4.096)
