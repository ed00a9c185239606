"""The page: each section shows something or says how to come by it, and nothing is loaded."""

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from hbatune.plan import make
from hbatune.probe.histogram import Histogram
from hbatune.probe.history import Record
from hbatune.probe.model import Window
from hbatune.render import render
from hbatune.report.page import ReportData
from hbatune.report.summary import page
from hbatune.shipped import shipped
from tests.unit import reported

SECTIONS = {
    "changes": "hbatune apply",
    "before-after": "hbatune apply --profile oltp --verify",
    "latency": "hbatune probe reference-short",
    "depth": "hbatune probe depth-sweep sda",
    "block": "hbatune probe block-sweep sda",
    "mix": "hbatune probe mix-sweep",
    "adapters": "hbatune list",
    "interrupts": "hbatune list",
}


class Parsed(HTMLParser):
    """What a page has: its elements with their attributes, and the text of each section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {"": ""}
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag == "section":
            self._in = found["id"] or ""
            self.text[self._in] = ""

    def handle_data(self, data: str) -> None:
        self.text[self._in] += f"{data.strip()} " if data.strip() else ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def html(seen: ReportData) -> str:
    return render("templates", "report.html.j2", page=page(seen))


def parsed(seen: ReportData) -> Parsed:
    return Parsed(html(seen))


@pytest.fixture(scope="module")
def full() -> Parsed:
    return parsed(reported.seen())


def test_every_section_has_something_to_show(full: Parsed) -> None:
    assert [each["id"] for each in full.all("section")] == list(SECTIONS)
    for section in SECTIONS:
        assert "To get there:" not in full.text[section]


@pytest.mark.parametrize("section", SECTIONS)
def test_where_nothing_was_measured_it_says_how_and_shows_no_empty_figure(section: str) -> None:
    empty = parsed(reported.unmeasured())
    assert SECTIONS[section] in empty.text[section]
    assert empty.all("svg") == []
    assert empty.all("table") == []


def test_every_figure_has_a_caption_and_every_picture_a_title(full: Parsed) -> None:
    count = len(full.all("figure"))
    assert count == len(full.all("figcaption")) == len(full.all("svg")) > 10
    assert len(full.all("title")) == count + 1
    assert all(each.get("scope") for each in full.all("th"))


def test_what_was_changed_stands_with_its_reason(full: Parsed) -> None:
    text = full.text["changes"]
    assert re.search(r"sda nr_requests 256 2048 room for bursts .*\(D0-2\)", text)
    assert "irq40 … irq47 (8) irq_affinity 0-1 … 14-15 0 … 7" in text
    assert "irq81 … irq96 (16)" in text, "what the kernel places is told apart"


def test_what_was_put_back_stands_with_what_it_cost(full: Parsed) -> None:
    assert re.search(r"sdf nr_requests 256 2048 IOPS -2\d % \(-\d+ % to", full.text["changes"])
    assert "Put back: nr_requests." in full.text["before-after"]


def test_a_value_that_somebody_has_changed_since_is_told() -> None:
    seen = reported.seen()
    entry = replace(seen.journal.entries[0], value=1024)
    text = parsed(replace(seen, journal=replace(seen.journal, entries=(entry,)))).text
    assert "it is 2048 by now" in text["changes"]


def test_verdicts_have_their_intervals_and_words(full: Parsed) -> None:
    text = full.text["before-after"]
    assert "sdd, scheduler, nr_requests: improved" in text
    assert "sdf, nr_requests: regressed" in text
    assert re.search(r"IOPS [\d,]+ [\d,]+ \+\d+ % \(\+\d+ % to \+\d+ %\) improved", text)
    assert "scheduler none mq-deadline" in text
    assert "One probe before, one after" in text


def test_the_knee_is_named_in_words_and_marked(full: Parsed) -> None:
    assert "Past depth 32: 2 % more IOPS" in full.text["depth"]
    assert "(it may be anywhere from 16 to 64)" in full.text["depth"]
    assert "The shaded stretch" in full.text["depth"]
    assert "knee: 32" in full.text["depth"]
    assert "32 knee of sda" in re.sub(r"\s+", " ", full.text[""])


def test_a_knee_that_was_not_kept_has_no_range() -> None:
    seen = reported.seen()
    records = tuple(reported.depth_sweep(seen.machine))
    text = parsed(replace(seen, records=records)).text["depth"]
    assert "Past depth 32:" in text
    assert "how sure it is is unknown" in text


def test_what_a_sweep_stands_on_and_where_the_cpus_are_the_limit_is_told(full: Parsed) -> None:
    text = full.text["depth"]
    assert "kernel 6.1.0-56-amd64, scheduler none, nr_requests 256, 38 °C." in text
    assert "From depth 256 on the CPUs are the limit" in text
    assert "load and interrupts" in text
    assert "6.19 µs of CPU time each" in text, "that of interrupts included"


def test_depths_of_the_lun_itself_stand_side_by_side(full: Parsed) -> None:
    text = full.text["depth"]
    assert "sda: 8K random reads, by depth of the LUN itself" in text
    for own in (8, 16, 32, 64):
        assert f"LUN depth {own}: past depth {own}:" in text
    assert "LUN depth 128: no knee up to depth 128" in text
    assert text.count("8K random reads") == 1, "not five sweeps beside"


def test_runs_of_a_verdict_that_broke_littles_law_are_counted() -> None:
    seen = reported.seen()
    records = tuple(
        replace(each, proof=each.proof and replace(each.proof, doubted=3)) for each in seen.records
    )
    text = parsed(replace(seen, records=records)).text["before-after"]
    assert "3 runs broke Little's law" in text


def test_a_sweep_that_is_too_short_has_no_knee() -> None:
    seen = reported.seen()
    made = seen.machine
    short = parsed(replace(seen, records=tuple(reported.depth_sweep(made, depths=(1, 2, 4, 8)))))
    assert "No knee up to depth 8" in short.text["depth"]
    assert "knee: " not in short.text["depth"]


def test_how_sure_the_knee_is_is_shown_where_windows_were_kept() -> None:
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

    seen = reported.seen()
    sweep = tuple(map(noisy, reported.depth_sweep(seen.machine)))
    text = parsed(replace(seen, records=sweep)).text["depth"]
    assert "it may be anywhere from" in text
    assert "The shaded stretch" in text


def test_results_stand_beside_objective_documents_and_link(full: Parsed) -> None:
    text = full.text["latency"]
    assert re.search(r"sdc .*2 ms \(D3-8\): met, \d+ % to spare", text)
    assert "(D0-12)" in text
    assert "% of 7.88 GB/s" in text


def test_figures_that_break_littles_law_are_told(full: Parsed) -> None:
    assert "untrusted: under 90 %" in full.text["block"]
    assert "must not be trusted" in full.text["block"]


def test_links_below_their_best_and_isolated_cpus_are_told(full: Parsed) -> None:
    assert "link 8 GT/s x8 where 16 GT/s x16 can be" in full.text["adapters"]
    assert "sda … sdl (12)" in full.text["adapters"]
    assert "Isolated CPUs: 30-31" in full.text["interrupts"]
    assert "nvme0q1" in full.text["interrupts"]


def test_what_a_new_driver_has_made_stale_is_told() -> None:
    seen = reported.seen()
    newer = tuple(replace(each, driver_version="99.0") for each in seen.machine.adapters)
    text = parsed(replace(seen, machine=replace(seen.machine, adapters=newer))).text
    for section in ("before-after", "latency", "depth", "block", "mix"):
        assert "its driver was" in text[section]


def test_a_page_without_a_profile_has_its_measurements_still() -> None:
    seen = replace(reported.seen(), profile=None, plan=None)
    text = parsed(seen).text
    assert "Past depth 32" in text["depth"]
    assert "oltp" not in text["depth"]
    assert "no rule of this profile" in text["changes"]


def test_a_disk_that_is_gone_has_its_results_still() -> None:
    seen = reported.seen()
    rest = replace(seen.machine, endpoints=seen.machine.endpoints[1:])
    text = parsed(replace(seen, machine=rest, plan=make.make(rest, reported.oltp()))).text
    assert "the disk is not there any more" in text["depth"]


def test_nothing_is_loaded_and_nothing_runs(full: Parsed) -> None:
    forbidden = {"script", "link", "img", "iframe", "object", "embed", "base", "image", "use"}
    assert not forbidden & {tag for tag, _ in full.elements}
    for tag, attributes in full.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"], tag
        assert (attributes.get("href") or "#").startswith("#")
    [policy] = [each["content"] for each in full.all("meta") if "http-equiv" in each]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    text = html(reported.seen())
    assert not re.search(r"https?://|url\(|@import", text)


def test_names_from_the_kernel_stay_text(full: Parsed) -> None:
    assert reported.HOSTILE in full.text["adapters"]
    assert "<script" not in html(reported.seen())
    hostile = replace(
        reported.seen().machine, hostname=reported.HOSTILE, kernel=f"</style>{reported.HOSTILE}"
    )
    found = parsed(replace(reported.seen(), machine=hostile))
    assert found.all("script") == []
    assert reported.HOSTILE in found.text[""]


def test_a_disk_called_by_a_hostile_name_is_text_in_pictures_and_captions() -> None:
    seen = reported.seen()
    records = tuple(
        replace(
            each,
            target=reported.HOSTILE,
            result=each.result and replace(each.result, target=reported.HOSTILE),
            proof=each.proof and replace(each.proof, target=reported.HOSTILE),
        )
        for each in seen.records
    )
    text = html(replace(seen, records=records))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert Parsed(text).all("script") == []


def test_dark_colours_are_for_screens_only_and_there_is_a_style_for_paper() -> None:
    css = (shipped("templates") / "report.css").read_text()
    assert "@media screen and (prefers-color-scheme: dark)" in css
    assert css.count("prefers-color-scheme") == 1
    assert "@media print" in css


def test_what_is_not_drawn_for_its_number_is_told() -> None:
    seen = reported.seen()
    many = [
        replace(each, id=f"disk{number}", time=each.time + number)
        for number in range(8)
        for each in reported.depth_sweep(seen.machine)
    ]
    found = parsed(replace(seen, records=tuple(many)))
    assert "2 more sweeps are in `hbatune history`" in found.text["depth"]
