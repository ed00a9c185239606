"""The sections on changes, verdicts and searches."""

import re

from msgspec.structs import replace

from hbatune.probe.history import TracedCause
from tests.unit import report_server as reported
from tests.unit.report.parsed_page import Parsed, parse_report


def test_changes_show_reasons(full: Parsed) -> None:
    text = full.text["changes"]
    assert re.search(r"sda nr_requests 256 2048 lets the block layer .*\(D0-2\)", text)
    assert "irq40..irq47 (8) irq_affinity 0-1 … 14-15 0 … 7" in text
    assert "irq81..irq95 (15)" in text, "what the kernel places is told apart"


def test_reverted_changes_show_cost(full: Parsed) -> None:
    assert re.search(r"sdf nr_requests 256 2048 IOPS -2\d % \(-\d+ % to", full.text["changes"])
    assert "Reverted: nr_requests." in full.text["before-after"]


def test_foreign_change_is_reported() -> None:
    report = reported.seen()
    entry = replace(report.journal.entries[0], value=1024)
    text = parse_report(replace(report, journal=replace(report.journal, entries=(entry,)))).text
    assert "it is 2048 by now" in text["changes"]


def test_verdicts_show_intervals(full: Parsed) -> None:
    text = full.text["before-after"]
    assert "sdd, scheduler, nr_requests: improved" in text
    assert "sdf, nr_requests: regressed" in text
    assert re.search(r"IOPS [\d,]+ [\d,]+ \+\d+ % \(\+\d+ % to \+\d+ %\) improved", text)
    assert "scheduler none mq-deadline" in text


def test_doubted_runs_are_counted() -> None:
    report = reported.seen()
    records = tuple(
        replace(record, proof=record.proof and replace(record.proof, doubted=3))
        for record in report.records
    )
    text = parse_report(replace(report, records=records)).text["before-after"]
    assert "3 runs broke Little's law" in text


def test_search_shows_probes_and_answer(full: Parsed) -> None:
    text = full.text["search"]
    assert (
        "queue_depth 126: better than the value before, 91 % sure; the value before was 254."
        in text
    )
    assert "answer: 126" in text
    assert "objective: 2 ms" in text
    assert "p99 of the reader, ms" in text
    assert "scheduler none in force, 400 MB/s" in text
    assert "rq_affinity 1: as good as the best, 126 deep." in text
    assert "scheduler bfq: better than the value before, 126 deep with a bulk writer." in text


def test_incomplete_search_is_drawn() -> None:
    report = reported.seen()
    search_record = reported.searched(report.machine)
    assert search_record.search is not None
    bare = replace(
        search_record, search=replace(search_record.search, objective_us=None, settings=())
    )
    text = parse_report(replace(report, records=(bare,))).text["search"]
    assert "No objective: the highest rate was searched." in text
    none = replace(search_record, search=replace(search_record.search, depth=None))
    text = parse_report(replace(report, records=(none,))).text["search"]
    assert "at the depths tried" not in text
    assert "Candidates with a bulk writer" in text


def test_prediction_is_next_to_the_result() -> None:
    report = reported.seen()
    [proven, *_] = [r for r in report.records if r.proof and r.proof.settings == ("nr_requests",)]
    cause = TracedCause("nr_requests", "nr_requests", 0.6, 37_000)
    traced = replace(proven, time=proven.time - 60, proof=None, result=None, traced=cause)
    later = replace(traced, id="sda", target="sda", traced=replace(cause, lever="scheduler"))
    shown = parse_report(replace(report, records=(*report.records, traced, later))).text
    predicted = "`why` predicted at most 60 % less p99 before it. The comparison measured"
    assert predicted in shown["before-after"]
    unlike = replace(traced, traced=replace(cause, lever="queue_depth"))
    shown = parse_report(replace(report, records=(*report.records, unlike))).text
    assert "predicted" not in shown["before-after"]
