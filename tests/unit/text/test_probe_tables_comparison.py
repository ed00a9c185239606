import re

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Protocol
from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.probe.comparison import compare_on_machine
from hbatune.probe.knee import Knee, KneeDoubt
from hbatune.probe.result import Pattern, ProbeResult, Workload
from hbatune.text.probe_tables import describe_knee, describe_standings, show_document_tables
from tests.unit.command_runs import see_machine
from tests.unit.machines import adapter, endpoint, link, machine
from tests.unit.noisy_disks import figures
from tests.unit.site_folder import SiteFolder


@pytest.fixture
def describe(monkeypatch: pytest.MonkeyPatch, site: SiteFolder):  # type: ignore[no-untyped-def]
    """Return a function that describes a p99 (in ms) of a SAS SSD at a depth."""
    see_machine(monkeypatch, lambda: machine(endpoint()))
    situation = read_situation(SituationRequest(profile="oltp"))

    def lines(p99_ms: float, depth: int = 24) -> list[str]:
        measured = figures(60_000, 400, p99_ms * 1000)
        result = ProbeResult("sda", endpoint().id, Workload(depth=depth), measured, "3.33", ())
        standing = compare_on_machine(
            result, situation.machine, situation.profile, site.library.yardsticks()
        )
        assert standing is not None
        return list(describe_standings({"sda": (result, standing)}, "oltp"))

    return lines


@pytest.mark.parametrize(
    ("p99", "words"),
    [
        (0.9, "oltp requires at most 2 ms (D3-8): met, with 55 % to spare, more than"),
        (1.4, "met, with 30 % to spare."),
        (1.9, "met, but with only 5 % to spare"),
        (3.0, "missed by 50 %."),
    ],
)
def test_objective_line_shows_margin(describe, p99: float, words: str) -> None:  # type: ignore[no-untyped-def]
    assert words in describe(p99)[0]


def show(*loads: Workload, **traits: object) -> None:
    """Print the document tables of a disk with these loads at 60,000 IOPS and 2 GB/s."""
    served = adapter(document="57B4 (D4)", link=link(speed=2.5))
    disk = endpoint(**traits)
    results = []
    for load in loads:
        measured = replace(figures(60_000, load.issued / 60_000 * 1e6, 900), bandwidth=2e9)
        results.append(ProbeResult("sda", disk.id, load, measured, "3.33", ()))
    show_document_tables(results, machine(disk, adapters=(served,)))


def test_document_has_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(Workload(depth=24), Workload(depth=1), Workload(depth=64))
    title, heads, *lines = capsys.readouterr().out.strip().splitlines()
    assert title == "D0: 05-50111-01 HBA Performance Report"
    assert heads.split() == ["DISK", "LOAD", "FIGURE", "DOCUMENT", "MEASURED", "RATIO", "SOURCE"]
    first, *percentiles = [re.split(r"  +", line) for line in lines]
    load = ["sda", "4K randread, 24 deep"]
    documented = "120,000 to 180,000"
    assert first == [*load, "IOPS at depth 32", documented, "60,000", "0.50", "D0-12"]
    assert [cells[2:4] for cells in percentiles] == [
        ["p95 at depth 32", "720 µs"],
        ["p99 at depth 32", "1.25 ms"],
        ["p99.9 at depth 32", "4.20 ms"],
    ]


def test_single_io_has_no_document(capsys: pytest.CaptureFixture[str]) -> None:
    """The documents' percentiles at depth 32 do not fit a baseline at depth 1 (D3-1)."""
    show(Workload(depth=1))
    assert not capsys.readouterr().out


def test_volume_has_all_raid_levels(capsys: pytest.CaptureFixture[str]) -> None:
    show(Workload(Pattern.WRITE, block_size=1 << 20), protocol=Protocol.VOLUME)
    out = capsys.readouterr().out
    assert re.search(r"GB/s of 2 57B4, RAID 6 of 48 SSDs +1.00 +2.00 +2.00 +D4-12", out)
    assert len(re.findall(r"RAID (?:0|5|10|6) of 48 SSDs", out)) == 4
    show(
        Workload(Pattern.WRITE, block_size=1 << 20),
        protocol=Protocol.VOLUME,
        raid_level="6",
    )
    assert re.findall(r"RAID \d+ of 48 SSDs", capsys.readouterr().out) == ["RAID 6 of 48 SSDs"]


def test_throughput_shows_link_share(describe) -> None:  # type: ignore[no-untyped-def]
    line = describe(0.9)[1]
    assert "0.25 GB/s, 3 % of the 7.88 GB/s that the link of 0000:01:00.0 carries" in line
    assert "gave 5.85 (D4-9)" in line


def test_missing_disk_lacks_standing(site: SiteFolder) -> None:
    result = ProbeResult("sdz", "x", Workload(), figures(1, 1, 1), "3.33", ())
    yardsticks = site.library.yardsticks()
    assert compare_on_machine(result, machine(endpoint()), site.load("oltp"), yardsticks) is None


def test_knee_is_described() -> None:
    knee = Knee(64, 64, 64, 128, 0.02, 0.9, None)
    assert describe_knee(knee) == "past depth 64: 2 % more IOPS for 90 % more p99"
    unsure = Knee(64, 32, 128, 128, -0.01, 0.9, None)
    assert describe_knee(unsure) == (
        "past depth 64: 1 % less IOPS for 90 % more p99 (it may be anywhere from 32 to 128)"
    )
    fell = Knee(2, 2, 2, 4, -0.9, 0.9, KneeDoubt.FALL)
    assert "no alert uses it: no second run confirmed the fall" in describe_knee(fell)
    assert "no knee up to depth 256" in describe_knee(Knee(256, 256, 256, None, None, None))
