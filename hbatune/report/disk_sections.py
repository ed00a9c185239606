"""The sections on the latency of disks, and on all disks of an adapter in parallel.

The section on latency shows the percentiles of each disk's latest result. The section on adapters
compares all disks in parallel with the sum of single disks (D1-5, D4-9).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from hbatune.facts.names import natural_key
from hbatune.policy.library import MediumFigures
from hbatune.probe.comparison import Goal, LinkShare
from hbatune.probe.history import KeptTogether, Record
from hbatune.probe.result import Figures, ProbeResult, Workload
from hbatune.probe.sweeps import SweptParameter, list_lone_results
from hbatune.report.charts import (
    Bar,
    ChartRow,
    Curves,
    Dot,
    Guide,
    Mark,
    Rows,
    Series,
    make_curves_figure,
    make_rows_figure,
)
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import (
    LegendEntry,
    Shape,
    make_linear_axis,
    make_log_axis,
    make_measured_axis,
)
from hbatune.report.sweep_sections import CPU_TITLE, HOLLOW_NOTE, get_cpu_percent
from hbatune.text.basic_output import format_count
from hbatune.text.plan_tables import format_targets, format_value
from hbatune.text.probe_tables import (
    describe_bottleneck,
    describe_doubt,
    describe_stale,
    format_load,
)
from hbatune.text.tables import EMPTY_CELL
from hbatune.text.units import (
    format_block_size,
    format_change,
    format_digits,
    format_latency,
    format_pattern,
    format_percent,
    format_rate,
    format_short_workload,
    format_time,
    format_workload,
)

MAX_DISKS = 24
"""Maximum number of disks drawn. The table has all of them."""

_KEYS = (
    LegendEntry("p50", "s0", Shape.CIRCLE),
    LegendEntry("p95", "s1", Shape.SQUARE),
    LegendEntry("p99", "s2", Shape.DIAMOND),
    LegendEntry("p99.9", "s3", Shape.TRIANGLE),
)


def make_latest_section(data: ReportData) -> PageSection:
    """Return the section."""
    records = sorted(
        list_lone_results(data.records, data.sweeps), key=lambda record: natural_key(record.target)
    )
    howto = Howto("No disk has been measured yet.", f"hbatune probe reference-short {data.disk}")
    blocks = (_make_latency_block(data, records),) if records else ()
    baseline_records = _find_baselines(data)
    table = _make_latency_table(
        baseline_records, "What one I/O at a time takes: the baselines (D3-1, D3-9)"
    )
    baselines = (Block("One I/O at a time", tables=(table,)),) if baseline_records else ()
    return PageSection("latency", "How long an I/O takes", (*blocks, *baselines), howto)


def _find_baselines(data: ReportData) -> list[Record]:
    """Return the latest run at depth 1 of each disk and load, without runs of sweeps."""
    swept = {id(record) for sweep in data.sweeps for record in sweep.records}
    latest: dict[object, Record] = {}
    for record in sorted(data.records, key=lambda record: record.time):
        result = record.result
        if result is None or record.proof is not None or id(record) in swept:
            continue
        if result.workload.issued == 1 and result.workload.rate is None:
            latest[record.id, format_load(result.workload)] = record
    return sorted(latest.values(), key=lambda record: natural_key(record.target))


def _make_latency_block(data: ReportData, records: list[Record]) -> Block:
    drawn = [record for record in records if _is_drawable(record)][:MAX_DISKS]
    tables = [
        _make_latency_table(records, "The newest result of each disk"),
        _make_standings_table(data, records),
    ]
    return Block(
        notes=tuple(dict.fromkeys(describe_stale(data.stale(*records)))),
        figures=(_draw_percentiles(drawn),) if drawn else (),
        tables=tuple(table for table in tables if table.rows),
    )


def _make_standings_table(data: ReportData, records: list[Record]) -> PageTable:
    """Return a table that compares the results with objective, source documents and links."""
    heads = ("Disk", "p99", "Objective", "IOPS", "Documents, such a medium", "Share of the link")
    rows = []
    for record in records:
        standing = None if record.result is None else data.standing(record.result)
        if (
            record.result is not None
            and standing is not None
            and (standing.document or standing.links)
        ):
            figures, links = record.result.figures, ", ".join(map(_describe_link, standing.links))
            goal, document = _describe_goal(standing.goal), _describe_document(standing.document)
            first = (record.target, format_latency(figures.p99_us), goal)
            rows.append((*first, format_rate(figures.iops), document, format_value(links or None)))
    return PageTable("What these results stand beside", heads, tuple(rows), frozenset({1, 3}))


def _describe_goal(goal: Goal | None) -> str:
    if goal is None:
        return EMPTY_CELL
    met = "met" if goal.met else "missed"
    spare = format_change(1 + abs(goal.spare)).removeprefix("+")
    margin = f"{spare} to spare" if goal.met else f"by {spare}"
    return f"{goal.p99_ms:g} ms ({goal.source}): {met}, {margin}"


def _describe_document(document: MediumFigures | None) -> str:
    if document is None:
        return EMPTY_CELL
    low, high = document.iops
    text = f"p99 {document.p99_ms:g} ms, {low:,} to {high:,} IOPS at depth {document.depth}"
    mean = ""
    if document.mean_ms is not None:
        low_ms, high_ms = document.mean_ms
        range_text = f"{low_ms:g}" if low_ms == high_ms else f"{low_ms:g} to {high_ms:g}"
        mean = f"; mean {range_text} ms ({document.mean_source})"
    return f"{text} ({document.source}){mean}"


def _describe_link(link: LinkShare) -> str:
    used = format_change(1 + link.used).removeprefix("+")
    return f"{used} of {format_digits(link.ceiling)} GB/s"


def _list_quantiles(figures: Figures) -> tuple[float, ...]:
    return figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us


def _is_drawable(record: Record) -> bool:
    # A logarithmic axis cannot show zero.
    return record.result is not None and min(_list_quantiles(record.result.figures)) > 0


def _draw_percentiles(records: list[Record]) -> Figure:
    results = [record.result for record in records if record.result is not None]
    values = [us / 1000 for result in results for us in _list_quantiles(result.figures)]
    name = "Percentiles of latency"
    chart = Rows(
        name,
        make_log_axis("latency, ms", values),
        tuple(map(_make_latency_row, results)),
        _KEYS,
        pitch=44,
    )
    caption = (
        "The newest result of each disk, from submission to completion, on a logarithmic axis. "
        "Half of all I/Os took no longer than p50, all but one in a thousand no longer than p99.9."
    )
    return make_rows_figure(chart, caption)


def _make_latency_row(result: ProbeResult) -> ChartRow:
    times = [us / 1000 for us in _list_quantiles(result.figures)]
    marks = zip(times, _KEYS, strict=True)
    return ChartRow(
        result.target,
        format_short_workload(result.workload),
        (Bar(min(times), max(times), "spread", 3),),
        tuple(Mark(value, key.shape or Shape.CIRCLE, key.style) for value, key in marks),
    )


def _make_latency_table(records: list[Record], caption: str) -> PageTable:
    heads = ("Disk", "Workload", "Measured", "IOPS", "Mean", "p50", "p95", "p99", "p99.9", "CPU/IO")
    rows = []
    for record in records:
        if record.result is not None:
            figures = record.result.figures
            times = map(format_latency, (figures.mean_us, *_list_quantiles(figures)))
            first = (
                record.target,
                format_workload(record.result.workload),
                format_time(record.time),
            )
            cpu = f"{format_digits(figures.cost_us_per_io)} µs"
            rows.append((*first, format_rate(figures.iops), *times, cpu))
    return PageTable(caption, heads, tuple(rows), frozenset(range(2, 10)))


MAX_ADAPTERS = 6
"""Maximum number of adapters drawn."""
MAX_RUNS = 12
"""Maximum number of runs of one command drawn as rows."""
_FEWEST = 3
"""Minimum number of block sizes for a curve."""
_NEAR = 3.0
"""Maximum ratio of a link's ceiling to the highest measured value, if the ceiling is drawn."""
_RATE = "IOPS, I/Os per second"


class _Run(Struct, frozen=True):
    """A run on all disks of an adapter, with its record."""

    record: Record
    found: KeptTogether

    @property
    def alone(self) -> float:
        """The sum of the IOPS of each disk when measured separately."""
        return sum(self.found.alone_iops)

    @property
    def gb_per_s(self) -> float:
        """The throughput of all disks in parallel, in GB/s."""
        return self.found.figures.bandwidth / 1e9


def make_together_section(data: ReportData) -> PageSection:
    """Return the section, the latest measured adapter first."""
    runs = [
        _Run(record, record.together)
        for record in sorted(data.records, key=lambda record: record.time)
        if record.together is not None and record.together.targets
    ]
    adapters: dict[str, list[_Run]] = {}
    for run in reversed(runs):
        adapters.setdefault(run.record.id, []).append(run)
    howto = Howto(
        "The disks of no adapter have been measured at once yet. Name two or more.",
        f"hbatune probe block-sweep-small {data.disk} DISK --together",
    )
    blocks = [
        _make_adapter_block(data, adapter) for adapter in list(adapters.values())[:MAX_ADAPTERS]
    ]
    if len(adapters) > MAX_ADAPTERS:
        omitted = len(adapters) - MAX_ADAPTERS
        blocks.append(Block(notes=(f"{omitted} more adapters are in `hbatune history`.",)))
    name = "What an adapter does with all its disks"
    return PageSection("together", name, tuple(blocks), howto)


def _make_adapter_block(data: ReportData, runs: Sequence[_Run]) -> Block:
    """Return the latest runs of each command, and a curve over the number of disks."""
    newest = _group_latest(runs)
    loads = [load for command_runs in newest for load in _group_by_load(command_runs)]
    sweeps = [load for load in loads if _is_sweep(load)]
    single_runs = [run for load in loads if not _is_sweep(load) for run in load]
    figures = [
        figure for load in sweeps for figure in _draw_over_blocks(load, apart=len(sweeps) > 1)
    ]
    if single_runs:
        figures.append(_draw_side_by_side(single_runs[:MAX_RUNS]))
    if (scaled := _draw_scaling(newest[0][-1], runs)) is not None:
        figures.append(scaled)
    stale = data.stale(*(command_runs[-1].record for command_runs in newest))
    notes = [note for sweep in (*sweeps, single_runs) if sweep for note in _describe_adapter(sweep)]
    return Block(
        name=runs[0].record.target,
        notes=(*notes, *describe_stale(stale)),
        figures=tuple(figures),
        folded=(_make_adapter_table([run for command_runs in newest for run in command_runs]),),
    )


def _group_latest(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the latest runs of each command, in their order, the latest command first."""
    last: dict[str, tuple[float, str]] = {}
    for run in runs:
        last.setdefault(run.record.command, (run.record.time, run.record.boot_id))
    return [
        [
            run
            for run in reversed(runs)
            if (run.record.command, run.record.time, run.record.boot_id) == (command, *moment)
        ]
        for command, moment in last.items()
    ]


def _group_by_load(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Group the runs of one command by load. The runs of a load differ only in block size."""
    runs_by_load: dict[Workload, list[_Run]] = {}
    for run in runs:
        runs_by_load.setdefault(SweptParameter.BLOCK.without(run.found.workload), []).append(run)
    return list(runs_by_load.values())


def _is_sweep(load: Sequence[_Run]) -> bool:
    """Return whether a load has enough block sizes for a curve, with one run of each."""
    sizes = {run.found.workload.block_size for run in load}
    return len(sizes) == len(load) >= _FEWEST


def _describe_adapter(runs: Sequence[_Run]) -> Iterator[str]:
    first = runs[0]
    disks, time_text = (
        format_count(len(first.found.targets), "disk"),
        format_time(first.record.time),
    )
    targets, sweep = format_targets(first.found.targets), _is_sweep(runs)
    heading = (
        f"{disks} at once, {format_pattern(first.found.workload)}" if sweep else f"{disks} at once"
    )
    yield f"{heading}, measured {time_text} on kernel {first.record.kernel}: {targets}."
    for text in dict.fromkeys(describe_bottleneck(run.found) for run in runs):
        matching = [run for run in runs if describe_bottleneck(run.found) == text]
        names = [
            _name_block_size(run) if sweep else format_short_workload(run.found.workload)
            for run in matching
        ]
        prefix = "" if len(matching) == len(runs) else f"{', '.join(names)}: "
        sentence = f"{prefix}{text}."
        yield f"{sentence[0].upper()}{sentence[1:]}"


def _name_block_size(run: _Run) -> str:
    return format_block_size(run.found.workload.block_size)


def _draw_over_blocks(runs: Sequence[_Run], *, apart: bool) -> Iterator[Figure]:
    """Yield the pictures of a load over block size. With ``apart``, their names show the load."""
    kind = f": {format_pattern(runs[0].found.workload)}" if apart else ""
    untrusted = _caption_untrusted(runs)
    caption = f"Where the lines part, the disks hold each other back (D1-5).{untrusted}"
    name = f"IOPS of all disks over block size{kind}"
    yield _draw_against_sum(runs, name, _RATE, caption, lambda _, iops: iops)
    ceiling = runs[0].found.ceiling
    caption = "Large blocks show what adapter and link carry (D4-9)."
    if ceiling is not None:
        caption += f" The adapter's link carries {format_digits(ceiling)} GB/s."
    caption += untrusted
    name = f"Throughput of all disks over block size{kind}"
    yield _draw_against_sum(
        runs, name, "throughput, GB/s", caption, lambda size, iops: size * iops / 1e9, ceiling
    )
    dots = tuple(
        Dot(
            get_cpu_percent(run.found.figures),
            run.found.figures.iops,
            _name_block_size(run),
            doubted=run.found.doubt is not None,
        )
        for run in runs
    )
    chart = Curves(
        f"IOPS of all disks over CPU time{kind}",
        make_linear_axis(CPU_TITLE, [dot.x for dot in dots]),
        make_linear_axis(_RATE, [dot.y for dot in dots]),
        (Series("all at once", dots),),
    )
    yield make_curves_figure(
        chart,
        "Each point is a block size, which stands beside it. The steeper, the less an I/O costs "
        f"the CPUs (D1-5).{untrusted}",
    )


def _caption_untrusted(runs: Iterable[_Run]) -> str:
    """Return the caption for hollow points, or an empty text if all points are trusted."""
    return HOLLOW_NOTE if any(run.found.doubt for run in runs) else ""


def _draw_against_sum(
    runs: Sequence[_Run],
    name: str,
    unit: str,
    caption: str,
    take: Callable[[int, float], float],
    ceiling: float | None = None,
) -> Figure:
    """Draw the disks in parallel against the sum of single disks, over block size.

    ``take`` computes a value from the size in bytes and the IOPS.
    """
    sizes = [run.found.workload.block_size for run in runs]
    pairs = list(zip(sizes, runs, strict=True))
    at_once = [
        Dot(size, take(size, run.found.figures.iops), doubted=run.found.doubt is not None)
        for size, run in pairs
    ]
    added = [Dot(size, take(size, run.alone)) for size, run in pairs]
    values = [dot.y for dot in (*at_once, *added)]
    level = None
    if ceiling is not None and ceiling <= _NEAR * max(values):
        level = Guide(ceiling, f"link: {format_digits(ceiling)} GB/s")
        values.append(ceiling)
    chart = Curves(
        name,
        make_measured_axis("block size, bytes", {size: format_block_size(size) for size in sizes}),
        make_linear_axis(unit, values),
        (Series("all at once", tuple(at_once)), Series("sum of each alone", tuple(added))),
        level=level,
    )
    return make_curves_figure(chart, caption)


def _draw_side_by_side(runs: Sequence[_Run]) -> Figure:
    """Draw a row for each load, with the disks in parallel and the sum of single disks."""
    rows = tuple(
        ChartRow(
            format_short_workload(run.found.workload),
            format_percent(run.found.share) + (", untrusted" if run.found.doubt else ""),
            (Bar(0, run.alone, "room", 14), Bar(0, run.found.figures.iops, "s0", 8)),
        )
        for run in runs
    )
    values = [value for run in runs for value in (run.alone, run.found.figures.iops)]
    keys = (LegendEntry("all at once", "s0", None), LegendEntry("sum of each alone", "room", None))
    chart = Rows("All disks at once", make_linear_axis(_RATE, values), rows, keys, pitch=44)
    return make_rows_figure(
        chart, "Where the bar ends before its outline, the disks hold each other back."
    )


def _draw_scaling(last: _Run, runs: Sequence[_Run]) -> Figure | None:
    """Draw the rate over the number of disks, from the latest run of the same load for each number.

    The rate of one disk is the mean of single disks. Return None without other numbers of disks.
    """
    same_load = [run for run in runs if run.found.workload == last.found.workload]
    newest: dict[int, _Run] = {}
    for run in same_load:
        newest.setdefault(len(run.found.targets), run)
    if len(newest) < 2 or not last.found.alone_iops:
        return None
    per_disk = last.alone / len(last.found.alone_iops)
    counts = sorted(newest)
    several = [newest[count] for count in counts]
    at_once = [
        Dot(1, per_disk),
        *(
            Dot(count, run.found.figures.iops, doubted=run.found.doubt is not None)
            for count, run in zip(counts, several, strict=True)
        ),
    ]
    in_proportion = [Dot(count, count * per_disk) for count in (1, *counts)]
    values = [dot.y for dot in (*at_once, *in_proportion)]
    chart = Curves(
        "IOPS over the number of disks",
        make_linear_axis("disks at once", [1, *counts], integral=True),
        make_linear_axis(_RATE, values),
        (Series("at once", tuple(at_once)), Series("in proportion", tuple(in_proportion))),
    )
    caption = (
        f"{format_short_workload(last.found.workload)} on each disk "
        f"(D4-10).{_caption_untrusted(several)}"
    )
    return make_curves_figure(chart, caption)


def _make_adapter_table(runs: Sequence[_Run]) -> PageTable:
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
            format_short_workload(run.found.workload),
            format_rate(run.found.figures.iops),
            format_digits(run.gb_per_s),
            format_rate(run.alone),
            format_percent(run.found.share),
            format_percent(run.found.busy),
            f"{format_digits(run.found.figures.cost_us_per_io)} µs",
            describe_doubt(run.found),
        )
        for run in runs
    )
    return PageTable("The figures of these runs", heads, rows, frozenset(range(1, 7)))
