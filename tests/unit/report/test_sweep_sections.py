"""The sections on other sweeps, and blocks with several curves."""

import re

from msgspec.structs import replace

from tests.unit import report_server as reported
from tests.unit.report.parsed_page import Parsed, parse_report


def test_lun_depths_share_one_section(full: Parsed) -> None:
    text = full.text["depth"]
    assert "sda: 8K random reads, by depth of the LUN itself" in text
    for lun_depth in (8, 16, 32, 64):
        assert f"LUN depth {lun_depth}: past depth {lun_depth}:" in text
    assert "LUN depth 128: no knee up to depth 128" in text
    assert text.count("8K random reads") == 1, "not five sweeps beside"


def test_untrusted_figures_are_marked(full: Parsed) -> None:
    assert "untrusted: under 90 %" in full.text["block"]
    assert "must not be trusted" in full.text["block"]


def test_load_sweep_plots_response_time(full: Parsed) -> None:
    text = full.text["load"]
    assert "4K random I/O, 60 % reads" in text
    assert "Mean response time over IOPS" in text
    assert "mean response time, ms" in text
    for disk in ("sda", "sdb", "nvme0n1"):
        assert f"{disk} : " in text or f"{disk}: " in text
        assert re.search(rf"{disk} 128 [\d,]+ ", text), "its figures"
    assert "60 % reads" not in full.text["depth"], "each sweep is drawn in one place"


def test_four_corners_draw_two_pictures(full: Parsed) -> None:
    text = full.text["corners"]
    for load in ("4K random reads", "4K random writes", "1M sequential reads"):
        assert load in text
        assert re.search(rf"{load} (192|96) [\d,]+ ", text), "its figures"
    assert "throughput, GB/s" in text
    assert "link: 7.88 GB/s" in text, "near enough to be drawn"
    assert "1M" not in full.text["depth"], "each sweep is drawn in one place"


def test_four_corners_preserve_depth_sweep() -> None:
    report = reported.seen()
    drive = report.machine.endpoints[12]
    depths = tuple(
        replace(record, id=drive.id, target=drive.target, time=record.time - 9000)
        for record in reported.depth_sweep(report.machine)
    )
    text = parse_report(replace(report, records=(*depths, *reported.corners(report.machine)))).text
    assert "Throughput against latency" in text["depth"]
    assert "IOPS of random I/O over depth" in text["corners"]


def test_distant_link_limit_is_text() -> None:
    report = reported.seen()
    slow = []
    for corner in reported.corners(report.machine):
        assert corner.result is not None
        figures = replace(corner.result.figures, bandwidth=corner.result.figures.bandwidth / 10)
        slow.append(replace(corner, result=replace(corner.result, figures=figures)))
    text = parse_report(replace(report, records=tuple(slow))).text["corners"]
    assert "The adapter's link carries 7.88 GB/s" in text
    assert "link: 7.88" not in text


def test_jobs_sweep_compares_depths(full: Parsed) -> None:
    text = full.text["depth"]
    assert "sdb: 4K random reads, by number of jobs" in text
    assert "2 jobs 16 deep each do as much as 8 jobs, within 5 %" in text
    assert "(D0-14)" in text
    for jobs in ("1 job", "2 jobs", "4 jobs", "8 jobs"):
        assert re.search(rf"{jobs} 64 [\d,]+ ", text), "its figures"
    assert re.search(r"8 jobs 64 [\d,]+ [\d.]+ \d+ % ", text), "the share of the issued depth"
    assert "sdb: 4K random reads Past" not in text, "each sweep is drawn in one place"


def test_mix_cost_cites_documents(full: Parsed) -> None:
    line = "70 % reads cost 17 % of the read-only IOPS, compared with 10 to 25 % (D0-15)."
    assert line in full.text["mix"]


def test_iops_plot_over_cpu_time(full: Parsed) -> None:
    for section in ("depth", "block"):
        assert "IOPS over CPU time" in full.text[section]
        assert "CPU time, % of one CPU" in full.text[section]
    assert "CPU time over block size" in full.text["block"]
