"""The section on latency: the percentiles of the newest result of each disk."""

from hbatune.cli.text.probes import load_text, stale_notes
from hbatune.cli.text.rows import shown
from hbatune.cli.text.table import NOTHING
from hbatune.cli.text.units import brief, digits, latency, percent_change, rate, when, whole
from hbatune.facts.names import natural_key
from hbatune.policy.load import MediumFigures
from hbatune.probe.comparison import Goal, LinkShare
from hbatune.probe.history import Record
from hbatune.probe.model import Figures, ProbeResult
from hbatune.probe.sweeps import lone_results
from hbatune.report.charts import Bar, ChartRow, Mark, Rows
from hbatune.report.figures import rows_figure
from hbatune.report.layout import logarithmic
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import LegendEntry, Shape

MOST = 24
"""The most disks that are drawn; the table has all of them."""

_KEYS = (
    LegendEntry("p50", "s0", Shape.CIRCLE),
    LegendEntry("p95", "s1", Shape.SQUARE),
    LegendEntry("p99", "s2", Shape.DIAMOND),
    LegendEntry("p99.9", "s3", Shape.TRIANGLE),
)


def newest(data: ReportData) -> PageSection:
    """Return the section."""
    records = sorted(
        lone_results(data.records, data.sweeps), key=lambda each: natural_key(each.target)
    )
    howto = Howto("No disk has been measured yet.", f"hbatune probe reference-short {data.disk}")
    blocks = (_block(data, records),) if records else ()
    alone = _baselines(data)
    table = _table(alone, "What one I/O at a time takes: the baselines (D3-1, D3-9)")
    baselines = (Block("One I/O at a time", tables=(table,)),) if alone else ()
    return PageSection("latency", "How long an I/O takes", (*blocks, *baselines), howto)


def _baselines(data: ReportData) -> list[Record]:
    """Return the newest run at depth 1 of each disk and load, those of sweeps left out."""
    swept = {id(record) for sweep in data.sweeps for record in sweep.records}
    found: dict[object, Record] = {}
    for record in sorted(data.records, key=lambda each: each.time):
        result = record.result
        if result is None or record.proof is not None or id(record) in swept:
            continue
        if result.workload.issued == 1 and result.workload.rate is None:
            found[record.id, load_text(result.workload)] = record
    return sorted(found.values(), key=lambda each: natural_key(each.target))


def _block(data: ReportData, records: list[Record]) -> Block:
    drawn = [record for record in records if _drawable(record)][:MOST]
    tables = [_table(records, "The newest result of each disk"), _standings(data, records)]
    return Block(
        notes=tuple(dict.fromkeys(stale_notes(data.stale(*records)))),
        figures=(_strip(drawn),) if drawn else (),
        tables=tuple(table for table in tables if table.rows),
    )


def _standings(data: ReportData, records: list[Record]) -> PageTable:
    """Return a table that compares the results with objective, documents and links."""
    heads = ("Disk", "p99", "Objective", "IOPS", "Documents, such a medium", "Share of the link")
    rows = []
    for record in records:
        found = None if record.result is None else data.standing(record.result)
        if record.result is not None and found is not None and (found.document or found.links):
            figures, links = record.result.figures, ", ".join(map(_link, found.links))
            goal, document = _goal(found.goal), _document(found.document)
            first = (record.target, latency(figures.p99_us), goal)
            rows.append((*first, rate(figures.iops), document, shown(links or None)))
    return PageTable("What these results stand beside", heads, tuple(rows), frozenset({1, 3}))


def _goal(goal: Goal | None) -> str:
    if goal is None:
        return NOTHING
    met = "met" if goal.met else "missed"
    spare = percent_change(1 + abs(goal.spare)).removeprefix("+")
    rest = f"{spare} to spare" if goal.met else f"by {spare}"
    return f"{goal.p99_ms:g} ms ({goal.source}): {met}, {rest}"


def _document(document: MediumFigures | None) -> str:
    if document is None:
        return NOTHING
    low, high = document.iops
    there = f"p99 {document.p99_ms:g} ms, {low:,} to {high:,} IOPS at depth {document.depth}"
    mean = ""
    if document.mean_ms is not None:
        low_ms, high_ms = document.mean_ms
        of = f"{low_ms:g}" if low_ms == high_ms else f"{low_ms:g} to {high_ms:g}"
        mean = f"; mean {of} ms ({document.mean_source})"
    return f"{there} ({document.source}){mean}"


def _link(link: LinkShare) -> str:
    used = percent_change(1 + link.used).removeprefix("+")
    return f"{used} of {digits(link.ceiling)} GB/s"


def _quantiles(figures: Figures) -> tuple[float, ...]:
    return figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us


def _drawable(record: Record) -> bool:
    # A logarithmic axis has no place for zero.
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
    return rows_figure(chart, caption)


def _row(result: ProbeResult) -> ChartRow:
    found = [us / 1000 for us in _quantiles(result.figures)]
    marks = zip(found, _KEYS, strict=True)
    return ChartRow(
        result.target,
        brief(result.workload),
        (Bar(min(found), max(found), "spread", 3),),
        tuple(Mark(value, key.shape or Shape.CIRCLE, key.style) for value, key in marks),
    )


def _table(records: list[Record], caption: str) -> PageTable:
    heads = ("Disk", "Workload", "Measured", "IOPS", "Mean", "p50", "p95", "p99", "p99.9", "CPU/IO")
    rows = []
    for record in records:
        if record.result is not None:
            figures = record.result.figures
            times = map(latency, (figures.mean_us, *_quantiles(figures)))
            first = (record.target, whole(record.result.workload), when(record.time))
            cpu = f"{digits(figures.cost_us_per_io)} µs"
            rows.append((*first, rate(figures.iops), *times, cpu))
    return PageTable(caption, heads, tuple(rows), frozenset(range(2, 10)))
