"""The page: each section shows something or says how to come by it, and nothing is loaded."""

import re

from msgspec.structs import replace

from hbatune.plan import make
from hbatune.report.summary import list_answers, make_sections
from hbatune.shipped import find_shipped
from tests.pages import CHECKOUT
from tests.unit import report_server as reported
from tests.unit.report.parsed_page import Parsed, make_html, parse_report

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


def test_full_report_fills_sections(full: Parsed) -> None:
    assert [element["id"] for element in full.all("section")] == list(SECTIONS)
    for section in SECTIONS:
        assert full.text[section]
    assert "Not measured yet" not in full.text[""]


def test_empty_sections_share_a_list() -> None:
    empty = parse_report(reported.unmeasured())
    assert [element["id"] for element in empty.all("section")] == ["unmeasured"]
    for section, command in SECTIONS.items():
        assert command in empty.text[section]
    assert len(empty.all("dd")) == len(SECTIONS) + 6
    assert empty.all("svg") == []
    assert empty.all("table") == []
    links = {element["href"] for element in empty.all("a")}
    assert links <= {f"#{element['id']}" for _, element in empty.elements if "id" in element}


def test_better_verdicts_come_first() -> None:
    [section] = [part for part in make_sections(reported.seen()) if part.id == "before-after"]
    words = [block.name.rpartition(": ")[2] for block in section.blocks if block.name]
    assert words[0] == "improved"
    assert words.index("regressed") < words.index("cannot tell")
    ranks = [{"improved": 0, "regressed": 1}.get(word, 2) for word in words]
    assert ranks == sorted(ranks)


def test_tiles_have_colours_with_meaning(full: Parsed) -> None:
    html = make_html(reported.seen())
    tiles = re.findall(
        r'<li class="(\w*)"><a href="#([\w-]+)"><strong>(.+?)</strong> (.+?)</a>', html
    )
    marks = {text: (mark, section) for mark, section, _, text in tiles}
    assert "<title>db1: 1 better, 1 worse, 1 could not tell - hbatune report</title>" in html
    assert marks["better"] == ("good", "before-after")
    assert marks["worse"] == ("bad", "before-after")
    assert marks["still to change"] == ("look", "changes")
    assert marks["could not tell"][0] == "off"
    assert {section for _, section in marks.values()} <= {
        part["id"] for part in full.all("section")
    }
    css = (find_shipped("templates") / "report.css").read_text()
    colours = {mark: re.findall(rf"--{mark}: (#\w+);", css) for mark in ("good", "look", "bad")}
    assert all(len(set(values)) == 2 for values in colours.values()), "light and dark"
    assert all(f".tiles .{mark} {{ border-color: var(--{mark}); }}" in css for mark in colours)


def test_figures_have_captions_and_titles(full: Parsed) -> None:
    count = len(full.all("figure"))
    assert count == len(full.all("figcaption")) == len(full.all("svg")) > 10
    assert len(full.all("title")) == count + 1
    assert all(element.get("scope") for element in full.all("th"))


def test_verdicts_come_first(full: Parsed) -> None:
    assert full.all("section")[0]["id"] == "before-after"


def test_page_begins_with_three_answers() -> None:
    report = reported.seen()
    improved, regressed, next_step = list_answers(report)
    assert improved.startswith("sdd improved: IOPS between +")
    assert re.search(r"sdf regressed: .* \(reverted: nr_requests\)", regressed)
    assert re.search(r"`hbatune apply --profile oltp` changes \d+ settings?", next_step)
    head = parse_report(report).text[""]
    assert head.index(improved) < head.index(regressed) < head.index(next_step)


def test_unmeasured_page_claims_nothing() -> None:
    improved, regressed, _ = list_answers(reported.unmeasured())
    assert "No comparison shows" in improved
    assert "No comparison shows" in regressed


def test_stale_results_are_marked() -> None:
    report = reported.seen()
    newer = tuple(replace(adapter, driver_version="99.0") for adapter in report.machine.adapters)
    text = parse_report(replace(report, machine=replace(report.machine, adapters=newer))).text
    for section in SECTIONS.keys() - {"changes", "adapters", "interrupts"}:
        assert "its driver was" in text[section]


def test_missing_profile_preserves_measurements() -> None:
    report = replace(reported.seen(), profile=None, plan=None)
    text = parse_report(report).text
    assert "Past depth 32" in text["depth"]
    assert "oltp" not in text["depth"]
    assert "no rule of this profile" in text["changes"]


def test_vanished_disk_shows_results() -> None:
    report = reported.seen()
    without_disk = replace(report.machine, endpoints=report.machine.endpoints[1:])
    plan = make.make_plan(without_disk, reported.oltp())
    text = parse_report(replace(report, machine=without_disk, plan=plan)).text
    assert "the disk is not there any more" in text["depth"]


def test_page_loads_nothing(full: Parsed) -> None:
    forbidden = {"script", "link", "img", "iframe", "object", "embed", "base", "image", "use"}
    assert not forbidden & {tag for tag, _ in full.elements}
    for tag, attributes in full.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"], tag
        assert (attributes.get("href") or "#").startswith("#")
    [policy] = [element["content"] for element in full.all("meta") if "http-equiv" in element]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    text = make_html(reported.seen())
    assert not re.search(r"https?://|url\(|@import", text)


def test_kernel_names_stay_text(full: Parsed) -> None:
    assert reported.HOSTILE in full.text["adapters"]
    assert "<script" not in make_html(reported.seen())
    hostile = replace(
        reported.seen().machine, hostname=reported.HOSTILE, kernel=f"</style>{reported.HOSTILE}"
    )
    page = parse_report(replace(reported.seen(), machine=hostile))
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
    text = make_html(replace(report, records=records))
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
    page = parse_report(replace(report, records=tuple(sweeps)))
    assert "2 more sweeps are in `hbatune history`" in page.text["depth"]


def test_documented_figures_are_drawn() -> None:
    """The table in docs/report.md names no figure that is not drawn."""
    lines = [line for line in REPORT.read_text().splitlines() if re.match(r"\| D\d, ", line)]
    assert {line[2:4] for line in lines} == {"D0", "D1", "D2", "D3", "D4"}
    assert all('"' in line for line in lines)
    named = {name for line in lines for name in re.findall(r'"([^"]+)"', line)}
    drawn = {
        figure.name
        for section in make_sections(reported.seen())
        for block in section.blocks
        for figure in block.figures
    }
    assert len(named) > 12
    assert named <= drawn
