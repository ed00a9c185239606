"""The sections on depth and on interference.

The section on depth: curves of depth sweeps with their knee, and the CPU time per I/O.

Where something else was varied as well, a block of ``several`` has one curve for each.
Sweeps of mixed loads are in ``load``, those of the four corners in ``corners``.

The section on interference: a reader alone and beside a bulk writer, by scheduler.
"""

from collections.abc import Iterator, Sequence

from hbatune.facts.names import natural_key
from hbatune.probe.comparison import Goal
from hbatune.probe.knee import Knee
from hbatune.probe.result import ProbeResult
from hbatune.probe.sweeps import Interference, Sweep, Swept, by_jobs, find_interference
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
from hbatune.report.svg import LegendEntry, Shape, linear, logarithmic
from hbatune.report.sweep_sections import (
    HOLLOW,
    MOST,
    chosen,
    doubts,
    is_mix,
    jobs_block,
    lun_depths,
    older,
    over,
    rate_by_cpu,
    series,
    table,
)
from hbatune.text.plan_tables import shown
from hbatune.text.probe_tables import knee_line, limits, stale_notes
from hbatune.text.units import (
    block,
    brief,
    digits,
    format_time,
    latency,
    measurement_conditions,
    pattern,
    percent_change,
    rate,
)


def depth(data: ReportData) -> PageSection:
    """Return the section, the newest sweep first."""
    all_ = chosen(data, Swept.DEPTH)
    elsewhere = [each for corners in data.corners for each in corners.sweeps]
    pure = [each for each in all_ if not is_mix(each) and each not in elsewhere]
    split = by_jobs(pure)
    elsewhere = [sweep for alike in split for sweep in alike]
    found = [each for each in pure if each.workload.queue_depth is None and each not in elsewhere]
    howto = Howto("No depth sweep has been made yet.", f"hbatune probe depth-sweep {data.disk}")
    made = tuple(_depth_block(data, sweep) for sweep in found[:MOST])
    name = "What depth buys, and where the knee is"
    jobs = (jobs_block(data, each) for each in split[:MOST])
    own = lun_depths(data, [each for each in all_ if each.workload.queue_depth is not None])
    return PageSection("depth", name, (*made, *older(found), *jobs, *own), howto)


def _depth_block(data: ReportData, sweep: Sweep) -> Block:
    asked, knee = sweep.workload, sweep.knee
    standing = data.standing(sweep.results[0])
    goal = None if standing is None else standing.goal
    figures = (
        _throughput_latency(sweep, knee),
        _rate(sweep, knee),
        _latency(sweep, knee, goal, "" if data.profile is None else data.profile.name),
        _cpu(sweep, knee),
        rate_by_cpu(sweep),
    )
    return Block(
        name=f"{sweep.results[0].target}: {block(asked.block_size)} {pattern(asked)}",
        notes=(*_depth_notes(sweep, knee), *stale_notes(data.stale(sweep.records[-1]))),
        figures=figures,
        folded=(table(sweep),),
    )


def _depth_notes(sweep: Sweep, knee: Knee | None) -> Iterator[str]:
    if knee is not None:
        line = knee_line(knee)
        yield f"{line[0].upper()}{line[1:]}."
        at = next(
            result for result in sweep.results if result.workload.issued == knee.depth
        ).figures
        yield (
            f"At depth {knee.depth} there are {rate(at.iops)} IOPS with a p99 of "
            f"{latency(at.p99_us)}, for {digits(at.cost_us_per_io)} µs of CPU time each."
        )
    for line in limits(sweep.results):
        yield f"{line[0].upper()}{line[1:]}."
    yield measurement_conditions(sweep.records[-1])


def _throughput_latency(sweep: Sweep, knee: Knee | None) -> Figure:
    dots = []
    for result in sweep.results:
        at = result.workload.issued
        found = knee is not None and knee.past is not None and at == knee.depth
        label = f"knee: {at}" if found else str(at)
        figures = result.figures
        doubted = result.doubt is not None
        dots.append(Dot(figures.iops, figures.p99_us / 1000, label, doubted, found))
    name = "Throughput against latency"
    chart = Curves(
        name,
        linear("IOPS, I/Os per second", [dot.x for dot in dots]),
        logarithmic("p99 latency, ms", [dot.y for dot in dots]),
        (Series("p99", tuple(dots)),),
    )
    caption = "Each point is a depth, whose number stands beside it. Right is more, up is slower."
    if knee is not None and knee.past is not None:
        caption += " The ring is the knee, where IOPS over p99 are greatest (Kleinrock 1979)."
    return curves_figure(chart, caption + doubts(sweep))


def _rate(sweep: Sweep, knee: Knee | None) -> Figure:
    name, curve = "IOPS over depth", series(sweep, "IOPS", lambda figures: figures.iops)
    chart = Curves(
        name,
        over(sweep),
        linear("IOPS, I/Os per second", [dot.y for dot in curve.dots]),
        (curve,),
        band=_range(knee),
        upright=_upright(knee),
    )
    return curves_figure(chart, _flat(knee, ranged=sweep.ranged) + doubts(sweep))


def _flat(knee: Knee | None, *, ranged: bool) -> str:
    """Return the caption for the rate over depth, with the certainty of the knee."""
    if knee is None or knee.past is None:
        return "Where the line goes flat the device is full; up to the last depth it has no knee."
    caption = "Past the knee the line is flat: the device is full."
    if knee.low < knee.high:
        return f"{caption} The shaded stretch is where the knee may as well be, 95 % sure."
    if ranged:
        return caption
    return f"{caption} Of the windows of these runs none were kept, so how sure it is is unknown."


def _latency(sweep: Sweep, knee: Knee | None, goal: Goal | None, profile: str) -> Figure:
    name = "Latency over depth"
    curves = (
        series(sweep, "p50", lambda figures: figures.p50_us / 1000),
        series(sweep, "p99", lambda figures: figures.p99_us / 1000),
        series(sweep, "p99.9", lambda figures: figures.p999_us / 1000),
    )
    values = [dot.y for curve in curves for dot in curve.dots]
    level = None if goal is None else Guide(goal.p99_ms, f"{profile}: p99 {goal.p99_ms:g} ms")
    axis = logarithmic("latency, ms", [*values, *([] if level is None else [level.value])])
    chart = Curves(
        name, over(sweep), axis, curves, band=_range(knee), upright=_upright(knee), level=level
    )
    caption = "From submission to completion, on logarithmic axes."
    if goal is not None:
        caption += f" The line across is the objective of {profile} for p99 ({goal.source})."
    return curves_figure(chart, caption + doubts(sweep))


def _cpu(sweep: Sweep, knee: Knee | None) -> Figure:
    name = "CPU time per I/O over depth"
    curves = [series(sweep, "load", lambda figures: figures.cpu_us_per_io)]
    caption = "User and system time of the load's own threads"
    if any(result.figures.interrupt_us_per_io is not None for result in sweep.results):
        both = series(sweep, "load and interrupts", lambda figures: figures.cost_us_per_io)
        curves.append(both)
        caption += ", and with it what the cores involved spend in interrupts."
    else:
        caption += "; what the kernel does in interrupts on other CPUs was not counted."
    axis = linear("CPU time per I/O, µs", [dot.y for curve in curves for dot in curve.dots])
    chart = Curves(name, over(sweep), axis, tuple(curves), upright=_upright(knee))
    return curves_figure(chart, caption + doubts(sweep))


def _range(knee: Knee | None) -> tuple[float, float] | None:
    return None if knee is None or knee.low == knee.high else (knee.low, knee.high)


def _upright(knee: Knee | None) -> Guide | None:
    return None if knee is None or knee.past is None else Guide(knee.depth, f"knee: {knee.depth}")


MAX_PAIRS = 24
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
    blocks = (_interference_block(data, found),) if found else ()
    return PageSection("interference", "What a bulk writer costs a reader", blocks, howto)


def _interference_block(data: ReportData, found: Sequence[Interference]) -> Block:
    drawn = [each for each in found if min(_times(each)) > 0][:MAX_PAIRS]
    return Block(
        notes=tuple(dict.fromkeys(stale_notes(data.stale(*(each.record for each in found))))),
        figures=(_interference_figure(drawn),) if drawn else (),
        tables=(_interference_table(found),),
    )


def _times(found: Interference) -> tuple[float, ...]:
    """Return the four latencies in ms, in the order of the legend."""
    both = (found.alone.figures, found.beside.figures)
    return tuple(us / 1000 for each in both for us in (each.p50_us, each.p99_us))


def _interference_figure(found: Sequence[Interference]) -> Figure:
    values = [time for each in found for time in _times(each)]
    name = "Latency of a reader, with and without a bulk writer"
    chart = Rows(
        name,
        logarithmic("latency, ms", values),
        tuple(map(_interference_row, found)),
        _KEYS,
        pitch=44,
    )
    caption = (
        "Each row is a disk with a scheduler. The further a row's marks beside the writer are from "
        "those alone, the less its scheduler protects the reader (I-schedulers)."
    )
    doubted = any(each.alone.doubt or each.beside.doubt for each in found)
    return rows_figure(chart, caption + (HOLLOW if doubted else ""))


def _interference_row(found: Interference) -> ChartRow:
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


def _interference_table(found: Sequence[Interference]) -> PageTable:
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
            format_time(each.record.time),
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
