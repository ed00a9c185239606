"""The sections on the latency of disks, interference, and all disks of an adapter."""

import re

from msgspec.structs import replace

from hbatune.probe.result import Pattern, ProbeResult, Workload
from tests.unit import report_server as reported
from tests.unit.noisy_disks import figures
from tests.unit.report.parsed_page import Parsed, parse_report


def test_results_show_objective_and_link(full: Parsed) -> None:
    text = full.text["latency"]
    assert re.search(r"sdc .*2 ms \(D3-8\): met, \d+ % to spare", text)
    assert re.search(r"sdc 4K randread, 24 deep p99 at depth 32 1.25 ms .* D0-12", text)
    assert "% of 7.88 GB/s" in text


def test_documents_have_tables() -> None:
    report = reported.seen()
    disk = next(disk for disk in report.machine.endpoints if disk.target == "sdc")
    measured = figures(150_000, 32 / 150_000 * 1e6, 2500)
    result = ProbeResult("sdc", disk.id, Workload(depth=32), measured, "3.33", ())
    record = next(record for record in report.records if record.result is not None)
    page = parse_report(replace(report, records=(replace(record, result=result),)))
    assert "Next to the documents" in page.text["latency"]
    assert "05-50111-01 HBA Performance Report" in page.text["latency"]
    assert re.search(r"p99 1.25 ms 2.50 ms 2.00 D0-12", page.text["latency"])


def test_joint_load_faces_disk_sum(full: Parsed) -> None:
    text = full.text["together"]
    assert "8 disks at once" in text
    for name in ("IOPS of all disks over block size", "Throughput of all disks over block size"):
        assert name in text
    assert "IOPS of all disks over CPU time" in text
    assert "sum of single runs" in text
    assert "IOPS over the number of disks" in text
    assert "link: 7.88 GB/s" in text
    assert "512, 1K, 2K, 4K, 8K: the adapter is the limit" in text
    assert "16K, 32K, 64K: the link is the limit: 83 % of the 7.88 GB/s" in text


def test_joint_writes_are_drawn_separately() -> None:
    report = reported.seen()
    runs = [
        *reported.all_disks(report.machine, 1000.0),
        *reported.all_disks(report.machine, 2000.0, Pattern.RANDOM_WRITE),
    ]
    page = parse_report(replace(report, records=tuple(runs)))
    for name in (
        "IOPS of all disks over block size",
        "Throughput of all disks over block size",
        "IOPS of all disks over CPU time",
    ):
        assert f"{name}: random reads" in page.text["together"]
        assert f"{name}: random writes" in page.text["together"]
    assert "8 disks at once, random writes, measured" in page.text["together"]


def test_untrusted_joint_run_is_hollow() -> None:
    report = reported.seen()
    runs = reported.all_disks(report.machine)
    last = runs[-1].together
    assert last is not None
    figures = replace(last.figures, mean_us=2 * last.figures.mean_us)
    broken = replace(runs[-1], together=replace(last, figures=figures))
    sound = parse_report(replace(report, records=tuple(runs))).text["together"]
    assert "untrusted" not in sound
    assert "Hollow" not in sound
    text = parse_report(replace(report, records=(*runs[:-1], broken))).text["together"]
    assert "Hollow points break Little's law" in text
    assert "untrusted: more in flight than issued" in text


def test_single_joint_load_is_row() -> None:
    report = reported.seen()
    [four_disks] = [
        disk
        for disk in reported.all_disks(report.machine)
        if disk.together is not None
        and len(disk.together.targets) == 4
        and disk.together.workload.block_size == 4096
    ]
    text = parse_report(replace(report, records=(four_disks,))).text["together"]
    assert "All disks together" in text
    assert "4K randread, 24 deep 89 %" in text
    assert "over block size" not in text
    assert "number of disks" not in text, "of one number there is no curve"


def test_baselines_show_single_io_runs(full: Parsed) -> None:
    _, text = full.text["latency"].split("One I/O at a time")
    for load in ("4K random reads", "128K sequential reads", "4K random writes"):
        assert f"sda {load}, 1 deep" in text
    assert text.count("1 deep") == 4, "runs of sweeps are no baselines"


def test_vanished_adapter_is_reported() -> None:
    report = reported.seen()
    runs = tuple(reported.all_disks(report.machine))
    without_adapter = replace(report.machine, adapters=report.machine.adapters[1:])
    later = replace(report, machine=without_adapter, plan=None, records=runs)
    text = parse_report(later).text["together"]
    assert "0000:01:00.0: the adapter is not there any more." in text


def test_interference_is_shown_by_scheduler(full: Parsed) -> None:
    text = full.text["interference"]
    for scheduler in ("none", "mq-deadline", "bfq"):
        assert f"scheduler {scheduler}" in text
    assert "p99 with writer" in text
    assert re.search(r"sda bfq 4K randread, 4 deep 2027-01-15 [0-9:]+ 30,000 → 15,000", text)
    assert "MB/s" in text


def test_distant_reader_is_unpaired() -> None:
    report = reported.seen()
    moved = []
    for record in reported.beside_writer(report.machine):
        assert record.result is not None
        moved.append(
            replace(record, time=record.time + 10 * (record.result.workload.writer is None))
        )
    text = parse_report(replace(report, records=tuple(moved))).text["interference"]
    assert "hbatune probe interference" in text
