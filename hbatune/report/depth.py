"""The section on depth: curves of depth sweeps with their knee, and the CPU time per I/O.

Where something else was varied as well, a block of ``several`` has one curve for each.
Sweeps of mixed loads are in ``load``, those of the four corners in ``corners``.
"""

from collections.abc import Iterator

from hbatune.cli.text.probes import knee_line, limits, stale_notes
from hbatune.cli.text.units import block, digits, ground, latency, pattern, rate
from hbatune.probe.comparison import Goal
from hbatune.probe.knee import Knee
from hbatune.probe.sweeps import Sweep, Swept, by_jobs
from hbatune.report.charts import Curves, Dot, Guide, Series
from hbatune.report.figures import curves_figure
from hbatune.report.layout import linear, logarithmic
from hbatune.report.load import is_mix
from hbatune.report.page import Block, Figure, Howto, PageSection, ReportData
from hbatune.report.several import jobs_block, lun_depths
from hbatune.report.sweeps import (
    MOST,
    chosen,
    doubts,
    older,
    over,
    rate_by_cpu,
    series,
    table,
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
    made = tuple(_block(data, sweep) for sweep in found[:MOST])
    name = "What depth buys, and where the knee is"
    jobs = (jobs_block(data, each) for each in split[:MOST])
    own = lun_depths(data, [each for each in all_ if each.workload.queue_depth is not None])
    return PageSection("depth", name, (*made, *older(found), *jobs, *own), howto)


def _block(data: ReportData, sweep: Sweep) -> Block:
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
        notes=(*_notes(sweep, knee), *stale_notes(data.stale(sweep.records[-1]))),
        figures=figures,
        folded=(table(sweep),),
    )


def _notes(sweep: Sweep, knee: Knee | None) -> Iterator[str]:
    if knee is not None:
        line = knee_line(knee)
        yield f"{line[0].upper()}{line[1:]}."
        at = next(each for each in sweep.results if each.workload.issued == knee.depth).figures
        yield (
            f"At depth {knee.depth} there are {rate(at.iops)} IOPS with a p99 of "
            f"{latency(at.p99_us)}, for {digits(at.cost_us_per_io)} µs of CPU time each."
        )
    for line in limits(sweep.results):
        yield f"{line[0].upper()}{line[1:]}."
    yield ground(sweep.records[-1])


def _throughput_latency(sweep: Sweep, knee: Knee | None) -> Figure:
    dots = []
    for each in sweep.results:
        at = each.workload.issued
        found = knee is not None and knee.past is not None and at == knee.depth
        label = f"knee: {at}" if found else str(at)
        figures = each.figures
        doubted = each.doubt is not None
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
    values = [dot.y for each in curves for dot in each.dots]
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
    if any(each.figures.interrupt_us_per_io is not None for each in sweep.results):
        both = series(sweep, "load and interrupts", lambda figures: figures.cost_us_per_io)
        curves.append(both)
        caption += ", and with it what the cores involved spend in interrupts."
    else:
        caption += "; what the kernel does in interrupts on other CPUs was not counted."
    axis = linear("CPU time per I/O, µs", [dot.y for each in curves for dot in each.dots])
    chart = Curves(name, over(sweep), axis, tuple(curves), upright=_upright(knee))
    return curves_figure(chart, caption + doubts(sweep))


def _range(knee: Knee | None) -> tuple[float, float] | None:
    return None if knee is None or knee.low == knee.high else (knee.low, knee.high)


def _upright(knee: Knee | None) -> Guide | None:
    return None if knee is None or knee.past is None else Guide(knee.depth, f"knee: {knee.depth}")
