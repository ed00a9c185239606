"""Sizing against every cell of the documents' tables, copied here from the documents."""

import re
from collections.abc import Iterator

import pytest

from hbatune.sizing.needs import MediumNeed, RaidNeed, make_load
from hbatune.text.sizing_tables import show_needs
from tests.unit.sizing.load_needs import FIGURES, Find, random

# Document 004, Conclusion (D4-10). Columns: cards, each with the generation of its slot.
COLUMNS = ["57B5-1", "57C4-1", "57B5-2", "57C4-2", "57CE-1", "57B4-1"]
COLUMNS += ["57CE-2", "57B4-2", "57CE-3", "57B4-3"]
MAX_ATTACH = [24, 24, 24, 24, 48, 48, 48, 48, 48, 48]
SATURATION = {
    ("Gen1", "W1"): [24, 24, 24, 24, 48, 48, 48, 48, 48, 48],
    ("Gen1", "W2"): [24, 24, 24, 24, 36, 36, 48, 48, 48, 48],
    ("Gen2", "W1"): [19, 17, 22, 20, 38, 35, 45, 41, 48, 41],
    ("Gen2", "W2"): [14, 14, 15, 15, 14, 14, 29, 21, 47, 21],
    ("Gen3", "W1"): [10, 9, 12, 10, 20, 18, 24, 21, 26, 21],
    ("Gen3", "W2"): [8, 8, 9, 9, 8, 8, 17, 13, 28, 13],
    ("Gen4", "W1"): [8, 7, 10, 9, 17, 15, 20, 18, 23, 18],
    ("Gen4", "W2"): [7, 7, 7, 7, 7, 7, 14, 10, 22, 10],
}

# Document 004, Four Corners results (D4-12): random reads and writes in thousands of IOPS,
# sequential reads and writes in GB/s. Columns: RAID 0, 5, 10 and 6.
LEVELS = (0, 5, 10, 6)
CORNERS = {
    ("57CE", 1, "random", 100): (762, 824, 710, 571),
    ("57CE", 1, "random", 0): (161, 141, 171, 138),
    ("57CE", 1, "sequential", 100): (3.75, 3.75, 3.75, 3.75),
    ("57CE", 1, "sequential", 0): (3.2, 3, 3, 1.36),
    ("57CE", 3, "random", 100): (1100, 1070, 1090, 893),
    ("57CE", 3, "random", 0): (184, 158, 192, 150),
    ("57CE", 3, "sequential", 100): (11.7, 9.4, 9.5, 9),
    ("57CE", 3, "sequential", 0): (4.4, 3.2, 3.9, 2.03),
    ("57B4", 1, "random", 100): (764, 734, 728, 398),
    ("57B4", 1, "random", 0): (713, 747, 230, 221),
    ("57B4", 1, "sequential", 100): (3.75, 3.75, 3.75, 3.75),
    ("57B4", 1, "sequential", 0): (3.2, 0.85, 2.2, 1),
}

# Document 000, Tail Latency Comparison and the lowest peaks (D0-12): p99 in ms, IOPS.
MEDIA = {"nvme": (0.56, 350_000), "sas ssd": (1.25, 120_000), "sata ssd": (6.5, 25_000)}


def list_saturation_cells() -> Iterator[tuple[str, str, str, int, int]]:
    for (ssd, workload), counts in SATURATION.items():
        for column, count, attach in zip(COLUMNS, counts, MAX_ATTACH, strict=True):
            yield column, ssd, workload, count, attach


@pytest.mark.parametrize(
    ("column", "ssd", "workload", "count", "attach"), list(list_saturation_cells())
)
def test_saturation_cell_is_answered(
    needs: Find,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    ssd: str,
    workload: str,
    count: int,
    attach: int,
) -> None:
    """A cell equal to "Max SSD attach" is answered with "more than" (D4-10)."""
    monkeypatch.setattr("hbatune.text.terminal.get_width", lambda stream=None: 200)
    show_needs(
        needs(random(1) if workload == "W1" else make_load(None, 1, None, 100, None)), unfold=True
    )
    _, _, table = capsys.readouterr().out.partition("SSDs that one pair can fully use")
    card, _, gen = column.partition("-")
    answer = f"more than {count}" if count == attach else f"{count}"
    row = rf"^{card} \(D4\) +Gen{gen} (.*[ ,])?(?<!than ){answer} {ssd}(, .*| +)D4-10$"
    assert re.search(row, table, re.M), table


def list_corner_cells() -> Iterator[tuple[str, int, str, int, int, float]]:
    for (card, gen, order, reads), rates in CORNERS.items():
        for level, rate in zip(LEVELS, rates, strict=True):
            yield card, gen, order, reads, level, rate


@pytest.mark.parametrize(
    ("card", "gen", "order", "reads", "level", "rate"), list(list_corner_cells())
)
def test_corner_cell_fills_pair(
    needs: Find, card: str, gen: int, order: str, reads: int, level: int, rate: float
) -> None:
    """The rate of the table takes one pair, and 1 % more takes two (D4-12)."""
    for factor, pairs in ((1, 1), (1.01, 2)):
        if order == "random":
            load = random(rate * 1000 * factor, reads=reads)
        else:
            load = make_load(None, rate * factor, None, reads, None)
        need = find_raid_need(needs(load).raid, card, gen, level)
        assert need.pairs == pairs
        assert need.used == pytest.approx(factor)
        assert need.sources[0] == "D4-12"
        assert need.advised == ((card, level) != ("57B4", 6))


def find_raid_need(answers: tuple[RaidNeed, ...], card: str, gen: int, level: int) -> RaidNeed:
    wanted = (f"{card} (D4)", gen, level)
    [need] = [row for row in answers if (row.card, row.gen, row.level) == wanted]
    return need


@pytest.mark.parametrize("medium", MEDIA)
def test_medium_figures_are_answered(needs: Find, medium: str) -> None:
    p99, iops = MEDIA[medium]
    for rate, drives in ((iops, 1), (iops + 1, 2)):
        [need] = [row for row in needs(random(rate)).media if row.medium == medium]
        assert (need.drives, need.p99_ms, need.sources[0]) == (drives, p99, "D0-12")


@pytest.mark.parametrize(("gb_per_s", "drawers"), [(1, 2), (8, 2), (8.1, 3), (11.7, 3)])
def test_throughput_sets_drawers(needs: Find, gb_per_s: float, drawers: int) -> None:
    """Two drawers carry about 8 GB/s of a pair, three more (D4-13)."""
    need = find_raid_need(needs(make_load(None, gb_per_s, None, 100, None)).raid, "57CE", 3, 0)
    assert (need.pairs, need.drawers) == (1, drawers)
    assert "D4-13" in need.sources


def test_more_pairs_share_throughput(needs: Find) -> None:
    need = find_raid_need(needs(make_load(None, 12, None, 100, None)).raid, "57CE", 3, 0)
    assert (need.pairs, need.drawers) == (2, 2)


@pytest.mark.parametrize(
    ("iops", "drives", "drawers", "pairs"),
    [(150, 1, 1, 1), (3600, 24, 1, 1), (3750, 25, 2, 1), (14_400, 96, 4, 1), (14_550, 97, 5, 2)],
)
def test_hdds_scale_linearly(
    needs: Find, iops: float, drives: int, drawers: int, pairs: int
) -> None:
    """96 HDDs in four drawers fit on a pair (D4-14)."""
    need = find_hdds(needs(random(iops, hdd_iops=150.0)).media)
    assert (need.drives, need.drawers, need.pairs) == (drives, drawers, pairs)
    assert need.sources == ("D4-14",)


def find_hdds(media: tuple[MediumNeed, ...]) -> MediumNeed:
    [need] = [row for row in media if row.medium == "hdd"]
    return need


def test_hdds_need_stated_rate(needs: Find) -> None:
    """The document has the rate of an HDD in a drawing only."""
    assert {row.medium for row in needs(random(1)).media} == set(MEDIA)


def test_part_of_pair_is_rounded(needs: Find) -> None:
    """A lower bound is rounded down, a number of drives up."""
    need = find_raid_need(needs(random(535_000 * 1.01)).raid, "57CE", 3, 5)
    assert need.ssds == {"Gen1": 24, "Gen2": 24, "Gen3": 14, "Gen4": 12}
    assert need.more_than == ("Gen1", "Gen2")


def test_figures_cite_their_sources() -> None:
    cited = {FIGURES.drive.source, FIGURES.block.source, FIGURES.mix.source}
    assert cited == {"D3-11", "D0-16", "D0-15"}
