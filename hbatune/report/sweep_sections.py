"""The sections on sweeps of depth, block size, read share, four corners and rising load."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from msgspec.structs import replace

from hbatune.facts.names import group_items
from hbatune.probe.comparison import Goal, Standing, compute_mix_cost
from hbatune.probe.knee import Knee
from hbatune.probe.result import Figures, Pattern, ProbeResult, Workload
from hbatune.probe.sweeps import Sweep, SweptParameter, advise_jobs, group_by_jobs
from hbatune.report import charts, page, svg
from hbatune.report.charts import Dot, Series, draw_curves
from hbatune.shipped import load_texts
from hbatune.text import probe_tables, units
from hbatune.text.basic_output import format_count, format_sentence

_MetricGetter = Callable[[Figures], float]
_CurveName = Callable[[Sweep], str]

_get_iops: _MetricGetter = attrgetter("iops")


def _get_p99_ms(figures: Figures) -> float:
    return figures.p99_us / 1000


def make_sweep_blocks(data: page.ReportData, swept: SweptParameter) -> list[page.Block]:
    """Return the section on block sizes, or on the read share."""
    sweeps, more = _choose_sweeps(data, swept), "more sweeps are in `hbatune history`."
    return page.make_blocks(_make_sweep_block, data, sweeps, more)


def _choose_sweeps(data: page.ReportData, swept: SweptParameter) -> list[Sweep]:
    """Return the latest sweeps of a type that can be drawn."""
    return [sweep for sweep in data.sweeps if sweep.swept is swept and _is_drawable(sweep)]


def _is_drawable(sweep: Sweep) -> bool:
    """Return whether all figures of a sweep are above zero, as logarithmic axes require."""
    runs = [result.figures for result in sweep.results]
    return all(min(run.iops, run.p50_us, run.p99_us) > 0 for run in runs)


def _make_series(
    sweep: Sweep, name: str, take: _MetricGetter, take_x: _MetricGetter | None = None
) -> Series:
    """Return a metric over the swept value, or over ``take_x`` with the swept values as labels."""
    dots = []
    for result in sweep.results:
        x: float = sweep.swept.of(result.workload)
        label = ""
        if take_x is not None:
            x, label = take_x(result.figures), _show_value(sweep.swept, result.workload)
        dots.append(Dot(x, take(result.figures), label, doubted=bool(result.doubt)))
    return Series(name, tuple(dots))


def _make_sweep_axis(sweep: Sweep) -> svg.Axis:
    values = [sweep.swept.of(result.workload) for result in sweep.results]
    if sweep.swept is SweptParameter.MIX:
        ticks = tuple(svg.Tick(value, str(value)) for value in sorted(values))
        return svg.Axis("share of reads, %", min(values), max(values), ticks)
    if sweep.swept is SweptParameter.DEPTH:
        return svg.make_measured_axis("depth, I/Os in flight", values)
    return make_block_axis(values)


def make_block_axis(sizes: Iterable[int]) -> svg.Axis:
    """Return the axis of block sizes in bytes."""
    return svg.make_measured_axis("block size, bytes", sizes, units.format_block_size)


def get_cpu_percent(figures: Figures) -> float:
    """Return the CPU time of a run in percent of one CPU."""
    return figures.iops * figures.cost_us_per_io / 10_000


def _draw_rate_by_cpu(sweep: Sweep) -> page.Figure:
    """Draw the IOPS of each run over its CPU time (D1-1)."""
    curve = _make_series(sweep, "IOPS", _get_iops, get_cpu_percent)
    point = load_texts("report.toml")["points"][sweep.swept]
    return draw_curves("iops-by-cpu", [curve], point=point)


def _make_sweep_table(sweep: Sweep) -> page.PageTable:
    """Return a table of the values in the curves."""
    rows = []
    for result in sweep.results:
        rows.append((_show_value(sweep.swept, result.workload), *_list_cells(result)))
    return page.make_table("sweep", rows, load_texts("report.toml")["heads"][sweep.swept])


def _make_joined_table(sweeps: Sequence[Sweep], head: str, name: _CurveName) -> page.PageTable:
    """Return a table of the values in several curves. Each row starts with its curve's name."""
    rows, tables = list[tuple[str, ...]](), list(map(_make_sweep_table, sweeps))
    for sweep, table in zip(sweeps, tables, strict=True):
        rows += [(name(sweep), *row) for row in table.rows]
    heads, right = (head, *tables[0].heads), frozenset(range(1, 11))
    return replace(tables[0], heads=heads, rows=tuple(rows), right=right)


def _make_sweep_block(data: page.ReportData, sweep: Sweep) -> page.Block:
    last = sweep.records[-1]
    notes = [units.format_conditions(last), *data.list_stale(last)]
    # The cost of writes compared with the source documents (D0-15), if it was measured.
    if (cost := compute_mix_cost(sweep.results, data.yardsticks)) is not None:
        notes.insert(0, format_sentence(probe_tables.describe_mix(cost)))
    draw = _draw_sizes if sweep.swept is SweptParameter.BLOCK else _draw_mixes
    folded = (_make_sweep_table(sweep),)
    return page.Block(_name_sweep(sweep), tuple(notes), tuple(draw(sweep)), folded=folded)


def _name_sweep(sweep: Sweep) -> str:
    workload, target = sweep.workload, sweep.target
    if sweep.swept is SweptParameter.BLOCK:
        return f"{target}: {units.format_pattern(workload)}, {workload.issued} deep"
    size = units.format_block_size(workload.block_size)
    return f"{target}: {size} random I/O, {workload.issued} deep"


def _draw_sizes(sweep: Sweep) -> Iterator[page.Figure]:
    yield _draw_curve("block-iops", sweep, _get_iops)
    yield _draw_curve("block-throughput", sweep, lambda load: load.bandwidth / 1e6)
    yield _draw_curve("block-cpu", sweep, get_cpu_percent)
    yield _draw_rate_by_cpu(sweep)


def _draw_mixes(sweep: Sweep) -> Iterator[page.Figure]:
    yield _draw_curve("mix-iops", sweep, _get_iops)
    curves = (
        _make_series(sweep, "p50", lambda load: load.p50_us / 1000),
        _make_series(sweep, "p99", _get_p99_ms),
    )
    yield draw_curves("mix-latency", curves, _make_sweep_axis(sweep))


def _draw_curve(name: str, sweep: Sweep, take: _MetricGetter) -> page.Figure:
    return draw_curves(name, [_make_series(sweep, "", take)], _make_sweep_axis(sweep))


def _show_value(swept: SweptParameter, workload: Workload) -> str:
    value = swept.of(workload)
    if swept is SweptParameter.BLOCK:
        return units.format_block_size(value)
    return f"{value} %" if swept is SweptParameter.MIX else str(value)


def _list_cells(result: ProbeResult) -> list[str]:
    figures = result.figures
    times = (figures.mean_us, figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us)
    cells = [units.format_rate(figures.iops), units.format_digits(figures.bandwidth / 1e6)]
    # The part of the issued depth that was in flight by Little's law (D3-6).
    cells.append(units.format_percent(figures.concurrency / result.workload.issued))
    cells += map(units.format_latency, times)
    cost = f"{units.format_digits(figures.cost_us_per_io)} µs"
    return [*cells, cost, probe_tables.describe_doubt(result)]


def make_depth_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on depth. Sweeps that also vary the LUN depth or jobs share a block."""
    sweeps = _choose_sweeps(data, SweptParameter.DEPTH)
    elsewhere = list(chain.from_iterable(data.corners))
    pure = [sweep for sweep in sweeps if sweep not in elsewhere and not _is_mix(sweep)]
    job_groups = group_by_jobs(pure)
    lun_sweeps = [sweep for sweep in sweeps if sweep.workload.queue_depth is not None]
    in_blocks = [*lun_sweeps, *chain.from_iterable(job_groups)]
    single = [sweep for sweep in pure if sweep not in in_blocks]
    disks = list(group_items(lun_sweeps, attrgetter("id")).values())
    return [
        *page.make_blocks(_make_depth_block, data, single, "more sweeps are in `hbatune history`."),
        *(_make_jobs_block(data, group) for group in job_groups[: page.MAX_BLOCKS]),
        *(_make_lun_block(data, group) for group in disks[: page.MAX_BLOCKS]),
    ]


def _make_depth_block(data: page.ReportData, sweep: Sweep) -> page.Block:
    standing = data.standing(sweep.results[0])
    goal = None if standing is None else standing.goal
    figures = (
        _draw_throughput_latency(sweep),
        _draw_rate(sweep),
        _draw_latency(sweep, goal, "" if data.profile is None else data.profile.name),
        _draw_cpu(sweep),
        _draw_rate_by_cpu(sweep),
    )
    return page.Block(
        name=f"{sweep.target}: {_name_load(sweep)}",
        notes=(*_describe_depth(sweep, standing), *data.list_stale(sweep.records[-1])),
        figures=figures,
        folded=(_make_sweep_table(sweep),),
    )


def _describe_depth(sweep: Sweep, standing: Standing | None) -> Iterator[str]:
    if (knee := sweep.knee) is not None:
        yield format_sentence(probe_tables.describe_knee(knee, standing))
        figures = next(run.figures for run in sweep.results if run.workload.issued == knee.depth)
        yield (
            f"At depth {knee.depth} there are {units.format_rate(figures.iops)} IOPS with a p99 of "
            f"{units.format_latency(figures.p99_us)}, for "
            f"{units.format_digits(figures.cost_us_per_io)} µs of CPU time each."
        )
    yield from map(format_sentence, probe_tables.describe_cpu_limits(sweep.results))
    yield units.format_conditions(sweep.records[-1])


def _draw_throughput_latency(sweep: Sweep) -> page.Figure:
    dots, knee = [], _find_passed_knee(sweep)
    for result in sweep.results:
        figures, depth = result.figures, result.workload.issued
        is_knee = knee is not None and depth == knee.depth
        label, doubted = f"knee: {depth}" if is_knee else str(depth), bool(result.doubt)
        dots.append(Dot(figures.iops, figures.p99_us / 1000, label, doubted, is_knee))
    notes = [] if knee is None else ["knee-ring"]
    return draw_curves("depth-throughput", [Series("p99", tuple(dots))], notes=notes)


def _draw_rate(sweep: Sweep) -> page.Figure:
    curves = [_make_series(sweep, "IOPS", _get_iops)]
    axis, notes = _make_sweep_axis(sweep), _list_knee_notes(sweep)
    band, upright = _get_knee_range(sweep), _mark_knee(sweep)
    return draw_curves("depth-iops", curves, axis, notes=notes, band=band, upright=upright)


def _list_knee_notes(sweep: Sweep) -> list[str]:
    """Return the sentences on the rate over depth, with the confidence in the knee."""
    if (knee := _find_passed_knee(sweep)) is None:
        return ["no-knee"]
    if knee.low < knee.high:
        return ["knee", "knee-range"]
    return ["knee"] if sweep.ranged else ["knee", "knee-unsure"]


def _draw_latency(sweep: Sweep, goal: Goal | None, profile: str) -> page.Figure:
    curves = (
        _make_series(sweep, "p50", lambda load: load.p50_us / 1000),
        _make_series(sweep, "p99", _get_p99_ms),
        _make_series(sweep, "p99.9", lambda load: load.p999_us / 1000),
    )
    level, notes, source = None, [], ""
    if goal is not None:
        level = charts.Guide(goal.p99_ms, f"{profile}: p99 {goal.p99_ms:g} ms")
        notes, source = ["objective"], goal.source
    return draw_curves(
        "depth-latency",
        curves,
        _make_sweep_axis(sweep),
        notes=notes,
        band=_get_knee_range(sweep),
        upright=_mark_knee(sweep),
        level=level,
        profile=profile,
        source=source,
    )


def _draw_cpu(sweep: Sweep) -> page.Figure:
    curves = [_make_series(sweep, "load", lambda load: load.cpu_us_per_io)]
    name = "depth-cpu"
    if any(result.figures.interrupt_us_per_io is not None for result in sweep.results):
        curves.append(_make_series(sweep, "load and interrupts", lambda load: load.cost_us_per_io))
        name = "depth-cpu-interrupts"
    return draw_curves(name, curves, _make_sweep_axis(sweep), upright=_mark_knee(sweep))


def _find_passed_knee(sweep: Sweep) -> Knee | None:
    """Return the knee, or None if the deepest depth may still be below it."""
    return None if sweep.knee is None or sweep.knee.past is None else sweep.knee


def _get_knee_range(sweep: Sweep) -> tuple[float, float] | None:
    knee = sweep.knee
    return None if knee is None or knee.low == knee.high else (knee.low, knee.high)


def _mark_knee(sweep: Sweep) -> charts.Guide | None:
    knee = _find_passed_knee(sweep)
    return None if knee is None else charts.Guide(knee.depth, f"knee: {knee.depth}")


def _make_lun_block(data: page.ReportData, sweeps: Sequence[Sweep]) -> page.Block:
    """Return the block of a disk's sweeps at several LUN depths (D2-1)."""
    ordered = sorted(sweeps, key=lambda sweep: sweep.workload.queue_depth or 0)
    return _make_several_block(data, "lun", ordered, "by depth of the LUN itself", _name_depth)


def _name_depth(sweep: Sweep) -> str:
    return f"LUN depth {sweep.workload.queue_depth}"


def _make_jobs_block(data: page.ReportData, sweeps: Sequence[Sweep]) -> page.Block:
    """Return the block of sweeps with different numbers of jobs (D0-14)."""
    advice = advise_jobs(sweeps)
    notes = () if advice is None else (format_sentence(probe_tables.describe_jobs(advice)),)
    return _make_several_block(data, "jobs", sweeps, "by number of jobs", _name_jobs, notes)


def _name_jobs(sweep: Sweep) -> str:
    return format_count(sweep.workload.jobs, "job")


def _make_several_block(
    data: page.ReportData,
    pictures: str,
    sweeps: Sequence[Sweep],
    criterion: str,
    name: _CurveName,
    notes: tuple[str, ...] = (),
) -> page.Block:
    sweeps = sweeps[: charts.MAX_SERIES]
    last = sweeps[-1].records[-1]
    stale = data.list_stale(*(sweep.records[-1] for sweep in sweeps))
    lines = list(notes)
    for sweep in sweeps:
        if (knee := sweep.knee) is not None:
            standing = data.standing(sweep.results[0])
            lines.append(f"{name(sweep)}: {probe_tables.describe_knee(knee, standing)}.")
        for line in probe_tables.describe_cpu_limits(sweep.results):
            lines.append(f"{name(sweep)}: {line}.")
    axis = "depth of the workload, I/Os in flight"
    rate = _draw_several(f"{pictures}-iops", sweeps, name, axis, _get_iops)
    p99 = _draw_several(f"{pictures}-p99", sweeps, name, axis, _get_p99_ms)
    return page.Block(
        name=f"{last.target}: {_name_load(sweeps[0])}, {criterion}",
        notes=(*lines, units.format_conditions(last), *stale),
        figures=(rate, p99),
        folded=(_make_joined_table(sweeps, "Curve", name),),
    )


def _draw_several(
    picture: str,
    sweeps: Sequence[Sweep],
    name: _CurveName,
    axis: str,
    take: _MetricGetter,
    ceiling: float | None = None,
) -> page.Figure:
    """Draw a curve for each sweep over the depth, and the ``ceiling`` of a link in GB/s."""
    curves = [_make_series(sweep, name(sweep), take) for sweep in sweeps]
    depths = [result.workload.issued for sweep in sweeps for result in sweep.results]
    return draw_curves(picture, curves, svg.make_measured_axis(axis, depths), ceiling=ceiling)


def make_corner_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on random and sequential reads and writes, the latest disk first."""
    measured_corners = [corner for corner in data.corners if all(map(_is_drawable, corner))]
    more = "more disks are in `hbatune history`."
    return page.make_blocks(_make_corners_block, data, measured_corners, more)


def _make_corners_block(data: page.ReportData, corners: Sequence[Sweep]) -> page.Block:
    last = corners[-1].records[-1]
    random = [sweep for sweep in corners if not sweep.workload.pattern.is_sequential]
    sequential = corners[len(random) :]
    # The bandwidth of the disk's narrowest link in GB/s.
    standing = data.standing(sequential[0].results[0])
    links = () if standing is None else standing.links
    ceiling = min((link.ceiling for link in links), default=None)
    axis = "depth, I/Os in flight"
    iops = _draw_several("corners-random", random, _name_load, axis, _get_iops)
    throughput = _draw_several(
        "corners-sequential",
        sequential,
        _name_load,
        axis,
        lambda load: load.bandwidth / 1e9,
        ceiling,
    )
    notes = []
    for sweep in corners:
        if (knee := sweep.knee) is not None:
            standing = data.standing(max(sweep.results, key=lambda result: result.figures.iops))
            notes.append(f"{_name_load(sweep)}: {probe_tables.describe_knee(knee, standing)}.")
    return page.Block(
        name=last.target,
        notes=(*notes, units.format_conditions(last), *data.list_stale(last)),
        figures=(iops, throughput),
        folded=(_make_joined_table(corners, "Load", _name_load),),
    )


def _name_load(sweep: Sweep) -> str:
    size = units.format_block_size(sweep.workload.block_size)
    return f"{size} {units.format_pattern(sweep.workload)}"


def make_load_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on response time over IOPS (D4): mixes, and loads of several disks."""
    sweeps = _choose_sweeps(data, SweptParameter.DEPTH)
    elsewhere = list(chain.from_iterable(data.corners))
    plain = [s for s in sweeps if s.workload.queue_depth is None and s not in elsewhere]
    loads = group_items(plain, lambda sweep: SweptParameter.DEPTH.without(sweep.workload))
    groups = [group for group in loads.values() if _is_mix(group[0]) or len(group) > 1]
    more = "more loads are in `hbatune history`."
    return page.make_blocks(_make_load_block, data, groups, more)


def _is_mix(sweep: Sweep) -> bool:
    return sweep.workload.pattern is Pattern.RANDOM_MIX


def _make_load_block(data: page.ReportData, sweeps: Sequence[Sweep]) -> page.Block:
    drawn = sweeps[: charts.MAX_SERIES]
    mean = _draw_load(drawn, "Mean response time", "mean", lambda load: load.mean_us / 1000)
    p99 = _draw_load(drawn, "p99", "p99", _get_p99_ms)
    return page.Block(
        name=_name_load(sweeps[0]),
        notes=tuple(_describe_load(data, sweeps, drawn)),
        figures=(mean, p99),
        folded=(_make_joined_table(drawn, "Disk", lambda sweep: sweep.target),),
    )


def _describe_load(
    data: page.ReportData, sweeps: Sequence[Sweep], drawn: Sequence[Sweep]
) -> Iterator[str]:
    for sweep in drawn:
        last = sweep.records[-1]
        # The section on depth reports the knee of a read-only load.
        knee = sweep.knee if _is_mix(sweep) else None
        knee_text = "" if knee is None else f"{probe_tables.describe_knee(knee)}. "
        yield f"{last.target}: {knee_text}{units.format_conditions(last)}"
    if len(sweeps) > len(drawn):
        omitted = ", ".join(sweep.target for sweep in sweeps[len(drawn) :])
        yield f"Not drawn, because the number of curves in a picture is limited: {omitted}."
    yield from data.list_stale(*(sweep.records[-1] for sweep in drawn))


def _draw_load(
    sweeps: Sequence[Sweep], title: str, metric: str, take: _MetricGetter
) -> page.Figure:
    curves = [_make_series(sweep, sweep.target, take, _get_iops) for sweep in sweeps]
    return draw_curves("load", curves, title=title, metric=metric)
