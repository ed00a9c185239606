from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Medium, Missing, Protocol, Reason
from hbatune.policy.profile import Objective
from hbatune.probe.comparison import (
    Headroom,
    Standing,
    compare_result,
    compare_with_documents,
    compute_link_ceiling,
    compute_mix_cost,
    evaluate_objective,
)
from hbatune.probe.result import Figures, Pattern, ProbeResult, Subject, TracePart, Workload
from tests.unit.machines import adapter, endpoint, link, machine
from tests.unit.noisy_disks import figures
from tests.unit.site_folder import SiteFolder


@pytest.fixture
def stand(site: SiteFolder):  # type: ignore[no-untyped-def]
    """Return a function that compares a p99 (in ms) of one kind of disk with the profile oltp."""

    def compare(p99_ms: float, workload: Workload | None = None, **overrides: object) -> Standing:
        of_adapter = ("link", "document")
        served = adapter(**{k: v for k, v in overrides.items() if k in of_adapter})
        disk = endpoint(**{k: v for k, v in overrides.items() if k not in of_adapter})
        subject = Subject(disk, adapters=(served,))
        measured = replace(figures(100_000, 200, p99_ms * 1000), bandwidth=2e9)
        result = ProbeResult("sda", "x", workload or Workload(depth=32), measured, "3.33", ())
        return compare_result(result, subject, site.load("oltp"), site.library.yardsticks())

    return compare


SATA = {"protocol": Protocol.SATA, "medium": Medium.SSD}
NVME = {"protocol": Protocol.NVME, "medium": Medium.NVME}


@pytest.mark.parametrize(
    ("overrides", "p99", "source", "objective"),
    [({}, 1.25, "D0-12", 2.0), (SATA, 6.5, "D0-12", 7.8), (NVME, 0.56, "D0-12", 2.0)],
)
def test_medium_selects_figures_and_objective(  # type: ignore[no-untyped-def]
    stand, overrides: dict[str, object], p99: float, source: str, objective: float
) -> None:
    standing = stand(1.0, **overrides)
    assert (standing.document.p99_ms, standing.document.source) == (p99, source)
    assert standing.goal.p99_ms == objective
    assert standing.same_depth


def test_only_nvme_has_documented_knee(stand) -> None:  # type: ignore[no-untyped-def]
    assert stand(1.0, **NVME).document.knee == (64, 128)
    assert stand(1.0).document.knee is None


def test_undocumented_medium_has_no_reference(stand) -> None:  # type: ignore[no-untyped-def]
    standing = stand(1.0, medium=Medium.HDD)
    assert (standing.document, standing.goal) == (None, None)


@pytest.mark.parametrize(
    "workload", [Workload(pattern=Pattern.READ), Workload(block_size=65536)], ids=str
)
def test_different_workload_has_no_reference(stand, workload) -> None:  # type: ignore[no-untyped-def]
    standing = stand(1.0, workload)
    assert (standing.document, standing.goal) == (None, None)
    assert standing.links, "bandwidth is bandwidth"


def test_trace_has_objective_but_no_reference(stand) -> None:  # type: ignore[no-untyped-def]
    """Its I/Os have any order and size."""
    part = TracePart("/db.trace", rate=1000.0, unit=4096, unwritten=0.0, lost=0.0)
    standing = stand(1.0, Workload(depth=32, trace=part))
    assert standing.document is None
    assert standing.goal.p99_ms == 2.0


def test_depth_difference_is_reported(stand) -> None:  # type: ignore[no-untyped-def]
    assert not stand(1.0, Workload(depth=24)).same_depth


@pytest.mark.parametrize(
    ("measured", "headroom", "met"),
    [
        (2.1, Headroom.MISSED, False),
        (2.0, Headroom.SCANT, True),
        (1.7, Headroom.SCANT, True),
        (1.5, Headroom.ENOUGH, True),
        (1.1, Headroom.AMPLE, True),
    ],
)
def test_objective_verdict_includes_headroom(
    measured: float, headroom: Headroom, met: bool
) -> None:
    verdict = evaluate_objective(Objective(2.0, "because", "D3-8"), measured)
    assert (verdict.headroom, verdict.met) == (headroom, met)
    assert verdict.spare == pytest.approx(1 - measured / 2)


def test_throughput_compares_with_link(stand) -> None:  # type: ignore[no-untyped-def]
    [gen3] = stand(1.0).links
    assert gen3.ceiling == pytest.approx(7.877, rel=1e-3)
    assert gen3.document == pytest.approx(11.7 / 2), "two adapters gave 11.7 GB/s together"
    assert gen3.used == pytest.approx(2 / 7.877, rel=1e-3)
    [gen1] = stand(1.0, link=link(speed=2.5)).links
    assert (gen1.ceiling, gen1.document) == (2.0, 3.75 / 2)
    [gen4] = stand(1.0, link=link(speed=16.0)).links
    assert (gen4.document, gen4.source) == (None, None)


def test_documented_card_volume_shows_raid(stand) -> None:  # type: ignore[no-untyped-def]
    volume: dict[str, Any] = {"protocol": Protocol.VOLUME, "document": "57CE (D4)"}
    figures = stand(1.0, **volume).raid
    assert {figure.level: figure.random_read for figure in figures} == {
        0: 1_100_000,
        5: 1_070_000,
        10: 1_090_000,
        6: 893_000,
    }
    slow = stand(1.0, **volume, link=link(speed=2.5)).raid
    assert {figure.level: figure.write_gb_per_s for figure in slow} == {
        0: 3.2,
        5: 3,
        10: 3,
        6: 1.36,
    }
    assert not stand(1.0, **volume, link=link(speed=5.0)).raid, "Gen2 is in no document"
    assert not stand(1.0, Workload(block_size=65536), **volume).raid
    assert not stand(1.0, protocol=Protocol.VOLUME).raid, "another card"
    assert not stand(1.0, document="57CE (D4)").raid, "a drive is no array"


def test_unread_link_has_no_ceiling(stand) -> None:  # type: ignore[no-untyped-def]
    unread = Missing(Reason.UNREADABLE)
    assert compute_link_ceiling(link(speed=unread)) is None
    assert stand(1.0, link=link(width=unread)).links == ()
    assert stand(1.0, link=None).links == ()


def test_same_load_stands_next_to_document(site: SiteFolder) -> None:
    """D3-10, D3-11 and D0-12: the last result of each load, for the drive of the document."""
    drive = endpoint(target="nvme0n1", family="nvme", **NVME)
    yardsticks, disks = site.library.yardsticks(), machine(drive)

    def measure(workload: Workload, iops: float = 13_100) -> ProbeResult:
        measured = figures(iops, workload.depth / iops * 1e6, 126)
        return ProbeResult("nvme0n1", drive.id, workload, measured, "3.33", ())

    shallow = Workload(depth=2)
    results = [measure(shallow, 1.0), measure(shallow), measure(Workload(depth=3))]
    rows = compare_with_documents(results, disks, yardsticks)["D3"]
    assert {row.source for row in rows} == {"D3-10"}
    ratios = {row.figure: round(row.ratio, 2) for row in rows}
    assert (ratios["iops"], ratios["mean_us"], ratios["p99_us"]) == (0.5, 2.17, 1.0)
    both = [*results, measure(Workload(depth=32), 380_000)]
    [inside, *_] = compare_with_documents(both, disks, yardsticks)["D0"]
    assert (inside.source, inside.low, inside.high, inside.ratio) == ("D0-12", 350e3, 420e3, 1.0)
    assert not compare_with_documents(results, machine(endpoint()), yardsticks)
    assert not compare_with_documents([measure(replace(shallow, rate=1000))], disks, yardsticks), (
        "an open loop is another load"
    )


@pytest.mark.parametrize("depth", [1, 24])
@pytest.mark.parametrize("block_size", [65536, 131072])
def test_large_reads_are_compared_at_any_depth(
    site: SiteFolder, depth: int, block_size: int
) -> None:
    """D0-16 has no depth, and D3-11 has depth 1 with 128K."""
    drive = endpoint(target="nvme0n1", family="nvme", **NVME)
    workload = Workload(Pattern.READ, block_size, depth)
    result = ProbeResult(
        "nvme0n1", drive.id, workload, figures(10_000, 100 * depth, 200), "3.33", ()
    )
    rows = compare_with_documents([result], machine(drive), site.library.yardsticks())
    [mean] = [row for row in rows["D0"] if row.source == "D0-16"]
    assert (mean.figure, mean.high, round(mean.ratio, 2)) == ("mean_us", 1000, depth / 10)
    same_load = {row.source: row.depth for row in rows.get("D3", ())}
    assert same_load == ({"D3-11": 1} if (depth, block_size) == (1, 131072) else {})


def test_documented_runs_name_figures_and_patterns(site: SiteFolder) -> None:
    for run in site.library.yardsticks().run:
        assert Pattern(run.pattern)
        assert set(run.figures) <= set(Figures.__struct_fields__)


def mixed(reads: int, iops: float, wait: float = 1.0) -> ProbeResult:
    workload = Workload(Pattern.RANDOM_MIX, depth=24, reads=reads)
    measured = replace(figures(iops, 200, 900), mean_us=wait * 24 / iops * 1e6)
    return ProbeResult("sda", "x", workload, measured, "3.33", ())


def test_mix_cost_uses_documented_share(site: SiteFolder) -> None:
    yardsticks = site.library.yardsticks()
    mix_cost = compute_mix_cost([mixed(100, 100_000), mixed(70, 82_000), mixed(50, 10)], yardsticks)
    assert mix_cost is not None
    assert (mix_cost.reads, round(mix_cost.cost, 3)) == (70, 0.18)
    assert (mix_cost.document, mix_cost.source) == ((0.10, 0.25), "D0-15")


@pytest.mark.parametrize(
    "more_results",
    [
        [],
        [mixed(100, 100_000, wait=0.5)],
        [replace(mixed(100, 100_000), workload=Workload(Pattern.RANDOM_MIX, depth=8))],
    ],
    ids=["none", "untrusted", "of another depth"],
)
def test_unmatched_mix_has_no_cost(site: SiteFolder, more_results: list[ProbeResult]) -> None:
    assert compute_mix_cost([mixed(70, 82_000), *more_results], site.library.yardsticks()) is None


def test_documented_means_follow_medium(stand) -> None:  # type: ignore[no-untyped-def]
    assert stand(1.0, **NVME).document.mean_ms == (0.12, 0.12)
    assert stand(1.0, **SATA).document.mean_ms == (2.0, 5.0)
    assert stand(1.0).document.mean_ms is None, "of SAS the document does not tell it"
