"""The sections on depth sweeps and on interference.

The section on depth shows curves with their knee, and the CPU time of an I/O. Sweeps that also vary
the LUN depth or the number of jobs share a block, with one curve each. Mixed loads and the four
corners have their own sections in ``sweep_sections``.

The section on interference compares a reader with and without a bulk writer, by scheduler.
"""

from collections.abc import Iterator, Sequence

from hbatune.facts.names import natural_key
from hbatune.probe.comparison import Goal
from hbatune.probe.knee import Knee
from hbatune.probe.result import ProbeResult
from hbatune.probe.sweeps import (
    Interference,
    Sweep,
    SweptParameter,
    find_interference,
    group_by_jobs,
)
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
from hbatune.report.svg import LegendEntry, Shape, make_linear_axis, make_log_axis
from hbatune.report.sweep_sections import (
    HOLLOW_NOTE,
    MAX_SWEEPS,
    choose_sweeps,
    draw_rate_by_cpu,
    is_mix,
    make_jobs_block,
    make_lun_blocks,
    make_series,
    make_sweep_axis,
    make_sweep_table,
    note_doubts,
    note_older_sweeps,
)
from hbatune.text.plan_tables import format_value
from hbatune.text.probe_tables import describe_cpu_limits, describe_knee, describe_stale
from hbatune.text.units import (
    format_block_size,
    format_change,
    format_conditions,
    format_digits,
    format_latency,
    format_pattern,
    format_rate,
    format_short_workload,
    format_time,
)


def make_depth_section(data: ReportData) -> PageSection:
    """Return the section, the latest sweep first."""
    sweeps = choose_sweeps(data, SweptParameter.DEPTH)
    corner_sweeps = [sweep for corners in data.corners for sweep in corners.sweeps]
    pure = [sweep for sweep in sweeps if not is_mix(sweep) and sweep not in corner_sweeps]
    job_groups = group_by_jobs(pure)
    job_sweeps = [sweep for group in job_groups for sweep in group]
    single = [
        sweep for sweep in pure if sweep.workload.queue_depth is None and sweep not in job_sweeps
    ]
    howto = Howto("No depth sweep has been made yet.", f"hbatune probe depth-sweep {data.disk}")
    depth_blocks = tuple(_make_depth_block(data, sweep) for sweep in single[:MAX_SWEEPS])
    name = "What depth buys, and where the knee is"
    jobs = (make_jobs_block(data, group) for group in job_groups[:MAX_SWEEPS])
    lun_blocks = make_lun_blocks(
        data, [sweep for sweep in sweeps if sweep.workload.queue_depth is not None]
    )
    return PageSection(
        "depth", name, (*depth_blocks, *note_older_sweeps(single), *jobs, *lun_blocks), howto
    )


def _make_depth_block(data: ReportData, sweep: Sweep) -> Block:
    workload, knee = sweep.workload, sweep.knee
    standing = data.standing(sweep.results[0])
    goal = None if standing is None else standing.goal
    figures = (
        _draw_throughput_latency(sweep, knee),
        _draw_rate(sweep, knee),
        _draw_latency(sweep, knee, goal, "" if data.profile is None else data.profile.name),
        _draw_cpu(sweep, knee),
        draw_rate_by_cpu(sweep),
    )
    return Block(
        name=f"{sweep.results[0].target}: {format_block_size(workload.block_size)} "
        f"{format_pattern(workload)}",
        notes=(*_describe_depth(sweep, knee), *describe_stale(data.stale(sweep.records[-1]))),
        figures=figures,
        folded=(make_sweep_table(sweep),),
    )


def _describe_depth(sweep: Sweep, knee: Knee | None) -> Iterator[str]:
    if knee is not None:
        line = describe_knee(knee)
        yield f"{line[0].upper()}{line[1:]}."
        figures = next(
            result for result in sweep.results if result.workload.issued == knee.depth
        ).figures
        yield (
            f"At depth {knee.depth} there are {format_rate(figures.iops)} IOPS with a p99 of "
            f"{format_latency(figures.p99_us)}, for "
            f"{format_digits(figures.cost_us_per_io)} µs of CPU time each."
        )
    for line in describe_cpu_limits(sweep.results):
        yield f"{line[0].upper()}{line[1:]}."
    yield format_conditions(sweep.records[-1])


def _draw_throughput_latency(sweep: Sweep, knee: Knee | None) -> Figure:
    dots = []
    for result in sweep.results:
        depth = result.workload.issued
        is_knee = knee is not None and knee.past is not None and depth == knee.depth
        label = f"knee: {depth}" if is_knee else str(depth)
        figures = result.figures
        doubted = result.doubt is not None
        dots.append(Dot(figures.iops, figures.p99_us / 1000, label, doubted, is_knee))
    name = "Throughput against latency"
    chart = Curves(
        name,
        make_linear_axis("IOPS, I/Os per second", [dot.x for dot in dots]),
        make_log_axis("p99 latency, ms", [dot.y for dot in dots]),
        (Series("p99", tuple(dots)),),
    )
    caption = "Each point is a depth, whose number stands beside it. Right is more, up is slower."
    if knee is not None and knee.past is not None:
        caption += " The ring is the knee, where IOPS over p99 are greatest (Kleinrock 1979)."
    return make_curves_figure(chart, caption + note_doubts(sweep))


def _draw_rate(sweep: Sweep, knee: Knee | None) -> Figure:
    name, curve = "IOPS over depth", make_series(sweep, "IOPS", lambda figures: figures.iops)
    chart = Curves(
        name,
        make_sweep_axis(sweep),
        make_linear_axis("IOPS, I/Os per second", [dot.y for dot in curve.dots]),
        (curve,),
        band=_get_knee_range(knee),
        upright=_mark_knee(knee),
    )
    return make_curves_figure(chart, _caption_rate(knee, ranged=sweep.ranged) + note_doubts(sweep))


def _caption_rate(knee: Knee | None, *, ranged: bool) -> str:
    """Return the caption for the rate over depth, with the confidence in the knee."""
    if knee is None or knee.past is None:
        return "Where the line goes flat the device is full; up to the last depth it has no knee."
    caption = "Past the knee the line is flat: the device is full."
    if knee.low < knee.high:
        return f"{caption} The shaded stretch is where the knee may as well be, 95 % sure."
    if ranged:
        return caption
    return f"{caption} Of the windows of these runs none were kept, so how sure it is is unknown."


def _draw_latency(sweep: Sweep, knee: Knee | None, goal: Goal | None, profile: str) -> Figure:
    name = "Latency over depth"
    curves = (
        make_series(sweep, "p50", lambda figures: figures.p50_us / 1000),
        make_series(sweep, "p99", lambda figures: figures.p99_us / 1000),
        make_series(sweep, "p99.9", lambda figures: figures.p999_us / 1000),
    )
    values = [dot.y for curve in curves for dot in curve.dots]
    level = None if goal is None else Guide(goal.p99_ms, f"{profile}: p99 {goal.p99_ms:g} ms")
    axis = make_log_axis("latency, ms", [*values, *([] if level is None else [level.value])])
    chart = Curves(
        name,
        make_sweep_axis(sweep),
        axis,
        curves,
        band=_get_knee_range(knee),
        upright=_mark_knee(knee),
        level=level,
    )
    caption = "From submission to completion, on logarithmic axes."
    if goal is not None:
        caption += f" The line across is the objective of {profile} for p99 ({goal.source})."
    return make_curves_figure(chart, caption + note_doubts(sweep))


def _draw_cpu(sweep: Sweep, knee: Knee | None) -> Figure:
    name = "CPU time per I/O over depth"
    curves = [make_series(sweep, "load", lambda figures: figures.cpu_us_per_io)]
    caption = "User and system time of the load's own threads"
    if any(result.figures.interrupt_us_per_io is not None for result in sweep.results):
        curve = make_series(sweep, "load and interrupts", lambda figures: figures.cost_us_per_io)
        curves.append(curve)
        caption += ", and with it what the cores involved spend in interrupts."
    else:
        caption += "; what the kernel does in interrupts on other CPUs was not counted."
    axis = make_linear_axis(
        "CPU time per I/O, µs", [dot.y for curve in curves for dot in curve.dots]
    )
    chart = Curves(name, make_sweep_axis(sweep), axis, tuple(curves), upright=_mark_knee(knee))
    return make_curves_figure(chart, caption + note_doubts(sweep))


def _get_knee_range(knee: Knee | None) -> tuple[float, float] | None:
    return None if knee is None or knee.low == knee.high else (knee.low, knee.high)


def _mark_knee(knee: Knee | None) -> Guide | None:
    return None if knee is None or knee.past is None else Guide(knee.depth, f"knee: {knee.depth}")


MAX_PAIRS = 24
"""Maximum number of pairs drawn. The table has all of them."""

_KEYS = (
    LegendEntry("p50 alone", "s0", Shape.CIRCLE),
    LegendEntry("p99 alone", "s2", Shape.SQUARE),
    LegendEntry("p50 beside the writer", "s3", Shape.TRIANGLE),
    LegendEntry("p99 beside the writer", "s1", Shape.DIAMOND),
)


def make_interference_section(data: ReportData) -> PageSection:
    """Return the section, by disk and scheduler."""
    pairs = sorted(
        find_interference(data.records),
        key=lambda pair: (natural_key(pair.beside.target), pair.scheduler or ""),
    )
    howto = Howto(
        "No reader has been measured beside a bulk writer yet. It writes: name a folder on the "
        "disk.",
        "hbatune probe interference --file DIR",
    )
    blocks = (_make_interference_block(data, pairs),) if pairs else ()
    return PageSection("interference", "What a bulk writer costs a reader", blocks, howto)


def _make_interference_block(data: ReportData, pairs: Sequence[Interference]) -> Block:
    drawn = [pair for pair in pairs if min(_list_latencies(pair)) > 0][:MAX_PAIRS]
    return Block(
        notes=tuple(dict.fromkeys(describe_stale(data.stale(*(pair.record for pair in pairs))))),
        figures=(_draw_interference(drawn),) if drawn else (),
        tables=(_make_interference_table(pairs),),
    )


def _list_latencies(pair: Interference) -> tuple[float, ...]:
    """Return the four latencies in ms, in the order of the legend."""
    runs = (pair.alone.figures, pair.beside.figures)
    return tuple(us / 1000 for figures in runs for us in (figures.p50_us, figures.p99_us))


def _draw_interference(pairs: Sequence[Interference]) -> Figure:
    values = [time for pair in pairs for time in _list_latencies(pair)]
    name = "Latency of a reader, with and without a bulk writer"
    chart = Rows(
        name,
        make_log_axis("latency, ms", values),
        tuple(map(_make_interference_row, pairs)),
        _KEYS,
        pitch=44,
    )
    caption = (
        "Each row is a disk with a scheduler. The further a row's marks beside the writer are from "
        "those alone, the less its scheduler protects the reader (I-schedulers)."
    )
    doubted = any(pair.alone.doubt or pair.beside.doubt for pair in pairs)
    return make_rows_figure(chart, caption + (HOLLOW_NOTE if doubted else ""))


def _make_interference_row(pair: Interference) -> ChartRow:
    times = _list_latencies(pair)
    runs = (pair.alone, pair.alone, pair.beside, pair.beside)
    marks = tuple(
        Mark(time, key.shape or Shape.CIRCLE, key.style, run.doubt is not None)
        for time, key, run in zip(times, _KEYS, runs, strict=True)
    )
    bar = Bar(min(times), max(times), "spread", 3)
    return ChartRow(pair.beside.target, _name_scheduler(pair), (bar,), marks)


def _name_scheduler(pair: Interference) -> str:
    return f"scheduler {format_value(pair.scheduler)}"


def _make_interference_table(pairs: Sequence[Interference]) -> PageTable:
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
            pair.beside.target,
            format_value(pair.scheduler),
            format_short_workload(pair.alone.workload),
            format_time(pair.record.time),
            f"{format_rate(pair.alone.figures.iops)} → {format_rate(pair.beside.figures.iops)}",
            _show_both(pair.alone.figures.p50_us, pair.beside.figures.p50_us),
            _show_both(pair.alone.figures.p99_us, pair.beside.figures.p99_us),
            format_change(pair.beside.figures.p99_us / pair.alone.figures.p99_us)
            if pair.alone.figures.p99_us
            else format_value(None),
            _show_written(pair.beside),
        )
        for pair in pairs
    )
    return PageTable("Alone, and beside the writer", heads, rows, frozenset(range(4, 9)))


def _show_both(lone: float, loaded: float) -> str:
    return f"{format_latency(lone)} → {format_latency(loaded)}"


def _show_written(result: ProbeResult) -> str:
    written = result.figures.written_beside
    return format_value(None) if written is None else f"{format_digits(written / 1e6)} MB/s"
