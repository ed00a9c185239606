"""The section on interference: a reader alone and beside a bulk writer, by scheduler."""

from collections.abc import Sequence

from hbatune.cli.text.probes import stale_notes
from hbatune.cli.text.rows import shown
from hbatune.cli.text.units import brief, digits, latency, percent_change, rate, when
from hbatune.facts.names import natural_key
from hbatune.probe.interference import Interference, find_interference
from hbatune.probe.model import ProbeResult
from hbatune.report.charts import Bar, ChartRow, Mark, Rows
from hbatune.report.figures import rows_figure
from hbatune.report.layout import logarithmic
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import LegendEntry, Shape
from hbatune.report.sweeps import HOLLOW

MOST = 24
"""The most pairs that are drawn; the table has all of them."""

_KEYS = (
    LegendEntry("p50 alone", "s0", Shape.CIRCLE),
    LegendEntry("p99 alone", "s2", Shape.SQUARE),
    LegendEntry("p50 beside the writer", "s3", Shape.TRIANGLE),
    LegendEntry("p99 beside the writer", "s1", Shape.DIAMOND),
)


def interference(data: ReportData) -> PageSection:
    """Return the section, by disk and scheduler."""
    found = sorted(
        find_interference(data.records),
        key=lambda each: (natural_key(each.beside.target), each.scheduler or ""),
    )
    howto = Howto(
        "No reader has been measured beside a bulk writer yet. It writes: name a folder on the "
        "disk.",
        "hbatune probe interference --file DIR",
    )
    blocks = (_block(data, found),) if found else ()
    return PageSection("interference", "What a bulk writer costs a reader", blocks, howto)


def _block(data: ReportData, found: Sequence[Interference]) -> Block:
    drawn = [each for each in found if min(_times(each)) > 0][:MOST]
    return Block(
        notes=tuple(dict.fromkeys(stale_notes(data.stale(*(each.record for each in found))))),
        figures=(_figure(drawn),) if drawn else (),
        tables=(_table(found),),
    )


def _times(found: Interference) -> tuple[float, ...]:
    """Return the four latencies in ms, in the order of the legend."""
    both = (found.alone.figures, found.beside.figures)
    return tuple(us / 1000 for each in both for us in (each.p50_us, each.p99_us))


def _figure(found: Sequence[Interference]) -> Figure:
    values = [time for each in found for time in _times(each)]
    name = "Latency of a reader, with and without a bulk writer"
    chart = Rows(name, logarithmic("latency, ms", values), tuple(map(_row, found)), _KEYS, pitch=44)
    caption = (
        "Each row is a disk with a scheduler. The further a row's marks beside the writer are from "
        "those alone, the less its scheduler protects the reader (I-schedulers)."
    )
    doubted = any(each.alone.doubt or each.beside.doubt for each in found)
    return rows_figure(chart, caption + (HOLLOW if doubted else ""))


def _row(found: Interference) -> ChartRow:
    times = _times(found)
    runs = (found.alone, found.alone, found.beside, found.beside)
    marks = tuple(
        Mark(time, key.shape or Shape.CIRCLE, key.style, run.doubt is not None)
        for time, key, run in zip(times, _KEYS, runs, strict=True)
    )
    bar = Bar(min(times), max(times), "spread", 3)
    return ChartRow(found.beside.target, _scheduler(found), (bar,), marks)


def _scheduler(found: Interference) -> str:
    return f"scheduler {shown(found.scheduler)}"


def _table(found: Sequence[Interference]) -> PageTable:
    heads = (
        "Disk",
        "Scheduler",
        "Reader",
        "Measured",
        "IOPS",
        "p50",
        "p99",
        "p99 beside",
        "Writer",
    )
    rows = tuple(
        (
            each.beside.target,
            shown(each.scheduler),
            brief(each.alone.workload),
            when(each.record.time),
            f"{rate(each.alone.figures.iops)} → {rate(each.beside.figures.iops)}",
            _both(each.alone.figures.p50_us, each.beside.figures.p50_us),
            _both(each.alone.figures.p99_us, each.beside.figures.p99_us),
            percent_change(each.beside.figures.p99_us / each.alone.figures.p99_us)
            if each.alone.figures.p99_us
            else shown(None),
            _written(each.beside),
        )
        for each in found
    )
    return PageTable("Alone, and beside the writer", heads, rows, frozenset(range(4, 9)))


def _both(alone: float, beside: float) -> str:
    return f"{latency(alone)} → {latency(beside)}"


def _written(beside: ProbeResult) -> str:
    rate_ = beside.figures.written_beside
    return shown(None) if rate_ is None else f"{digits(rate_ / 1e6)} MB/s"
