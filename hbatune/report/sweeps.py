"""The sections on block sizes and on the read share, and the parts that all sweeps share."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from hbatune.cli.text.probes import doubt_text, mix_line, stale_notes
from hbatune.cli.text.units import block, digits, ground, latency, pattern, rate
from hbatune.probe.comparison import mix_cost
from hbatune.probe.model import Figures, ProbeResult, Workload
from hbatune.probe.sweeps import Sweep, Swept
from hbatune.report.charts import Curves, Dot, Series
from hbatune.report.figures import curves_figure
from hbatune.report.layout import Axis, Tick, linear, logarithmic, measured
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData

MOST = 6
"""The most sweeps of one kind that are drawn, the newest first."""

HOLLOW = " Hollow points break Little's law: they must not be trusted."
CPU = "CPU time, % of one CPU"
Take = Callable[[Figures], float]


def blocks(data: ReportData) -> PageSection:
    """Return the section on block sizes."""
    howto = Howto(
        "No block size sweep has been made yet.", f"hbatune probe block-sweep {data.disk}"
    )
    return _section(data, Swept.BLOCK, "What block size buys", howto, _block_figures)


def mixes(data: ReportData) -> PageSection:
    """Return the section on the share of reads, whose workload destroys data on the disk."""
    howto = Howto(
        # DISK and not a real name: a command that destroys data must not be ready to paste.
        "No sweep of the read share has been made yet. It writes: name an empty disk.",
        "hbatune probe mix-sweep DISK --destructive",
    )
    return _section(data, Swept.MIX, "What writes cost", howto, _mix_figures)


def chosen(data: ReportData, swept: Swept) -> list[Sweep]:
    """Return the newest sweeps of a kind that can be drawn."""
    return [each for each in data.sweeps if each.swept is swept and drawable(each)]


def drawable(sweep: Sweep) -> bool:
    """Whether all its figures are above zero, as logarithmic axes need."""
    figures = [result.figures for result in sweep.results]
    return all(min(each.iops, each.p50_us, each.p99_us) > 0 for each in figures)


def older(found: Sequence[Sweep]) -> Iterator[Block]:
    """Yield a note on sweeps that are not drawn, if any."""
    if len(found) > MOST:
        yield Block(notes=(f"{len(found) - MOST} more sweeps are in `hbatune history`.",))


def series(sweep: Sweep, name: str, take: Take) -> Series:
    """Return one figure of every run as a curve over the swept value."""
    return Series(name, tuple(_dot(sweep, each, take) for each in sweep.results))


def doubts(sweep: Sweep) -> str:
    """Return a note on points that must not be trusted, empty where there are none."""
    return HOLLOW if any(each.doubt for each in sweep.results) else ""


def over(sweep: Sweep) -> Axis:
    """Return the axis of the swept value."""
    values = [sweep.swept.of(each.workload) for each in sweep.results]
    if sweep.swept is Swept.MIX:
        ticks = tuple(Tick(value, str(value)) for value in sorted(values))
        return Axis("share of reads, %", min(values), max(values), ticks)
    if sweep.swept is Swept.DEPTH:
        return measured("depth, I/Os in flight", {value: str(value) for value in values})
    return measured("block size, bytes", {value: block(value) for value in values})


def cpu_percent(figures: Figures) -> float:
    """Return the CPU time that a run took, in percent of one CPU."""
    return figures.iops * figures.cost_us_per_io / 10_000


def rate_by_cpu(sweep: Sweep) -> Figure:
    """Return the IOPS of each run over the CPU time that they took (D1-1)."""
    dots = tuple(
        Dot(
            cpu_percent(each.figures),
            each.figures.iops,
            _value(sweep.swept, each.workload),
            doubted=each.doubt is not None,
        )
        for each in sweep.results
    )
    chart = Curves(
        "IOPS over CPU time",
        linear(CPU, [dot.x for dot in dots]),
        linear("IOPS, I/Os per second", [dot.y for dot in dots]),
        (Series("IOPS", dots),),
    )
    what = {Swept.DEPTH: "depth", Swept.BLOCK: "block size", Swept.MIX: "share of reads"}
    caption = (
        f"Each point is a {what[sweep.swept]}, which stands beside it. The steeper, the less an "
        "I/O costs the CPUs (D1-1)."
    )
    return curves_figure(chart, caption + doubts(sweep))


def table(sweep: Sweep) -> PageTable:
    """Return the figures behind the curves."""
    heads = ("IOPS", "MB/s", "Mean", "p50", "p95", "p99", "p99.9", "CPU/IO", "Note")
    first = {Swept.DEPTH: "Depth", Swept.BLOCK: "Block", Swept.MIX: "Reads"}[sweep.swept]
    rows = tuple((_value(sweep.swept, each.workload), *_cells(each)) for each in sweep.results)
    return PageTable("The figures of these runs", (first, *heads), rows, frozenset(range(9)))


def joined_table(found: Sequence[Sweep], what: str, name: Callable[[Sweep], str]) -> PageTable:
    """Return the figures behind several curves, each row with the name of its curve first."""
    tables = [table(sweep) for sweep in found]
    rows = tuple(
        (name(sweep), *row) for sweep, made in zip(found, tables, strict=True) for row in made.rows
    )
    first = tables[0]
    right = frozenset(column + 1 for column in first.right)
    return replace(first, heads=(what, *first.heads), rows=rows, right=right)


def _section(
    data: ReportData,
    swept: Swept,
    name: str,
    howto: Howto,
    figures: Callable[[Sweep], Iterable[Figure]],
) -> PageSection:
    found = chosen(data, swept)
    made = [
        Block(
            name=_name(sweep),
            notes=(
                *_costs(data, sweep),
                ground(sweep.records[-1]),
                *stale_notes(data.stale(sweep.records[-1])),
            ),
            figures=tuple(figures(sweep)),
            folded=(table(sweep),),
        )
        for sweep in found[:MOST]
    ]
    return PageSection(str(swept), name, (*made, *older(found)), howto)


def _costs(data: ReportData, sweep: Sweep) -> Iterator[str]:
    """Yield what writes cost beside the documents' figures (D0-15), where that was measured."""
    if (found := mix_cost(sweep.results, data.yardsticks)) is not None:
        line = mix_line(found)
        yield f"{line[0].upper()}{line[1:]}."


def _name(sweep: Sweep) -> str:
    asked = sweep.workload
    if sweep.swept is Swept.BLOCK:
        return f"{sweep.results[0].target}: {pattern(asked)}, {asked.issued} deep"
    return f"{sweep.results[0].target}: {block(asked.block_size)} random I/O, {asked.issued} deep"


def _block_figures(sweep: Sweep) -> Iterator[Figure]:
    yield _plain(
        sweep,
        "IOPS over block size",
        "IOPS, I/Os per second",
        lambda figures: figures.iops,
        "Small blocks show how many I/Os disk and adapter manage.",
    )
    yield _plain(
        sweep,
        "Throughput over block size",
        "throughput, MB/s",
        lambda figures: figures.bandwidth / 1e6,
        "Large blocks show what disk and link carry.",
    )
    yield _plain(
        sweep,
        "CPU time over block size",
        CPU,
        cpu_percent,
        "What the load and its interrupts take; several CPUs together may take more than 100 %.",
    )
    yield rate_by_cpu(sweep)


def _mix_figures(sweep: Sweep) -> Iterator[Figure]:
    yield _plain(
        sweep,
        "IOPS over the share of reads",
        "IOPS, I/Os per second",
        lambda figures: figures.iops,
        "From writes alone on the left to reads alone on the right.",
    )
    name = "Latency over the share of reads"
    curves = (
        series(sweep, "p50", lambda figures: figures.p50_us / 1000),
        series(sweep, "p99", lambda figures: figures.p99_us / 1000),
    )
    values = [dot.y for each in curves for dot in each.dots]
    chart = Curves(name, over(sweep), logarithmic("latency, ms", values), curves)
    yield curves_figure(chart, f"Reads and writes together.{doubts(sweep)}")


def _plain(sweep: Sweep, name: str, unit: str, take: Take, caption: str) -> Figure:
    curve = series(sweep, unit, take)
    chart = Curves(name, over(sweep), linear(unit, [dot.y for dot in curve.dots]), (curve,))
    return curves_figure(chart, caption + doubts(sweep))


def _dot(sweep: Sweep, result: ProbeResult, take: Take) -> Dot:
    value = sweep.swept.of(result.workload)
    return Dot(value, take(result.figures), doubted=result.doubt is not None)


def _value(swept: Swept, workload: Workload) -> str:
    value = swept.of(workload)
    return {Swept.BLOCK: block(value), Swept.MIX: f"{value} %"}.get(swept, str(value))


def _cells(result: ProbeResult) -> tuple[str, ...]:
    figures = result.figures
    times = (figures.mean_us, figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us)
    return (
        rate(figures.iops),
        digits(figures.bandwidth / 1e6),
        *map(latency, times),
        f"{digits(figures.cost_us_per_io)} µs",
        doubt_text(result),
    )
