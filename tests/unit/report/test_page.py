"""The page: each section shows something or says how to come by it, and nothing is loaded."""

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from hbatune.plan import make
from hbatune.probe.history import Record
from hbatune.probe.result import Histogram, Pattern, Window
from hbatune.render import render_template
from hbatune.report.page import ReportData
from hbatune.report.summary import make_page
from hbatune.shipped import find_shipped
from tests.pages import CHECKOUT
from tests.unit import report_server as reported

REPORT = CHECKOUT / "docs/report.md"
SECTIONS = {
    "before-after": "hbatune apply --profile oltp",
    "changes": "hbatune apply",
    "latency": "hbatune probe reference-short",
    "depth": "hbatune probe depth-sweep sda",
    "load": "hbatune probe oltp1-load --file DIR",
    "corners": "hbatune probe four-corners DISK --destructive",
    "together": "hbatune probe block-sweep-small sda DISK --together",
    "block": "hbatune probe block-sweep sda",
    "mix": "hbatune probe mix-sweep",
    "interference": "hbatune probe interference --file DIR",
    "search": "hbatune autotune sda --profile oltp",
    "adapters": "hbatune list",
    "interrupts": "hbatune list",
}


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the text of each section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {"": ""}
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "section":
            self._in = attributes["id"] or ""
            self.text[self._in] = ""

    def handle_data(self, data: str) -> None:
        self.text[self._in] += f"{data.strip()} " if data.strip() else ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def html(report: ReportData) -> str:
    return render_template("templates", "report.html.j2", page=make_page(report))


def parsed(report: ReportData) -> Parsed:
    return Parsed(html(report))


@pytest.fixture(scope="module")
def full() -> Parsed:
    return parsed(reported.seen())


def test_full_report_fills_sections(full: Parsed) -> None:
    assert [element["id"] for element in full.all("section")] == list(SECTIONS)
    for section in SECTIONS:
        assert "To get there:" not in full.text[section]


@pytest.mark.parametrize("section", SECTIONS)
def test_empty_section_explains_probe(section: str) -> None:
    empty = parsed(reported.unmeasured())
    assert SECTIONS[section] in empty.text[section]
    assert empty.all("svg") == []
    assert empty.all("table") == []


def test_figures_have_captions_and_titles(full: Parsed) -> None:
    count = len(full.all("figure"))
    assert count == len(full.all("figcaption")) == len(full.all("svg")) > 10
    assert len(full.all("title")) == count + 1
    assert all(element.get("scope") for element in full.all("th"))


def test_changes_show_reasons(full: Parsed) -> None:
    text = full.text["changes"]
    assert re.search(r"sda nr_requests 256 2048 room for bursts .*\(D0-2\)", text)
    assert "irq40..irq47 (8) irq_affinity 0-1 … 14-15 0 … 7" in text
    assert "irq81..irq96 (16)" in text, "what the kernel places is told apart"


def test_reverted_changes_show_cost(full: Parsed) -> None:
    assert re.search(r"sdf nr_requests 256 2048 IOPS -2\d % \(-\d+ % to", full.text["changes"])
    assert "Put back: nr_requests." in full.text["before-after"]


def test_foreign_change_is_reported() -> None:
    report = reported.seen()
    entry = replace(report.journal.entries[0], value=1024)
    text = parsed(replace(report, journal=replace(report.journal, entries=(entry,)))).text
    assert "it is 2048 by now" in text["changes"]


def test_verdicts_show_intervals(full: Parsed) -> None:
    text = full.text["before-after"]
    assert "sdd, scheduler, nr_requests: improved" in text
    assert "sdf, nr_requests: regressed" in text
    assert re.search(r"IOPS [\d,]+ [\d,]+ \+\d+ % \(\+\d+ % to \+\d+ %\) improved", text)
    assert "scheduler none mq-deadline" in text


def test_knee_is_named_and_marked(full: Parsed) -> None:
    assert "Past depth 32: 2 % more IOPS" in full.text["depth"]
    assert "(it may be anywhere from 16 to 64)" in full.text["depth"]
    assert "The shaded stretch" in full.text["depth"]
    assert "knee: 32" in full.text["depth"]
    assert "32 knee of sda" in re.sub(r"\s+", " ", full.text[""])


def test_unrecorded_knee_has_no_range() -> None:
    report = reported.seen()
    records = tuple(reported.depth_sweep(report.machine))
    text = parsed(replace(report, records=records)).text["depth"]
    assert "Past depth 32:" in text
    assert "how sure it is is unknown" in text


def test_sweep_shows_cpu_limit(full: Parsed) -> None:
    text = full.text["depth"]
    assert "kernel 6.1.0-56-amd64, scheduler none, nr_requests 256, 38 °C." in text
    assert "From depth 256 on the CPUs are the limit" in text
    assert "load and interrupts" in text
    assert "6.19 µs of CPU time each" in text, "that of interrupts included"


def test_lun_depths_share_one_section(full: Parsed) -> None:
    text = full.text["depth"]
    assert "sda: 8K random reads, by depth of the LUN itself" in text
    for lun_depth in (8, 16, 32, 64):
        assert f"LUN depth {lun_depth}: past depth {lun_depth}:" in text
    assert "LUN depth 128: no knee up to depth 128" in text
    assert text.count("8K random reads") == 1, "not five sweeps beside"


def test_doubted_runs_are_counted() -> None:
    report = reported.seen()
    records = tuple(
        replace(record, proof=record.proof and replace(record.proof, doubted=3))
        for record in report.records
    )
    text = parsed(replace(report, records=records)).text["before-after"]
    assert "3 runs broke Little's law" in text


def test_short_sweep_has_no_knee() -> None:
    report = reported.seen()
    server = report.machine
    short = parsed(
        replace(report, records=tuple(reported.depth_sweep(server, depths=(1, 2, 4, 8))))
    )
    assert "No knee up to depth 8" in short.text["depth"]
    assert "knee: " not in short.text["depth"]


def test_windows_give_knee_range() -> None:
    def noisy(record: Record) -> Record:
        assert record.result is not None
        figures = record.result.figures
        windows = tuple(
            Window(0.5, round(figures.iops * share / 2), 0, Histogram({wait: 9}), 0.0, 0.0)
            for share, wait in ((0.6, 300_000), (1.0, 150_000), (1.4, 100_000), (1.0, 200_000))
        )
        return replace(
            record, result=replace(record.result, figures=replace(figures, windows=windows))
        )

    report = reported.seen()
    sweep = tuple(map(noisy, reported.depth_sweep(report.machine)))
    text = parsed(replace(report, records=sweep)).text["depth"]
    assert "it may be anywhere from" in text
    assert "The shaded stretch" in text


def test_results_show_objective_and_link(full: Parsed) -> None:
    text = full.text["latency"]
    assert re.search(r"sdc .*2 ms \(D3-8\): met, \d+ % to spare", text)
    assert "(D0-12)" in text
    assert "% of 7.88 GB/s" in text


def test_untrusted_figures_are_marked(full: Parsed) -> None:
    assert "untrusted: under 90 %" in full.text["block"]
    assert "must not be trusted" in full.text["block"]


def test_slow_links_are_reported(full: Parsed) -> None:
    assert "link 8 GT/s x8 where 16 GT/s x16 can be" in full.text["adapters"]
    assert "sda..sdl (12)" in full.text["adapters"]
    assert "Isolated CPUs: 30-31" in full.text["interrupts"]
    assert "nvme0q1" in full.text["interrupts"]


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
    text = parsed(replace(report, records=(*depths, *reported.corners(report.machine)))).text
    assert "Throughput against latency" in text["depth"]
    assert "IOPS of random I/O over depth" in text["corners"]


def test_distant_link_limit_is_text() -> None:
    report = reported.seen()
    slow = []
    for corner in reported.corners(report.machine):
        assert corner.result is not None
        figures = replace(corner.result.figures, bandwidth=corner.result.figures.bandwidth / 10)
        slow.append(replace(corner, result=replace(corner.result, figures=figures)))
    text = parsed(replace(report, records=tuple(slow))).text["corners"]
    assert "The adapter's link carries 7.88 GB/s" in text
    assert "link: 7.88" not in text


def test_joint_load_faces_disk_sum(full: Parsed) -> None:
    text = full.text["together"]
    assert "8 disks at once" in text
    for name in ("IOPS of all disks over block size", "Throughput of all disks over block size"):
        assert name in text
    assert "IOPS of all disks over CPU time" in text
    assert "sum of each alone" in text
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
    page = parsed(replace(report, records=tuple(runs)))
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
    sound = parsed(replace(report, records=tuple(runs))).text["together"]
    assert "untrusted" not in sound
    assert "Hollow" not in sound
    text = parsed(replace(report, records=(*runs[:-1], broken))).text["together"]
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
    text = parsed(replace(report, records=(four_disks,))).text["together"]
    assert "All disks at once" in text
    assert "4K randread, 24 deep 89 %" in text
    assert "over block size" not in text
    assert "number of disks" not in text, "of one number there is no curve"


def test_interference_is_shown_by_scheduler(full: Parsed) -> None:
    text = full.text["interference"]
    for scheduler in ("none", "mq-deadline", "bfq"):
        assert f"scheduler {scheduler}" in text
    assert "p99 beside the writer" in text
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
    text = parsed(replace(report, records=tuple(moved))).text["interference"]
    assert "hbatune probe interference" in text


def test_jobs_sweep_compares_depths(full: Parsed) -> None:
    text = full.text["depth"]
    assert "sdb: 4K random reads, by number of jobs" in text
    assert "2 jobs 16 deep each do as much as 8 jobs, within 5 %" in text
    assert "(D0-14)" in text
    for jobs in ("1 job", "2 jobs", "4 jobs", "8 jobs"):
        assert re.search(rf"{jobs} 64 [\d,]+ ", text), "its figures"
    assert "sdb: 4K random reads Past" not in text, "each sweep is drawn in one place"


def test_mix_cost_cites_documents(full: Parsed) -> None:
    line = "70 % reads cost 17 % of the IOPS of reads alone, beside 10 to 25 % (D0-15)."
    assert line in full.text["mix"]


def test_baselines_show_single_io_runs(full: Parsed) -> None:
    _, text = full.text["latency"].split("One I/O at a time")
    for load in ("4K random reads", "128K sequential reads", "4K random writes"):
        assert f"sda {load}, 1 deep" in text
    assert text.count("1 deep") == 4, "runs of sweeps are no baselines"


def test_iops_plot_over_cpu_time(full: Parsed) -> None:
    for section in ("depth", "block"):
        assert "IOPS over CPU time" in full.text[section]
        assert "CPU time, % of one CPU" in full.text[section]
    assert "CPU time over block size" in full.text["block"]


def test_search_shows_probes_and_answer(full: Parsed) -> None:
    text = full.text["search"]
    assert "queue_depth 126: better than what was in force, 91 % sure; in force was 254." in text
    assert "answer: 126" in text
    assert "objective: 2 ms" in text
    assert "p99 of the reader, ms" in text
    assert "scheduler none in force, 400 MB/s" in text
    assert "rq_affinity 1: as good as the best, 126 deep." in text
    assert "scheduler bfq: better than what was in force, 126 deep beside a bulk writer." in text


def test_incomplete_search_is_drawn() -> None:
    report = reported.seen()
    search_record = reported.searched(report.machine)
    assert search_record.search is not None
    bare = replace(
        search_record, search=replace(search_record.search, objective_us=None, settings=())
    )
    text = parsed(replace(report, records=(bare,))).text["search"]
    assert "No objective: the highest rate was searched." in text
    none = replace(search_record, search=replace(search_record.search, depth=None))
    text = parsed(replace(report, records=(none,))).text["search"]
    assert "at the depths tried" not in text
    assert "Candidates beside a bulk writer" in text


def test_verdicts_come_first(full: Parsed) -> None:
    assert full.all("section")[0]["id"] == "before-after"


def test_stale_results_are_marked() -> None:
    report = reported.seen()
    newer = tuple(replace(adapter, driver_version="99.0") for adapter in report.machine.adapters)
    text = parsed(replace(report, machine=replace(report.machine, adapters=newer))).text
    for section in SECTIONS.keys() - {"changes", "adapters", "interrupts"}:
        assert "its driver was" in text[section]


def test_missing_profile_preserves_measurements() -> None:
    report = replace(reported.seen(), profile=None, plan=None)
    text = parsed(report).text
    assert "Past depth 32" in text["depth"]
    assert "oltp" not in text["depth"]
    assert "no rule of this profile" in text["changes"]


def test_vanished_adapter_is_reported() -> None:
    report = reported.seen()
    runs = tuple(reported.all_disks(report.machine))
    without_adapter = replace(report.machine, adapters=report.machine.adapters[1:])
    later = replace(report, machine=without_adapter, plan=None, records=runs)
    text = parsed(later).text["together"]
    assert "0000:01:00.0: the adapter is not there any more." in text


def test_vanished_disk_shows_results() -> None:
    report = reported.seen()
    without_disk = replace(report.machine, endpoints=report.machine.endpoints[1:])
    plan = make.make_plan(without_disk, reported.oltp())
    text = parsed(replace(report, machine=without_disk, plan=plan)).text
    assert "the disk is not there any more" in text["depth"]


def test_page_loads_nothing(full: Parsed) -> None:
    forbidden = {"script", "link", "img", "iframe", "object", "embed", "base", "image", "use"}
    assert not forbidden & {tag for tag, _ in full.elements}
    for tag, attributes in full.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"], tag
        assert (attributes.get("href") or "#").startswith("#")
    [policy] = [element["content"] for element in full.all("meta") if "http-equiv" in element]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    text = html(reported.seen())
    assert not re.search(r"https?://|url\(|@import", text)


def test_kernel_names_stay_text(full: Parsed) -> None:
    assert reported.HOSTILE in full.text["adapters"]
    assert "<script" not in html(reported.seen())
    hostile = replace(
        reported.seen().machine, hostname=reported.HOSTILE, kernel=f"</style>{reported.HOSTILE}"
    )
    page = parsed(replace(reported.seen(), machine=hostile))
    assert page.all("script") == []
    assert reported.HOSTILE in page.text[""]


def test_hostile_disk_name_stays_text() -> None:
    report = reported.seen()
    records = tuple(
        replace(
            record,
            target=reported.HOSTILE,
            result=record.result and replace(record.result, target=reported.HOSTILE),
            proof=record.proof and replace(record.proof, target=reported.HOSTILE),
        )
        for record in report.records
    )
    text = html(replace(report, records=records))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert Parsed(text).all("script") == []


def test_dark_colours_spare_paper() -> None:
    css = (find_shipped("templates") / "report.css").read_text()
    assert "@media screen and (prefers-color-scheme: dark)" in css
    assert css.count("prefers-color-scheme") == 1
    assert "@media print" in css


def test_undrawn_sweeps_are_counted() -> None:
    report = reported.seen()
    sweeps = [
        replace(record, id=f"disk{number}", time=record.time + number)
        for number in range(8)
        for record in reported.depth_sweep(report.machine)
    ]
    page = parsed(replace(report, records=tuple(sweeps)))
    assert "2 more sweeps are in `hbatune history`" in page.text["depth"]


def test_documented_figures_are_drawn() -> None:
    """The table in docs/report.md names no figure that is not drawn."""
    lines = [line for line in REPORT.read_text().splitlines() if re.match(r"\| D\d, ", line)]
    assert {line[2:4] for line in lines} == {"D0", "D1", "D2", "D3", "D4"}
    assert all('"' in line for line in lines)
    named = {name for line in lines for name in re.findall(r'"([^"]+)"', line)}
    drawn = {
        figure.name
        for section in make_page(reported.seen()).sections
        for block in section.blocks
        for figure in block.figures
    }
    assert len(named) > 12
    assert named <= drawn
