"""The sections on sweeps: block sizes, read share, several depths, corners, rising load.

The sections on block sizes and on the read share, and the parts that all sweeps share.

Blocks of several sweeps of depth: a curve for each depth of the LUN, or number of jobs.

The section on the four corners: random and sequential I/Os, read and written, over depth.

The section on rising load: response time over IOPS, as document D4 draws it.

Mixed loads are here, and any load of which several disks have a sweep: each disk is a curve.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from hbatune.probe.comparison import mix_cost
from hbatune.probe.result import Figures, Pattern, ProbeResult, Workload
from hbatune.probe.sweeps import Corners, Sweep, Swept, advise_jobs
from hbatune.report import charts
from hbatune.report.charts import Curves, Dot, Guide, Series, curves_figure
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import Axis, Tick, linear, logarithmic, measured
from hbatune.text.basic_output import quantity
from hbatune.text.probe_tables import (
    doubt_text,
    jobs_line,
    knee_line,
    limits,
    mix_line,
    stale_notes,
    standing_lines,
)
from hbatune.text.units import block, digits, latency, measurement_conditions, pattern, rate

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
    return [sweep for sweep in data.sweeps if sweep.swept is swept and drawable(sweep)]


def drawable(sweep: Sweep) -> bool:
    """Whether all its figures are above zero, as logarithmic axes need."""
    figures = [result.figures for result in sweep.results]
    return all(min(figure.iops, figure.p50_us, figure.p99_us) > 0 for figure in figures)


def older(found: Sequence[Sweep]) -> Iterator[Block]:
    """Yield a note on sweeps that are not drawn, if any."""
    if len(found) > MOST:
        yield Block(notes=(f"{len(found) - MOST} more sweeps are in `hbatune history`.",))


def series(sweep: Sweep, name: str, take: Take) -> Series:
    """Return one figure of every run as a curve over the swept value."""
    return Series(name, tuple(_dot(sweep, result, take) for result in sweep.results))


def doubts(sweep: Sweep) -> str:
    """Return a note on points that must not be trusted, empty where there are none."""
    return HOLLOW if any(result.doubt for result in sweep.results) else ""


def over(sweep: Sweep) -> Axis:
    """Return the axis of the swept value."""
    values = [sweep.swept.of(result.workload) for result in sweep.results]
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
            cpu_percent(result.figures),
            result.figures.iops,
            _value(sweep.swept, result.workload),
            doubted=result.doubt is not None,
        )
        for result in sweep.results
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
    rows = tuple(
        (_value(sweep.swept, result.workload), *_cells(result)) for result in sweep.results
    )
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
                measurement_conditions(sweep.records[-1]),
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
    values = [dot.y for curve in curves for dot in curve.dots]
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


_Name = Callable[[Sweep], str]


def lun_depths(data: ReportData, found: Sequence[Sweep]) -> Iterator[Block]:
    """Yield a block for each disk with sweeps at several depths of its own (D2-1)."""
    disks: dict[object, list[Sweep]] = {}
    for sweep in found:
        disks.setdefault(sweep.records[0].id, []).append(sweep)
    for alike in list(disks.values())[:MOST]:
        yield _lun_block(data, sorted(alike, key=_own_depth)[: charts.MOST])


def jobs_block(data: ReportData, found: Sequence[Sweep]) -> Block:
    """Return the block of sweeps that differ in their jobs (D0-14)."""
    advice = advise_jobs(found)
    told: tuple[str, ...] = ()
    if advice is not None:
        line = jobs_line(advice)
        told = (f"{line[0].upper()}{line[1:]}.",)
    return _several_block(
        data,
        found[: charts.MOST],
        "by number of jobs",
        lambda sweep: quantity(sweep.workload.jobs, "job"),
        ("The same I/Os in flight, by one thread or by several (D0-14).", "The same for p99."),
        told,
    )


def _lun_block(data: ReportData, found: Sequence[Sweep]) -> Block:
    return _several_block(
        data,
        found,
        "by depth of the LUN itself",
        lambda sweep: f"LUN depth {_own_depth(sweep)}",
        (
            "Past the LUN's own depth a line is flat: the rest waits above it (D2-1).",
            "What waits above the LUN is in its latency, too.",
        ),
    )


def _own_depth(sweep: Sweep) -> int:
    return sweep.workload.queue_depth or 0


def _several_block(
    data: ReportData,
    found: Sequence[Sweep],
    what: str,
    name: _Name,
    captions: tuple[str, str],
    told: tuple[str, ...] = (),
) -> Block:
    asked, last = found[0].workload, found[-1].records[-1]
    stale = dict.fromkeys(stale_notes(data.stale(*(each.records[-1] for each in found))))
    of = what.removeprefix("by ").removesuffix(" itself")
    return Block(
        name=f"{last.target}: {block(asked.block_size)} {pattern(asked)}, {what}",
        notes=(*told, *_several_notes(found, name), measurement_conditions(last), *stale),
        figures=(
            _several_figure(
                found,
                f"IOPS over depth, by {of}",
                "IOPS, I/Os per second",
                name,
                lambda figures: figures.iops,
                captions[0],
            ),
            _several_figure(
                found,
                f"p99 over depth, by {of}",
                "p99 latency, ms",
                name,
                lambda figures: figures.p99_us / 1000,
                captions[1],
            ),
        ),
        folded=(joined_table(found, "Curve", name),),
    )


def _several_notes(found: Sequence[Sweep], name: _Name) -> Iterator[str]:
    for sweep in found:
        if (knee := sweep.knee) is not None:
            yield f"{name(sweep)}: {knee_line(knee)}."
        for line in limits(sweep.results):
            yield f"{name(sweep)}: {line}."


def _several_figure(
    found: Sequence[Sweep], title: str, unit: str, name: _Name, take: Take, caption: str
) -> Figure:
    curves = tuple(series(sweep, name(sweep), take) for sweep in found)
    values = [dot.y for curve in curves for dot in curve.dots]
    make = logarithmic if "latency" in unit else linear
    chart = Curves(title, _over(found), make(unit, values), curves)
    return curves_figure(chart, caption + next(filter(None, map(doubts, found)), ""))


def _over(found: Sequence[Sweep]) -> Axis:
    depths = {result.workload.issued for sweep in found for result in sweep.results}
    return measured(
        "depth of the workload, I/Os in flight", {depth: str(depth) for depth in depths}
    )


_NEAR = 3.0
"""A link's ceiling is drawn where it is at most so many times the most that was measured: a line
far above would flatten the curves."""


def corners(data: ReportData) -> PageSection:
    """Return the section, the newest disk first."""
    found = [corner for corner in data.corners if all(map(drawable, corner.sweeps))]
    howto = Howto(
        # DISK and not a real name: a command that destroys data must not be ready to paste.
        "The four corners have not been measured yet. They write: name an empty disk.",
        "hbatune probe four-corners DISK --destructive",
    )
    blocks = [_corners_block(data, each) for each in found[:MOST]]
    if len(found) > MOST:
        blocks.append(Block(notes=(f"{len(found) - MOST} more disks are in `hbatune history`.",)))
    name = "What it does at most: the four corners"
    return PageSection("corners", name, tuple(blocks), howto)


def _corners_block(data: ReportData, found: Corners) -> Block:
    last = found.sweeps[-1].records[-1]
    ceiling = _ceiling(data, found)
    return Block(
        name=last.target,
        notes=(
            *_corners_notes(data, found),
            measurement_conditions(last),
            *stale_notes(data.stale(last)),
        ),
        figures=(
            _corners_figure(
                found.random,
                "IOPS of random I/O over depth",
                "IOPS, I/Os per second",
                lambda each: each.iops,
                "Random I/Os ask of disk and adapter how many they manage (D4-8).",
            ),
            _corners_figure(
                found.sequential,
                "Throughput of sequential I/O over depth",
                "throughput, GB/s",
                lambda each: each.bandwidth / 1e9,
                f"Sequential I/Os ask of the link what it carries (D4-8, D4-9).{_beyond(ceiling)}",
                ceiling,
            ),
        ),
        folded=(joined_table(found.sweeps, "Load", _load),),
    )


def _corners_notes(data: ReportData, found: Corners) -> Iterator[str]:
    for sweep in found.sweeps:
        if (knee := sweep.knee) is not None:
            yield f"{_load(sweep)}: {knee_line(knee)}."
        best = max(sweep.results, key=lambda each: each.figures.iops)
        standing = data.standing(best)
        if standing is not None and standing.raid:
            # What such pairs of adapters gave by RAID level (D4-12).
            raid = replace(standing, goal=None, document=None, links=())
            yield from standing_lines(best, raid, "")


def _ceiling(data: ReportData, found: Corners) -> float | None:
    """Return what the narrowest link below the disk carries in GB/s, None where it is unknown."""
    standing = data.standing(found.sequential[0].results[0])
    links = () if standing is None else standing.links
    return min((link.ceiling for link in links), default=None)


def _beyond(ceiling: float | None) -> str:
    return "" if ceiling is None else f" The adapter's link carries {digits(ceiling)} GB/s."


def _corners_figure(
    found: Sequence[Sweep],
    name: str,
    unit: str,
    take: Take,
    caption: str,
    ceiling: float | None = None,
) -> Figure:
    curves = tuple(series(sweep, _load(sweep), take) for sweep in found)
    values = [dot.y for curve in curves for dot in curve.dots]
    level = None
    if ceiling is not None and ceiling <= _NEAR * max(values):
        level = Guide(ceiling, f"link: {digits(ceiling)} GB/s")
        values.append(ceiling)
    depths = {result.workload.issued for sweep in found for result in sweep.results}
    axis = measured("depth, I/Os in flight", {depth: str(depth) for depth in depths})
    doubted = any(result.doubt for sweep in found for result in sweep.results)
    chart = Curves(name, axis, linear(unit, values), curves, level=level)
    return curves_figure(chart, caption + (HOLLOW if doubted else ""))


def _load(sweep: Sweep) -> str:
    return f"{block(sweep.workload.block_size)} {pattern(sweep.workload)}"


def load(data: ReportData) -> PageSection:
    """Return the section, the newest load first."""
    loads: dict[Workload, list[Sweep]] = {}
    elsewhere = [each for corners in data.corners for each in corners.sweeps]
    for sweep in chosen(data, Swept.DEPTH):
        if sweep.workload.queue_depth is None and sweep not in elsewhere:
            loads.setdefault(Swept.DEPTH.without(sweep.workload), []).append(sweep)
    found = [each for each in loads.values() if is_mix(each[0]) or len(each) > 1]
    howto = Howto(
        "No mixed load has been raised step by step yet. It writes: name a folder on the disk.",
        "hbatune probe oltp1-load --file DIR",
    )
    blocks = [_load_block(data, each) for each in found[:MOST]]
    if len(found) > MOST:
        blocks.append(Block(notes=(f"{len(found) - MOST} more loads are in `hbatune history`.",)))
    return PageSection("load", "Response time as the load rises", tuple(blocks), howto)


def is_mix(sweep: Sweep) -> bool:
    """Whether a sweep is of reads and writes together."""
    return sweep.workload.pattern is Pattern.RANDOM_MIX


def _load_block(data: ReportData, found: Sequence[Sweep]) -> Block:
    drawn = found[: charts.MOST]
    asked = found[0].workload
    return Block(
        name=f"{block(asked.block_size)} {pattern(asked)}",
        notes=tuple(_load_notes(data, found, drawn)),
        figures=(
            _load_figure(drawn, "Mean response time over IOPS", "mean", lambda each: each.mean_us),
            _load_figure(drawn, "p99 over IOPS", "p99", lambda each: each.p99_us),
        ),
        folded=(joined_table(drawn, "Disk", lambda sweep: sweep.results[0].target),),
    )


def _load_notes(data: ReportData, found: Sequence[Sweep], drawn: Sequence[Sweep]) -> Iterator[str]:
    for sweep in drawn:
        last = sweep.records[-1]
        # The knee of a load that only reads is told in the section on depth.
        knee = sweep.knee if is_mix(sweep) else None
        told = "" if knee is None else f"{knee_line(knee)}. "
        yield f"{last.target}: {told}{measurement_conditions(last)}"
    if len(found) > len(drawn):
        more = ", ".join(each.results[0].target for each in found[len(drawn) :])
        yield f"Not drawn, for there are only so many curves in a picture: {more}."
    stale = stale_notes(data.stale(*(each.records[-1] for each in drawn)))
    yield from dict.fromkeys(stale)


def _load_figure(found: Sequence[Sweep], name: str, what: str, take: Take) -> Figure:
    curves = tuple(
        Series(
            sweep.results[0].target,
            tuple(
                Dot(
                    result.figures.iops,
                    take(result.figures) / 1000,
                    str(result.workload.issued),
                    doubted=result.doubt is not None,
                )
                for result in sweep.results
            ),
        )
        for sweep in found
    )
    dots = [dot for curve in curves for dot in curve.dots]
    chart = Curves(
        name,
        linear("IOPS, I/Os per second", [dot.x for dot in dots]),
        logarithmic(f"{what} response time, ms", [dot.y for dot in dots]),
        curves,
    )
    caption = (
        "Each point is a depth, whose number stands beside it where there is room. Further right "
        "is more, further up is slower; where a curve turns up, the disk is full."
    )
    return curves_figure(chart, caption + (HOLLOW if any(dot.doubted for dot in dots) else ""))
