"""The sections on the latency of disks and on all disks of an adapter at once.

The section on latency: the percentiles of the newest result of each disk.

The section on adapters: all disks at once beside the sum of each alone (D1-5, D4-9).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from hbatune.facts.names import natural_key
from hbatune.policy.library import MediumFigures
from hbatune.probe.comparison import Goal, LinkShare
from hbatune.probe.history import KeptTogether, Record
from hbatune.probe.result import Figures, ProbeResult, Workload
from hbatune.probe.sweeps import Swept, lone_results
from hbatune.report.charts import (
    Bar,
    ChartRow,
    Curves,
    Dot,
    Guide,
    Mark,
    Rows,
    Series,
    curves_figure,
    rows_figure,
)
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import LegendEntry, Shape, linear, logarithmic, measured
from hbatune.report.sweep_sections import CPU, HOLLOW, cpu_percent
from hbatune.text.basic_output import quantity
from hbatune.text.plan_tables import shown, targets_text
from hbatune.text.probe_tables import bottleneck_text, doubt_text, load_text, stale_notes
from hbatune.text.tables import NOTHING
from hbatune.text.units import (
    block,
    brief,
    digits,
    format_time,
    latency,
    pattern,
    percent,
    percent_change,
    rate,
    workload_text,
)

MAX_DISKS = 24
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
    blocks = (_latency_block(data, records),) if records else ()
    alone = _baselines(data)
    table = _latency_table(alone, "What one I/O at a time takes: the baselines (D3-1, D3-9)")
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


def _latency_block(data: ReportData, records: list[Record]) -> Block:
    drawn = [record for record in records if _drawable(record)][:MAX_DISKS]
    tables = [_latency_table(records, "The newest result of each disk"), _standings(data, records)]
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
        name, logarithmic("latency, ms", values), tuple(map(_latency_row, results)), _KEYS, pitch=44
    )
    caption = (
        "The newest result of each disk, from submission to completion, on a logarithmic axis. "
        "Half of all I/Os took no longer than p50, all but one in a thousand no longer than p99.9."
    )
    return rows_figure(chart, caption)


def _latency_row(result: ProbeResult) -> ChartRow:
    found = [us / 1000 for us in _quantiles(result.figures)]
    marks = zip(found, _KEYS, strict=True)
    return ChartRow(
        result.target,
        brief(result.workload),
        (Bar(min(found), max(found), "spread", 3),),
        tuple(Mark(value, key.shape or Shape.CIRCLE, key.style) for value, key in marks),
    )


def _latency_table(records: list[Record], caption: str) -> PageTable:
    heads = ("Disk", "Workload", "Measured", "IOPS", "Mean", "p50", "p95", "p99", "p99.9", "CPU/IO")
    rows = []
    for record in records:
        if record.result is not None:
            figures = record.result.figures
            times = map(latency, (figures.mean_us, *_quantiles(figures)))
            first = (record.target, workload_text(record.result.workload), format_time(record.time))
            cpu = f"{digits(figures.cost_us_per_io)} µs"
            rows.append((*first, rate(figures.iops), *times, cpu))
    return PageTable(caption, heads, tuple(rows), frozenset(range(2, 10)))


MAX_ADAPTERS = 6
"""The most adapters that are drawn."""
MAX_RUNS = 12
"""The most runs of one command that are drawn as rows."""
_FEWEST = 3
"""Block sizes from which on they make a curve."""
_NEAR = 3.0
"""A link's ceiling is drawn where it is at most so many times the most that was measured."""
_RATE = "IOPS, I/Os per second"


class _Run(Struct, frozen=True):
    """A run on all disks of an adapter, with its record."""

    record: Record
    found: KeptTogether

    @property
    def alone(self) -> float:
        """The sum of the IOPS of each disk alone."""
        return sum(self.found.alone_iops)

    @property
    def gb_per_s(self) -> float:
        """What the disks moved at once."""
        return self.found.figures.bandwidth / 1e9


def together(data: ReportData) -> PageSection:
    """Return the section, the adapter that was measured last first."""
    runs = [
        _Run(each, each.together)
        for each in sorted(data.records, key=lambda record: record.time)
        if each.together is not None and each.together.targets
    ]
    adapters: dict[str, list[_Run]] = {}
    for run in reversed(runs):
        adapters.setdefault(run.record.id, []).append(run)
    howto = Howto(
        "The disks of no adapter have been measured at once yet. Name two or more.",
        f"hbatune probe block-sweep-small {data.disk} DISK --together",
    )
    blocks = [_adapter_block(data, adapter) for adapter in list(adapters.values())[:MAX_ADAPTERS]]
    if len(adapters) > MAX_ADAPTERS:
        more = len(adapters) - MAX_ADAPTERS
        blocks.append(Block(notes=(f"{more} more adapters are in `hbatune history`.",)))
    name = "What an adapter does with all its disks"
    return PageSection("together", name, tuple(blocks), howto)


def _adapter_block(data: ReportData, runs: Sequence[_Run]) -> Block:
    """Return the newest runs of each command, and those of other numbers of disks."""
    newest = _newest(runs)
    loads = [load for made in newest for load in _loads(made)]
    sweeps = [load for load in loads if _is_sweep(load)]
    rest = [run for load in loads if not _is_sweep(load) for run in load]
    figures = [figure for load in sweeps for figure in _over_blocks(load, apart=len(sweeps) > 1)]
    if rest:
        figures.append(_side_by_side(rest[:MAX_RUNS]))
    if (scaled := _scaling(newest[0][-1], runs)) is not None:
        figures.append(scaled)
    stale = data.stale(*(made[-1].record for made in newest))
    notes = [note for sweep in (*sweeps, rest) if sweep for note in _adapter_notes(sweep)]
    return Block(
        name=runs[0].record.target,
        notes=(*notes, *stale_notes(stale)),
        figures=tuple(figures),
        folded=(_adapter_table([run for made in newest for run in made]),),
    )


def _newest(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the runs that each command has made last, in their order, the newest command first."""
    last: dict[str, tuple[float, str]] = {}
    for run in runs:
        last.setdefault(run.record.command, (run.record.time, run.record.boot_id))
    return [
        [
            each
            for each in reversed(runs)
            if (each.record.command, each.record.time, each.record.boot_id) == (command, *asked)
        ]
        for command, asked in last.items()
    ]


def _loads(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the runs of one command by load: those of one differ in the size of blocks only."""
    found: dict[Workload, list[_Run]] = {}
    for run in runs:
        found.setdefault(Swept.BLOCK.without(run.found.workload), []).append(run)
    return list(found.values())


def _is_sweep(load: Sequence[_Run]) -> bool:
    """Whether there are enough sizes of blocks for a curve, one run of each."""
    sizes = {each.found.workload.block_size for each in load}
    return len(sizes) == len(load) >= _FEWEST


def _adapter_notes(runs: Sequence[_Run]) -> Iterator[str]:
    first = runs[0]
    disks, made = quantity(len(first.found.targets), "disk"), format_time(first.record.time)
    named, sweep = targets_text(first.found.targets), _is_sweep(runs)
    what = f"{disks} at once, {pattern(first.found.workload)}" if sweep else f"{disks} at once"
    yield f"{what}, measured {made} on kernel {first.record.kernel}: {named}."
    for text in dict.fromkeys(bottleneck_text(run.found) for run in runs):
        of = [run for run in runs if bottleneck_text(run.found) == text]
        names = [_name(each) if sweep else brief(each.found.workload) for each in of]
        which = "" if len(of) == len(runs) else f"{', '.join(names)}: "
        told = f"{which}{text}."
        yield f"{told[0].upper()}{told[1:]}"


def _name(run: _Run) -> str:
    return block(run.found.workload.block_size)


def _over_blocks(runs: Sequence[_Run], *, apart: bool) -> Iterator[Figure]:
    """Yield the pictures of a load over the size of blocks, told ``apart`` by their names."""
    kind = f": {pattern(runs[0].found.workload)}" if apart else ""
    untrusted = _untrusted(runs)
    caption = f"Where the lines part, the disks hold each other back (D1-5).{untrusted}"
    name = f"IOPS of all disks over block size{kind}"
    yield _against_sum(runs, name, _RATE, caption, lambda _, iops: iops)
    ceiling = runs[0].found.ceiling
    caption = "Large blocks show what adapter and link carry (D4-9)."
    if ceiling is not None:
        caption += f" The adapter's link carries {digits(ceiling)} GB/s."
    caption += untrusted
    name = f"Throughput of all disks over block size{kind}"
    yield _against_sum(
        runs, name, "throughput, GB/s", caption, lambda size, iops: size * iops / 1e9, ceiling
    )
    dots = tuple(
        Dot(
            cpu_percent(run.found.figures),
            run.found.figures.iops,
            _name(run),
            doubted=run.found.doubt is not None,
        )
        for run in runs
    )
    chart = Curves(
        f"IOPS of all disks over CPU time{kind}",
        linear(CPU, [dot.x for dot in dots]),
        linear(_RATE, [dot.y for dot in dots]),
        (Series("all at once", dots),),
    )
    yield curves_figure(
        chart,
        "Each point is a block size, which stands beside it. The steeper, the less an I/O costs "
        f"the CPUs (D1-5).{untrusted}",
    )


def _untrusted(runs: Iterable[_Run]) -> str:
    """Return the end of a caption that says what hollow points are, empty where there are none."""
    return HOLLOW if any(run.found.doubt for run in runs) else ""


def _against_sum(
    runs: Sequence[_Run],
    name: str,
    unit: str,
    caption: str,
    take: Callable[[int, float], float],
    ceiling: float | None = None,
) -> Figure:
    """Return what the disks do at once beside the sum of each alone, over the size of blocks.

    ``take`` makes a value of the size in bytes and the IOPS.
    """
    sizes = [run.found.workload.block_size for run in runs]
    pairs = list(zip(sizes, runs, strict=True))
    at_once = [
        Dot(size, take(size, each.found.figures.iops), doubted=each.found.doubt is not None)
        for size, each in pairs
    ]
    added = [Dot(size, take(size, each.alone)) for size, each in pairs]
    values = [dot.y for dot in (*at_once, *added)]
    level = None
    if ceiling is not None and ceiling <= _NEAR * max(values):
        level = Guide(ceiling, f"link: {digits(ceiling)} GB/s")
        values.append(ceiling)
    chart = Curves(
        name,
        measured("block size, bytes", {size: block(size) for size in sizes}),
        linear(unit, values),
        (Series("all at once", tuple(at_once)), Series("sum of each alone", tuple(added))),
        level=level,
    )
    return curves_figure(chart, caption)


def _side_by_side(runs: Sequence[_Run]) -> Figure:
    """Return a row for each load, with what the disks do at once and the sum of each alone."""
    rows = tuple(
        ChartRow(
            brief(run.found.workload),
            percent(run.found.share) + (", untrusted" if run.found.doubt else ""),
            (Bar(0, run.alone, "room", 14), Bar(0, run.found.figures.iops, "s0", 8)),
        )
        for run in runs
    )
    values = [value for run in runs for value in (run.alone, run.found.figures.iops)]
    keys = (LegendEntry("all at once", "s0", None), LegendEntry("sum of each alone", "room", None))
    chart = Rows("All disks at once", linear(_RATE, values), rows, keys, pitch=44)
    return rows_figure(
        chart, "Where the bar ends before its outline, the disks hold each other back."
    )


def _scaling(last: _Run, runs: Sequence[_Run]) -> Figure | None:
    """Return the rate over the number of disks, by the newest run of each number.

    The same load is meant; what one disk does is the mean of each alone. None where that is all.
    """
    alike = [run for run in runs if run.found.workload == last.found.workload]
    newest: dict[int, _Run] = {}
    for each in alike:
        newest.setdefault(len(each.found.targets), each)
    if len(newest) < 2 or not last.found.alone_iops:
        return None
    one = last.alone / len(last.found.alone_iops)
    counts = sorted(newest)
    several = [newest[each] for each in counts]
    at_once = [
        Dot(1, one),
        *(
            Dot(count, each.found.figures.iops, doubted=each.found.doubt is not None)
            for count, each in zip(counts, several, strict=True)
        ),
    ]
    in_proportion = [Dot(each, each * one) for each in (1, *counts)]
    values = [dot.y for dot in (*at_once, *in_proportion)]
    chart = Curves(
        "IOPS over the number of disks",
        linear("disks at once", [1, *counts], whole=True),
        linear(_RATE, values),
        (Series("at once", tuple(at_once)), Series("in proportion", tuple(in_proportion))),
    )
    caption = f"{brief(last.found.workload)} on each disk (D4-10).{_untrusted(several)}"
    return curves_figure(chart, caption)


def _adapter_table(runs: Sequence[_Run]) -> PageTable:
    heads = (
        "Load of each disk",
        "At once",
        "GB/s",
        "Alone, added",
        "Share",
        "CPUs busy",
        "CPU/IO",
        "Note",
    )
    rows = tuple(
        (
            brief(run.found.workload),
            rate(run.found.figures.iops),
            digits(run.gb_per_s),
            rate(run.alone),
            percent(run.found.share),
            percent(run.found.busy),
            f"{digits(run.found.figures.cost_us_per_io)} µs",
            doubt_text(run.found),
        )
        for run in runs
    )
    return PageTable("The figures of these runs", heads, rows, frozenset(range(1, 7)))
