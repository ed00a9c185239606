"""The sections on sweeps of block size, read share, four corners and rising load.

Several depth sweeps share a block, with a curve for each LUN depth or number of jobs. The four
corners are random and sequential reads and writes over depth.

The section on rising load shows response time over IOPS, as in document D4. It contains mixed
loads, and loads with sweeps of several disks, with a curve for each disk.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec.structs import replace

from hbatune.facts.names import group_items
from hbatune.probe.comparison import compute_mix_cost
from hbatune.probe.result import Figures, Pattern, ProbeResult, Workload
from hbatune.probe.sweeps import Corners, Sweep, SweptParameter, advise_jobs
from hbatune.report import charts, page, svg
from hbatune.report.charts import Dot, Series, draw_curves
from hbatune.shipped import load_texts
from hbatune.text import probe_tables, units
from hbatune.text.basic_output import format_count, format_sentence

MAX_SWEEPS = 6
"""Maximum number of sweeps of one type that are drawn, the latest first."""

MetricGetter = Callable[[Figures], float]
_CurveName = Callable[[Sweep], str]

get_iops: MetricGetter = attrgetter("iops")


def get_p99_ms(figures: Figures) -> float:
    """Return the p99 of a run in ms."""
    return figures.p99_us / 1000


def make_sweep_blocks(data: page.ReportData, swept: SweptParameter) -> list[page.Block]:
    """Return the section on block sizes, or on the read share."""
    sweeps, more = choose_sweeps(data, swept), "more sweeps are in `hbatune history`."
    return page.make_blocks(_make_sweep_block, data, sweeps, MAX_SWEEPS, more)


def choose_sweeps(data: page.ReportData, swept: SweptParameter) -> list[Sweep]:
    """Return the latest sweeps of a type that can be drawn."""
    return [sweep for sweep in data.sweeps if sweep.swept is swept and is_drawable(sweep)]


def is_drawable(sweep: Sweep) -> bool:
    """Return whether all figures of a sweep are above zero, as logarithmic axes require."""
    runs = [result.figures for result in sweep.results]
    return all(min(run.iops, run.p50_us, run.p99_us) > 0 for run in runs)


def make_series(
    sweep: Sweep, name: str, take: MetricGetter, take_x: MetricGetter | None = None
) -> Series:
    """Return one metric of every run as a curve over the swept value.

    With ``take_x`` it is a curve over another metric, and each point has its swept value as label.
    """
    dots = []
    for result in sweep.results:
        x: float = sweep.swept.of(result.workload)
        label = ""
        if take_x is not None:
            x, label = take_x(result.figures), _show_value(sweep.swept, result.workload)
        dots.append(Dot(x, take(result.figures), label, doubted=bool(result.doubt)))
    return Series(name, tuple(dots))


def make_sweep_axis(sweep: Sweep) -> svg.Axis:
    """Return the axis of the swept value."""
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


def draw_rate_by_cpu(sweep: Sweep) -> page.Figure:
    """Draw the IOPS of each run over its CPU time (D1-1)."""
    curve = make_series(sweep, "IOPS", get_iops, get_cpu_percent)
    point = load_texts("report.toml")["points"][sweep.swept]
    return draw_curves("iops-by-cpu", [curve], point=point)


def make_sweep_table(sweep: Sweep) -> page.PageTable:
    """Return a table of the values in the curves."""
    rows = []
    for result in sweep.results:
        rows.append((_show_value(sweep.swept, result.workload), *_list_cells(result)))
    return page.make_table("sweep", rows, load_texts("report.toml")["heads"][sweep.swept])


def _make_joined_table(sweeps: Sequence[Sweep], head: str, name: _CurveName) -> page.PageTable:
    """Return a table of the values in several curves. Each row starts with its curve's name."""
    rows: list[tuple[str, ...]] = []
    for sweep in sweeps:
        table = make_sweep_table(sweep)
        for row in table.rows:
            rows.append((name(sweep), *row))
    heads, right = (head, *table.heads), frozenset(range(1, 11))
    return replace(table, heads=heads, rows=tuple(rows), right=right)


def _make_sweep_block(data: page.ReportData, sweep: Sweep) -> page.Block:
    last = sweep.records[-1]
    notes = [units.format_conditions(last), *data.list_stale(last)]
    # The cost of writes compared with the source documents (D0-15), if it was measured.
    if (cost := compute_mix_cost(sweep.results, data.yardsticks)) is not None:
        notes.insert(0, format_sentence(probe_tables.describe_mix(cost)))
    draw = _draw_sizes if sweep.swept is SweptParameter.BLOCK else _draw_mixes
    folded = (make_sweep_table(sweep),)
    return page.Block(_name_sweep(sweep), tuple(notes), tuple(draw(sweep)), folded=folded)


def _name_sweep(sweep: Sweep) -> str:
    workload, target = sweep.workload, sweep.target
    if sweep.swept is SweptParameter.BLOCK:
        return f"{target}: {units.format_pattern(workload)}, {workload.issued} deep"
    size = units.format_block_size(workload.block_size)
    return f"{target}: {size} random I/O, {workload.issued} deep"


def _draw_sizes(sweep: Sweep) -> Iterator[page.Figure]:
    yield _draw_curve("block-iops", sweep, get_iops)
    yield _draw_curve("block-throughput", sweep, lambda load: load.bandwidth / 1e6)
    yield _draw_curve("block-cpu", sweep, get_cpu_percent)
    yield draw_rate_by_cpu(sweep)


def _draw_mixes(sweep: Sweep) -> Iterator[page.Figure]:
    yield _draw_curve("mix-iops", sweep, get_iops)
    curves = (
        make_series(sweep, "p50", lambda load: load.p50_us / 1000),
        make_series(sweep, "p99", get_p99_ms),
    )
    yield draw_curves("mix-latency", curves, make_sweep_axis(sweep))


def _draw_curve(name: str, sweep: Sweep, take: MetricGetter) -> page.Figure:
    return draw_curves(name, [make_series(sweep, "", take)], make_sweep_axis(sweep))


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


def make_lun_blocks(data: page.ReportData, sweeps: Sequence[Sweep]) -> Iterator[page.Block]:
    """Yield a block for each disk with sweeps at several LUN depths (D2-1)."""
    disks = group_items(sweeps, lambda sweep: sweep.id)
    for disk_sweeps in list(disks.values())[:MAX_SWEEPS]:
        ordered = sorted(disk_sweeps, key=lambda sweep: sweep.workload.queue_depth or 0)
        drawn, criterion = ordered[: charts.MAX_SERIES], "by depth of the LUN itself"
        yield _make_several_block(
            data, "lun", drawn, criterion, lambda sweep: f"LUN depth {sweep.workload.queue_depth}"
        )


def make_jobs_block(data: page.ReportData, sweeps: Sequence[Sweep]) -> page.Block:
    """Return the block of sweeps with different numbers of jobs (D0-14)."""
    advice = advise_jobs(sweeps)
    notes = () if advice is None else (format_sentence(probe_tables.describe_jobs(advice)),)

    def name_jobs(sweep: Sweep) -> str:
        return format_count(sweep.workload.jobs, "job")

    drawn = sweeps[: charts.MAX_SERIES]
    return _make_several_block(data, "jobs", drawn, "by number of jobs", name_jobs, notes)


def _make_several_block(
    data: page.ReportData,
    pictures: str,
    sweeps: Sequence[Sweep],
    criterion: str,
    name: _CurveName,
    notes: tuple[str, ...] = (),
) -> page.Block:
    last = sweeps[-1].records[-1]
    stale = data.list_stale(*(sweep.records[-1] for sweep in sweeps))
    knee_notes = (*notes, *_describe_several(data, sweeps, name))
    axis = "depth of the workload, I/Os in flight"
    rate = _draw_several(f"{pictures}-iops", sweeps, name, axis, get_iops)
    p99 = _draw_several(f"{pictures}-p99", sweeps, name, axis, get_p99_ms)
    return page.Block(
        name=f"{last.target}: {name_load(sweeps[0])}, {criterion}",
        notes=(*knee_notes, units.format_conditions(last), *stale),
        figures=(rate, p99),
        folded=(_make_joined_table(sweeps, "Curve", name),),
    )


def _describe_several(
    data: page.ReportData, sweeps: Sequence[Sweep], name: _CurveName
) -> Iterator[str]:
    for sweep in sweeps:
        if (knee := sweep.knee) is not None:
            standing = data.standing(sweep.results[0])
            yield f"{name(sweep)}: {probe_tables.describe_knee(knee, standing)}."
        for line in probe_tables.describe_cpu_limits(sweep.results):
            yield f"{name(sweep)}: {line}."


def _draw_several(
    picture: str,
    sweeps: Sequence[Sweep],
    name: _CurveName,
    axis: str,
    take: MetricGetter,
    ceiling: float | None = None,
) -> page.Figure:
    """Draw a curve for each sweep over the depth, and the ``ceiling`` of a link in GB/s."""
    curves = [make_series(sweep, name(sweep), take) for sweep in sweeps]
    depths = [result.workload.issued for sweep in sweeps for result in sweep.results]
    return draw_curves(picture, curves, svg.make_measured_axis(axis, depths), ceiling=ceiling)


def make_corner_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on the four corners, the latest disk first."""
    measured_corners = [corner for corner in data.corners if all(map(is_drawable, corner.sweeps))]
    more = "more disks are in `hbatune history`."
    return page.make_blocks(_make_corners_block, data, measured_corners, MAX_SWEEPS, more)


def _make_corners_block(data: page.ReportData, corners: Corners) -> page.Block:
    last = corners.sweeps[-1].records[-1]
    # The bandwidth of the disk's narrowest link in GB/s.
    standing = data.standing(corners.sequential[0].results[0])
    links = () if standing is None else standing.links
    ceiling = min((link.ceiling for link in links), default=None)
    axis = "depth, I/Os in flight"
    random = _draw_several("corners-random", corners.random, name_load, axis, get_iops)
    sequential = _draw_several(
        "corners-sequential",
        corners.sequential,
        name_load,
        axis,
        lambda load: load.bandwidth / 1e9,
        ceiling,
    )
    notes = [*_describe_corners(data, corners), units.format_conditions(last)]
    return page.Block(
        name=last.target,
        notes=(*notes, *data.list_stale(last)),
        figures=(random, sequential),
        folded=(_make_joined_table(corners.sweeps, "Load", name_load),),
    )


def _describe_corners(data: page.ReportData, corners: Corners) -> Iterator[str]:
    for sweep in corners.sweeps:
        if sweep.knee is not None:
            standing = data.standing(max(sweep.results, key=lambda result: result.figures.iops))
            yield f"{name_load(sweep)}: {probe_tables.describe_knee(sweep.knee, standing)}."


def name_load(sweep: Sweep) -> str:
    """Return the block size and the pattern of a sweep."""
    size = units.format_block_size(sweep.workload.block_size)
    return f"{size} {units.format_pattern(sweep.workload)}"


def make_load_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on rising load, the latest load first."""
    sweeps, elsewhere = choose_sweeps(data, SweptParameter.DEPTH), data.corner_sweeps
    plain = [s for s in sweeps if s.workload.queue_depth is None and s not in elsewhere]
    loads = group_items(plain, lambda sweep: SweptParameter.DEPTH.without(sweep.workload))
    groups = [group for group in loads.values() if is_mix(group[0]) or len(group) > 1]
    more = "more loads are in `hbatune history`."
    return page.make_blocks(_make_load_block, data, groups, MAX_SWEEPS, more)


def is_mix(sweep: Sweep) -> bool:
    """Return whether a sweep mixes reads and writes."""
    return sweep.workload.pattern is Pattern.RANDOM_MIX


def _make_load_block(data: page.ReportData, sweeps: Sequence[Sweep]) -> page.Block:
    drawn = sweeps[: charts.MAX_SERIES]
    mean = _draw_load(drawn, "Mean response time", "mean", lambda load: load.mean_us / 1000)
    p99 = _draw_load(drawn, "p99", "p99", get_p99_ms)
    return page.Block(
        name=name_load(sweeps[0]),
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
        knee = sweep.knee if is_mix(sweep) else None
        knee_text = "" if knee is None else f"{probe_tables.describe_knee(knee)}. "
        yield f"{last.target}: {knee_text}{units.format_conditions(last)}"
    if len(sweeps) > len(drawn):
        omitted = ", ".join(sweep.target for sweep in sweeps[len(drawn) :])
        yield f"Not drawn, because the number of curves in a picture is limited: {omitted}."
    yield from data.list_stale(*(sweep.records[-1] for sweep in drawn))


def _draw_load(sweeps: Sequence[Sweep], title: str, metric: str, take: MetricGetter) -> page.Figure:
    curves = [make_series(sweep, sweep.target, take, get_iops) for sweep in sweeps]
    return draw_curves("load", curves, title=title, metric=metric)
