"""The section on depth: curves of depth sweeps with their knee, and the CPU time per I/O.

Where the LUN's own depth was varied as well (D2-1), a block for each disk has one curve for each.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hbatune.cli.text.probes import knee_line, limits, stale_notes
from hbatune.cli.text.units import block, digits, ground, latency, pattern, rate
from hbatune.probe.comparison import Goal
from hbatune.probe.knee import Knee
from hbatune.probe.sweeps import Sweep, Swept
from hbatune.report import charts
from hbatune.report.charts import Curves, Dot, Guide, Series, draw_curves
from hbatune.report.layout import Axis, linear, logarithmic, measured
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.sweeps import MOST, Take, chosen, doubts, older, over, series, table


def depth(data: ReportData) -> PageSection:
    """Return the section, the newest sweep first."""
    all_ = chosen(data, Swept.DEPTH)
    found = [each for each in all_ if each.workload.queue_depth is None]
    howto = Howto("No depth sweep has been made yet.", f"hbatune probe depth-sweep {data.disk}")
    made = tuple(_block(data, sweep) for sweep in found[:MOST])
    name = "What depth buys, and where the knee is"
    own = lun_depths(data, [each for each in all_ if each.workload.queue_depth is not None])
    return PageSection("depth", name, (*made, *older(found), *own), howto)


def lun_depths(data: ReportData, found: Sequence[Sweep]) -> Iterator[Block]:
    """Yield a block for each disk with sweeps at several depths of its own."""
    disks: dict[object, list[Sweep]] = {}
    for sweep in found:
        disks.setdefault(sweep.records[0].id, []).append(sweep)
    for alike in list(disks.values())[:MOST]:
        yield _lun_block(data, sorted(alike, key=_depth)[: charts.MOST])


def _block(data: ReportData, sweep: Sweep) -> Block:
    asked, knee = sweep.workload, sweep.knee
    standing = data.standing(sweep.results[0])
    goal = None if standing is None else standing.goal
    figures = (
        _throughput_latency(sweep, knee),
        _rate(sweep, knee),
        _latency(sweep, knee, goal, "" if data.profile is None else data.profile.name),
        _cpu(sweep, knee),
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
    return Figure(name, draw_curves(chart), caption + doubts(sweep))


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
    return Figure(name, draw_curves(chart), _flat(knee, ranged=sweep.ranged) + doubts(sweep))


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
    return Figure(name, draw_curves(chart), caption + doubts(sweep))


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
    return Figure(name, draw_curves(chart), caption + doubts(sweep))


def _range(knee: Knee | None) -> tuple[float, float] | None:
    return None if knee is None or knee.low == knee.high else (knee.low, knee.high)


def _upright(knee: Knee | None) -> Guide | None:
    return None if knee is None or knee.past is None else Guide(knee.depth, f"knee: {knee.depth}")


def _depth(sweep: Sweep) -> int:
    return sweep.workload.queue_depth or 0


def _lun_block(data: ReportData, found: Sequence[Sweep]) -> Block:
    asked, last = found[0].workload, found[-1].records[-1]
    name = f"{last.target}: {block(asked.block_size)} {pattern(asked)}, by depth of the LUN itself"
    stale = dict.fromkeys(stale_notes(data.stale(*(each.records[-1] for each in found))))
    return Block(
        name=name,
        notes=(*_lun_notes(found), ground(last), *stale),
        figures=(
            _figure(
                found,
                "IOPS over depth, by depth of the LUN",
                "IOPS, I/Os per second",
                lambda figures: figures.iops,
                "Past the LUN's own depth a line is flat: the rest waits above it (D2-1).",
            ),
            _figure(
                found,
                "p99 over depth, by depth of the LUN",
                "p99 latency, ms",
                lambda figures: figures.p99_us / 1000,
                "What waits above the LUN is in its latency, too.",
            ),
        ),
        folded=tuple(_named(each) for each in found),
    )


def _lun_notes(found: Sequence[Sweep]) -> Iterator[str]:
    for sweep in found:
        own = f"LUN depth {_depth(sweep)}"
        if (knee := sweep.knee) is not None:
            yield f"{own}: {knee_line(knee)}."
        for line in limits(sweep.results):
            yield f"{own}: {line}."


def _figure(found: Sequence[Sweep], name: str, unit: str, take: Take, caption: str) -> Figure:
    curves = tuple(series(sweep, f"LUN {_depth(sweep)}", take) for sweep in found)
    values = [dot.y for each in curves for dot in each.dots]
    make = logarithmic if "latency" in unit else linear
    chart = Curves(name, _over(found), make(unit, values), curves)
    return Figure(name, draw_curves(chart), caption + next(filter(None, map(doubts, found)), ""))


def _over(found: Sequence[Sweep]) -> Axis:
    depths = {result.workload.issued for sweep in found for result in sweep.results}
    return measured("depth of the workload, I/Os in flight", {each: str(each) for each in depths})


def _named(sweep: Sweep) -> PageTable:
    made = table(sweep)
    return replace(made, caption=f"{made.caption}, LUN depth {_depth(sweep)}")
