"""The sections on depth sweeps and on interference.

The section on depth shows curves with their knee, and the CPU time of an I/O. Sweeps that also vary
the LUN depth or the number of jobs share a block, with one curve each. Mixed loads and the four
corners have their own sections in ``sweep_sections``.

The section on interference compares a reader with and without a bulk writer, by scheduler.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from hbatune.facts.names import NaturalKey, natural_key
from hbatune.probe.comparison import Goal, Standing
from hbatune.probe.knee import Knee
from hbatune.probe.sweeps import (
    Interference,
    Sweep,
    SweptParameter,
    find_interference,
    group_by_jobs,
)
from hbatune.report import charts, page, sweep_sections
from hbatune.text import plan_tables, probe_tables, units
from hbatune.text.basic_output import format_sentence


def make_depth_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on depth, the latest sweep first."""
    sweeps = sweep_sections.choose_sweeps(data, SweptParameter.DEPTH)
    elsewhere = data.corner_sweeps
    pure, single, lun_sweeps = [], [], []
    for sweep in sweeps:
        if sweep not in elsewhere and not sweep_sections.is_mix(sweep):
            pure.append(sweep)
    job_groups = group_by_jobs(pure)
    job_sweeps = list(chain.from_iterable(job_groups))
    for sweep in sweeps:
        if sweep.workload.queue_depth is not None:
            lun_sweeps.append(sweep)
        elif sweep in pure and sweep not in job_sweeps:
            single.append(sweep)
    more = "more sweeps are in `hbatune history`."
    blocks = page.make_blocks(_make_depth_block, data, single, sweep_sections.MAX_SWEEPS, more)
    for group in job_groups[: sweep_sections.MAX_SWEEPS]:
        blocks.append(sweep_sections.make_jobs_block(data, group))
    blocks += sweep_sections.make_lun_blocks(data, lun_sweeps)
    return blocks


def _make_depth_block(data: page.ReportData, sweep: Sweep) -> page.Block:
    knee, standing = sweep.knee, data.standing(sweep.results[0])
    goal = None if standing is None else standing.goal
    figures = (
        _draw_throughput_latency(sweep, knee),
        _draw_rate(sweep, knee),
        _draw_latency(sweep, knee, goal, "" if data.profile is None else data.profile.name),
        _draw_cpu(sweep, knee),
        sweep_sections.draw_rate_by_cpu(sweep),
    )
    return page.Block(
        name=f"{sweep.target}: {sweep_sections.name_load(sweep)}",
        notes=(*_describe_depth(sweep, knee, standing), *data.list_stale(sweep.records[-1])),
        figures=figures,
        folded=(sweep_sections.make_sweep_table(sweep),),
    )


def _describe_depth(sweep: Sweep, knee: Knee | None, standing: Standing | None) -> Iterator[str]:
    if knee is not None:
        yield format_sentence(probe_tables.describe_knee(knee, standing))
        figures = next(run.figures for run in sweep.results if run.workload.issued == knee.depth)
        yield (
            f"At depth {knee.depth} there are {units.format_rate(figures.iops)} IOPS with a p99 of "
            f"{units.format_latency(figures.p99_us)}, for "
            f"{units.format_digits(figures.cost_us_per_io)} µs of CPU time each."
        )
    yield from map(format_sentence, probe_tables.describe_cpu_limits(sweep.results))
    yield units.format_conditions(sweep.records[-1])


def _draw_throughput_latency(sweep: Sweep, knee: Knee | None) -> page.Figure:
    dots = []
    for result in sweep.results:
        figures, depth = result.figures, result.workload.issued
        is_knee = knee is not None and knee.past is not None and depth == knee.depth
        label, doubted = f"knee: {depth}" if is_knee else str(depth), bool(result.doubt)
        dots.append(charts.Dot(figures.iops, figures.p99_us / 1000, label, doubted, is_knee))
    notes = [] if knee is None or knee.past is None else ["knee-ring"]
    return charts.draw_curves("depth-throughput", [charts.Series("p99", tuple(dots))], notes=notes)


def _draw_rate(sweep: Sweep, knee: Knee | None) -> page.Figure:
    curves = [sweep_sections.make_series(sweep, "IOPS", sweep_sections.get_iops)]
    axis, notes = sweep_sections.make_sweep_axis(sweep), _list_knee_notes(knee, sweep)
    band, upright = _get_knee_range(knee), _mark_knee(knee)
    return charts.draw_curves("depth-iops", curves, axis, notes=notes, band=band, upright=upright)


def _list_knee_notes(knee: Knee | None, sweep: Sweep) -> list[str]:
    """Return the sentences on the rate over depth, with the confidence in the knee."""
    if knee is None or knee.past is None:
        return ["no-knee"]
    if knee.low < knee.high:
        return ["knee", "knee-range"]
    return ["knee"] if sweep.ranged else ["knee", "knee-unsure"]


def _draw_latency(sweep: Sweep, knee: Knee | None, goal: Goal | None, profile: str) -> page.Figure:
    curves = (
        sweep_sections.make_series(sweep, "p50", lambda load: load.p50_us / 1000),
        sweep_sections.make_series(sweep, "p99", sweep_sections.get_p99_ms),
        sweep_sections.make_series(sweep, "p99.9", lambda load: load.p999_us / 1000),
    )
    axis = sweep_sections.make_sweep_axis(sweep)
    band, upright = _get_knee_range(knee), _mark_knee(knee)
    level, notes, source = None, [], ""
    if goal is not None:
        level = charts.Guide(goal.p99_ms, f"{profile}: p99 {goal.p99_ms:g} ms")
        notes, source = ["objective"], goal.source
    return charts.draw_curves(
        "depth-latency",
        curves,
        axis,
        notes=notes,
        band=band,
        upright=upright,
        level=level,
        profile=profile,
        source=source,
    )


def _draw_cpu(sweep: Sweep, knee: Knee | None) -> page.Figure:
    curves = [sweep_sections.make_series(sweep, "load", lambda figures: figures.cpu_us_per_io)]
    name = "depth-cpu"
    if any(result.figures.interrupt_us_per_io is not None for result in sweep.results):
        curve = sweep_sections.make_series(
            sweep, "load and interrupts", lambda figures: figures.cost_us_per_io
        )
        curves.append(curve)
        name = "depth-cpu-interrupts"
    axis = sweep_sections.make_sweep_axis(sweep)
    return charts.draw_curves(name, curves, axis, upright=_mark_knee(knee))


def _get_knee_range(knee: Knee | None) -> tuple[float, float] | None:
    return None if knee is None or knee.low == knee.high else (knee.low, knee.high)


def _mark_knee(knee: Knee | None) -> charts.Guide | None:
    if knee is None or knee.past is None:
        return None
    return charts.Guide(knee.depth, f"knee: {knee.depth}")


MAX_PAIRS = 24
"""Maximum number of pairs drawn. The table has all of them."""

_KEYS = charts.load_keys("interference")


def make_interference_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on interference, by disk and scheduler."""

    def get_key(pair: Interference) -> tuple[NaturalKey, str]:
        return natural_key(pair.beside.target), pair.scheduler or ""

    pairs = sorted(find_interference(data.records), key=get_key)
    if not pairs:
        return []
    drawn = [pair for pair in pairs if min(_list_latencies(pair)) > 0][:MAX_PAIRS]
    rows = map(_make_interference_row, drawn)
    block = page.Block(
        notes=tuple(data.list_stale(*(pair.record for pair in pairs))),
        figures=(charts.draw_rows("interference", rows, _KEYS),) if drawn else (),
        tables=(_make_interference_table(pairs),),
    )
    return [block]


def _list_latencies(pair: Interference) -> tuple[float, ...]:
    """Return the four latencies in ms, in the order of the legend."""
    alone, beside = pair.alone.figures, pair.beside.figures
    return tuple(us / 1000 for us in (alone.p50_us, alone.p99_us, beside.p50_us, beside.p99_us))


def _make_interference_row(pair: Interference) -> charts.ChartRow:
    runs = (pair.alone, pair.alone, pair.beside, pair.beside)
    marks = []
    for time, key, run in zip(_list_latencies(pair), _KEYS, runs, strict=True):
        marks.append(charts.Mark(time, key, run.doubt is not None))
    scheduler = f"scheduler {plan_tables.format_value(pair.scheduler)}"
    return charts.make_spread_row(pair.beside.target, scheduler, marks)


def _make_interference_table(pairs: Sequence[Interference]) -> page.PageTable:
    rows = []
    for pair in pairs:
        alone, beside = pair.alone.figures, pair.beside.figures
        change = written = plan_tables.format_value(None)
        if alone.p99_us:
            change = units.format_change(beside.p99_us / alone.p99_us)
        if beside.written_beside is not None:
            written = f"{units.format_digits(beside.written_beside / 1e6)} MB/s"
        cells = [pair.beside.target, plan_tables.format_value(pair.scheduler)]
        cells += [units.format_short_workload(pair.alone.workload)]
        cells += [units.format_time(pair.record.time)]
        cells += [f"{units.format_rate(alone.iops)} → {units.format_rate(beside.iops)}"]
        cells += [_show_both(alone.p50_us, beside.p50_us), _show_both(alone.p99_us, beside.p99_us)]
        rows.append((*cells, change, written))
    return page.make_table("interference", rows)


def _show_both(lone: float, loaded: float) -> str:
    return f"{units.format_latency(lone)} → {units.format_latency(loaded)}"
