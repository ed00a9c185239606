import pytest

from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.probe.comparison import DocumentRow, Standing, compare_on_machine
from hbatune.probe.knee import Knee, KneeDoubt
from hbatune.probe.result import ProbeResult, Workload
from hbatune.text.probe_tables import describe_knee, describe_standing, show_document_tables
from tests.unit.command_runs import see_machine
from tests.unit.machines import endpoint, machine
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
        return list(describe_standing(result, standing, "oltp"))

    return lines


@pytest.mark.parametrize(
    ("p99", "words"),
    [
        (0.9, "oltp wants at most 2 ms (D3-8): met, with 55 % to spare, more than"),
        (1.4, "met, with 30 % to spare."),
        (1.9, "met, but with only 5 % to spare"),
        (3.0, "missed by 50 %."),
    ],
)
def test_objective_line_shows_margin(describe, p99: float, words: str) -> None:  # type: ignore[no-untyped-def]
    assert words in describe(p99)[0]


def test_document_figures_are_shown(describe) -> None:  # type: ignore[no-untyped-def]
    line = describe(0.9)[1]
    assert "60000 IOPS at depth 24" in line
    assert "beside 0.72/1.25/4.2 ms and 120000 to 180000 IOPS" in line
    assert "(D0-12, measured at depth 32)" in line
    assert "(D0-12)" in describe(0.9, depth=32)[1]


def test_document_has_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        DocumentRow("D0-12", "sda", Workload(depth=32), "iops", 120e3, 180e3, 90e3),
        DocumentRow("D0-12", "sda", Workload(depth=32), "p99_us", 1250, 1250, 2500),
        DocumentRow("D0-12", "sda", Workload(depth=32), "bandwidth", 2e9, 2e9, 1e9),
    ]
    show_document_tables({"D0": rows})
    title, heads, *lines = capsys.readouterr().out.strip().splitlines()
    assert title == "D0: 05-50111-01 HBA Performance Report"
    assert heads.split() == ["DISK", "LOAD", "FIGURE", "DOCUMENT", "MEASURED", "RATIO", "SOURCE"]
    load = ["sda", "4K", "randread,", "32", "deep"]
    assert [line.split() for line in lines] == [
        [*load, "IOPS", "120,000", "to", "180,000", "90,000", "0.75", "D0-12"],
        [*load, "p99", "1.25", "ms", "2.50", "ms", "2.00", "D0-12"],
        [*load, "GB/s", "2.00", "1.00", "0.50", "D0-12"],
    ]


def test_single_io_has_no_document(describe) -> None:  # type: ignore[no-untyped-def]
    """The documents' percentiles at depth 32 do not fit a baseline at depth 1 (D3-1)."""
    assert not [line for line in describe(0.9, depth=1) if "D0-12" in line]


def test_throughput_shows_link_share(describe) -> None:  # type: ignore[no-untyped-def]
    line = describe(0.9)[2]
    assert "0.25 GB/s, 3 % of what the link of 0000:01:00.0 carries (7.88 GB/s)" in line
    assert "gave 5.85 (D4-9)" in line


def test_raid_levels_share_line(site: SiteFolder) -> None:
    figured = site.library.yardsticks().raid
    raid = tuple(figure for figure in figured if figure.card == "57B4 (D4)")
    result = ProbeResult("sda", "x", Workload(), figures(1, 1, 1), "3.33", ())
    [line] = describe_standing(result, Standing(None, False, None, (), raid), "oltp")
    assert line == (
        "sda: 2 57B4 with 48 SSDs in such slots gave, in IOPS: RAID 0 764000, RAID 5 734000, "
        "RAID 10 728000, RAID 6 398000 (D4-12)."
    )


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
