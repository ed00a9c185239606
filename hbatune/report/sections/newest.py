"""How long I/Os took: the percentiles of the newest result of each disk."""

from hbatune.cli.commands.history import stale_notes
from hbatune.cli.text.before_after import digits
from hbatune.cli.text.fold import NOTHING, shown
from hbatune.policy.references import MediumFigures
from hbatune.probe.history import Record
from hbatune.probe.model import Figures, Result
from hbatune.probe.select import natural
from hbatune.probe.standing import Goal, LinkShare
from hbatune.report.charts.axis import logarithmic
from hbatune.report.charts.rows import Bar, Mark, Row, Rows, draw
from hbatune.report.charts.svg import Key, Shape
from hbatune.report.page import Block, Figure, Howto, Section, Table
from hbatune.report.sections.seen import Seen
from hbatune.report.sections.words import brief, latency, percent, rate, when, whole
from hbatune.report.sweeps import lone

MOST = 24
"""Disks that are drawn; the table has the others as well."""

_KEYS = (
    Key("p50", "s0", Shape.CIRCLE),
    Key("p95", "s1", Shape.SQUARE),
    Key("p99", "s2", Shape.DIAMOND),
    Key("p99.9", "s3", Shape.TRIANGLE),
)


def newest(seen: Seen) -> Section:
    """Return the section."""
    records = sorted(lone(seen.records, seen.sweeps), key=lambda each: natural(each.target))
    howto = Howto("No disk has been measured yet.", f"hbatune probe reference-short {seen.disk}")
    blocks = (_block(seen, records),) if records else ()
    return Section("latency", "How long an I/O takes", blocks, howto)


def _block(seen: Seen, records: list[Record]) -> Block:
    drawn = [record for record in records if _drawable(record)][:MOST]
    tables = [_table(records), _standings(seen, records)]
    return Block(
        notes=tuple(dict.fromkeys(stale_notes(seen.stale(*records)))),
        figures=(_strip(drawn),) if drawn else (),
        tables=tuple(table for table in tables if table.rows),
    )


def _standings(seen: Seen, records: list[Record]) -> Table:
    """Return how the results stand to the objective, the documents and the links, where known."""
    heads = ("Disk", "p99", "Objective", "IOPS", "Documents, such a medium", "Share of the link")
    rows = []
    for record in records:
        found = None if record.result is None else seen.standing(record.result)
        if record.result is not None and found is not None and (found.document or found.links):
            figures, links = record.result.figures, ", ".join(map(_link, found.links))
            goal, document = _goal(found.goal), _document(found.document)
            first = (record.target, latency(figures.p99_us), goal)
            rows.append((*first, rate(figures.iops), document, shown(links or None)))
    return Table("What these results stand beside", heads, tuple(rows), frozenset({1, 3}))


def _goal(goal: Goal | None) -> str:
    if goal is None:
        return NOTHING
    met = "met" if goal.met else "missed"
    spare = percent(1 + abs(goal.spare)).removeprefix("+")
    rest = f"{spare} to spare" if goal.met else f"by {spare}"
    return f"{goal.p99_ms:g} ms ({goal.source}): {met}, {rest}"


def _document(document: MediumFigures | None) -> str:
    if document is None:
        return NOTHING
    low, high = document.iops
    there = f"p99 {document.p99_ms:g} ms, {low:,} to {high:,} IOPS at depth {document.depth}"
    return f"{there} ({document.source})"


def _link(link: LinkShare) -> str:
    used = percent(1 + link.used).removeprefix("+")
    return f"{used} of {digits(link.ceiling)} GB/s"


def _quantiles(figures: Figures) -> tuple[float, ...]:
    return figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us


def _drawable(record: Record) -> bool:
    return record.result is not None and min(_quantiles(record.result.figures)) > 0


def _strip(records: list[Record]) -> Figure:
    results = [record.result for record in records if record.result is not None]
    values = [us / 1000 for result in results for us in _quantiles(result.figures)]
    name = "Percentiles of latency"
    chart = Rows(
        name, logarithmic("latency, ms", values), tuple(map(_row, results)), _KEYS, pitch=44
    )
    caption = (
        "The newest result of each disk, from submission to completion, on a logarithmic axis. "
        "Half of all I/Os took no longer than p50, all but one in a thousand no longer than p99.9."
    )
    return Figure(name, draw(chart), caption)


def _row(result: Result) -> Row:
    found = [us / 1000 for us in _quantiles(result.figures)]
    marks = zip(found, _KEYS, strict=True)
    return Row(
        result.target,
        brief(result.workload),
        (Bar(min(found), max(found), "spread", 3),),
        tuple(Mark(value, key.shape or Shape.CIRCLE, key.style) for value, key in marks),
    )


def _table(records: list[Record]) -> Table:
    heads = ("Disk", "Workload", "Measured", "IOPS", "Mean", "p50", "p95", "p99", "p99.9", "CPU/IO")
    rows = []
    for record in records:
        if record.result is not None:
            figures = record.result.figures
            times = map(latency, (figures.mean_us, *_quantiles(figures)))
            first = (record.target, whole(record.result.workload), when(record.time))
            cpu = f"{digits(figures.cost_us_per_io)} µs"
            rows.append((*first, rate(figures.iops), *times, cpu))
    return Table("The newest result of each disk", heads, tuple(rows), frozenset(range(2, 10)))
