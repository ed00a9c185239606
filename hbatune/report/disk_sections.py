"""The sections on the latency of disks, on interference, and on all disks of an adapter."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.names import NaturalKey, group_items, natural_key
from hbatune.probe import comparison
from hbatune.probe.history import KeptTogether, Record
from hbatune.probe.result import ProbeResult
from hbatune.probe.sweeps import Interference, SweptParameter, find_interference, list_lone_results
from hbatune.report import charts, page, svg, sweep_sections
from hbatune.report.charts import Dot, Series
from hbatune.text import plan_tables, probe_tables, units
from hbatune.text.basic_output import format_count, format_sentence
from hbatune.text.tables import EMPTY_CELL, load_columns

_MAX_ROWS = 24
"""Maximum number of disks or pairs drawn. The table has all of them."""

_KEYS = charts.load_keys("percentiles")
_get_quantiles = attrgetter("p50_us", "p95_us", "p99_us", "p999_us")


def make_latency_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on the percentiles of each disk's latest result."""
    records = sorted(list_lone_results(data.records, data.sweeps), key=_order_target)
    blocks = [_make_latency_block(data, records)] if records else []
    blocks += _make_document_blocks(data)
    if baselines := _find_baselines(data):
        caption = "Latency of one I/O at a time: the baselines (D3-1, D3-9)"
        table = _make_latency_table(baselines, caption)
        blocks.append(page.Block("One I/O at a time", tables=(table,)))
    return blocks


def _make_document_blocks(data: page.ReportData) -> list[page.Block]:
    """Return a block with one table for each document with figures for these disks and loads."""
    results = [record.result for record in data.ordered if record.result is not None]
    tables, titles = list[page.PageTable](), probe_tables.list_document_titles()
    heads = tuple(column.title.capitalize() for column in load_columns("documents"))
    compared = comparison.compare_with_documents(results, data.machine, data.yardsticks)
    for document, document_rows in compared.items():
        rows = tuple(tuple(probe_tables.make_document_cells(row)) for row in document_rows)
        tables.append(page.PageTable(titles[document], heads, rows, frozenset({3, 4, 5})))
    return [page.Block("Next to the documents", tables=tuple(tables))] if tables else []


def _find_baselines(data: page.ReportData) -> list[Record]:
    """Return the latest run at depth 1 of each disk and load, without runs of sweeps."""
    swept = set(map(id, chain.from_iterable(sweep.records for sweep in data.sweeps)))
    latest: dict[object, Record] = {}
    for record in data.ordered:
        result = record.result
        if result is None or record.proof is not None or id(record) in swept:
            continue
        if result.workload.issued == 1 and result.workload.rate is None:
            latest[record.id, probe_tables.format_load(result.workload)] = record
    return sorted(latest.values(), key=_order_target)


def _order_target(record: Record) -> NaturalKey:
    return natural_key(record.target)


def _make_latency_block(data: page.ReportData, records: list[Record]) -> page.Block:
    results = [record.result for record in records if record.result is not None]
    # A logarithmic axis cannot show zero.
    drawn = [result for result in results if min(_get_quantiles(result.figures)) > 0]
    rows = list(map(_make_latency_row, drawn[:_MAX_ROWS]))
    latest = _make_latency_table(records, "The latest result of each disk")
    tables = [latest, _make_standings_table(data, results)]
    return page.Block(
        notes=tuple(data.list_stale(*records)),
        figures=(charts.draw_rows("percentiles", rows, _KEYS),) if drawn else (),
        tables=tuple(table for table in tables if table.rows),
    )


def _make_standings_table(data: page.ReportData, results: list[ProbeResult]) -> page.PageTable:
    rows = []
    for result in results:
        standing = data.standing(result)
        if standing is not None and (standing.goal or standing.links):
            figures, links = result.figures, ", ".join(map(_describe_link, standing.links))
            cells = [result.target, units.format_latency(figures.p99_us)]
            cells += [_describe_goal(standing.goal), units.format_rate(figures.iops)]
            rows.append((*cells, plan_tables.format_value(links or None)))
    return page.make_table("standings", rows)


def _describe_goal(goal: comparison.Goal | None) -> str:
    if goal is None:
        return EMPTY_CELL
    met = "met" if goal.met else "missed"
    spare = units.format_percent(abs(goal.spare))
    margin = f"{spare} to spare" if goal.met else f"by {spare}"
    return f"{goal.p99_ms:g} ms ({goal.source}): {met}, {margin}"


def _describe_link(link: comparison.LinkShare) -> str:
    return f"{units.format_percent(link.used)} of {units.format_digits(link.ceiling)} GB/s"


def _make_latency_row(result: ProbeResult) -> charts.ChartRow:
    marks = []
    for us, key in zip(_get_quantiles(result.figures), _KEYS, strict=True):
        marks.append(charts.Mark(us / 1000, key))
    load = units.format_short_workload(result.workload)
    return charts.make_spread_row(result.target, load, marks)


def _make_latency_table(records: list[Record], caption: str) -> page.PageTable:
    rows = []
    for record in records:
        if record.result is not None:
            figures = record.result.figures
            load = units.format_workload(record.result.workload)
            times = map(units.format_latency, (figures.mean_us, *_get_quantiles(figures)))
            cells = [record.target, load, units.format_time(record.time)]
            cells += [units.format_rate(figures.iops), *times]
            rows.append((*cells, f"{units.format_digits(figures.cost_us_per_io)} µs"))
    return replace(page.make_table("latency", rows), caption=caption)


_INTERFERENCE_KEYS = charts.load_keys("interference")


def make_interference_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on readers with and without a bulk writer, by disk and scheduler."""
    pairs = find_interference(data.records)
    pairs.sort(key=lambda pair: (natural_key(pair.beside.target), pair.scheduler or ""))
    if not pairs:
        return []
    drawn = [pair for pair in pairs if min(_list_latencies(pair)) > 0][:_MAX_ROWS]
    rows = map(_make_interference_row, drawn)
    block = page.Block(
        notes=tuple(data.list_stale(*(pair.record for pair in pairs))),
        figures=(charts.draw_rows("interference", rows, _INTERFERENCE_KEYS),) if drawn else (),
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
    for time, key, run in zip(_list_latencies(pair), _INTERFERENCE_KEYS, runs, strict=True):
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


_MAX_RUNS = 12
"""Maximum number of runs of one command drawn as rows."""
_FEWEST = 3
"""Minimum number of block sizes for a curve."""


class _Run(Struct, frozen=True):
    """A run on all disks of an adapter, with its record."""

    record: Record
    found: KeptTogether

    @property
    def block_size(self) -> int:
        """The block size of each disk's I/Os."""
        return self.found.workload.block_size

    @property
    def alone(self) -> float:
        """The sum of the IOPS of each disk when measured separately."""
        return sum(self.found.alone_iops)


def make_adapter_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on adapters: all disks in parallel, against single ones (D1-5, D4-9)."""
    adapters: dict[str, list[_Run]] = {}
    for record in reversed(data.ordered):
        if record.together is not None and record.together.targets:
            adapters.setdefault(record.id, []).append(_Run(record, record.together))
    measured, more = list(adapters.values()), "more adapters are in `hbatune history`."
    return page.make_blocks(_make_adapter_block, data, measured, more)


def _make_adapter_block(data: page.ReportData, runs: Sequence[_Run]) -> page.Block:
    """Return the latest runs of each command, and a curve over the number of disks."""
    newest, without_size = _group_latest(runs), SweptParameter.BLOCK.without
    sweeps, single_runs = [], []
    for command_runs in newest:
        # The runs of a load differ only in block size.
        loads = group_items(command_runs, lambda run: without_size(run.found.workload))
        for load in loads.values():
            if _is_sweep(load):
                sweeps.append(load)
            else:
                single_runs += load
    figures, notes = list[page.Figure](), list[str]()
    for load in sweeps:
        figures += _draw_over_blocks(load, apart=len(sweeps) > 1)
        notes += _describe_adapter(load)
    if single_runs:
        figures.append(_draw_side_by_side(single_runs[:_MAX_RUNS]))
        notes += _describe_adapter(single_runs)
    if (scaled := _draw_scaling(newest[0][-1], runs)) is not None:
        figures.append(scaled)
    stale = data.list_stale(*(command_runs[-1].record for command_runs in newest))
    return page.Block(
        name=runs[0].record.target,
        notes=(*notes, *stale),
        figures=tuple(figures),
        folded=(_make_adapter_table(list(chain.from_iterable(newest))),),
    )


def _group_latest(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the latest runs of each command, in their order, the latest command first."""
    groups = group_items(runs, attrgetter("record.command", "record.time", "record.boot_id"))
    latest: dict[str, list[_Run]] = {}
    for (command, *_), group in groups.items():
        latest.setdefault(command, group[::-1])
    return list(latest.values())


def _is_sweep(load: Sequence[_Run]) -> bool:
    """Return whether a load has enough block sizes for a curve, with one run of each."""
    sizes = {run.block_size for run in load}
    return len(sizes) == len(load) >= _FEWEST


def _describe_adapter(runs: Sequence[_Run]) -> Iterator[str]:
    first, sweep = runs[0], _is_sweep(runs)
    heading = f"{format_count(len(first.found.targets), 'disk')} at once"
    if sweep:
        heading += f", {units.format_pattern(first.found.workload)}"
    time, kernel = units.format_time(first.record.time), first.record.kernel
    targets = plan_tables.format_targets(first.found.targets)
    yield f"{heading}, measured {time} on kernel {kernel}: {targets}."
    groups = group_items(runs, lambda run: probe_tables.describe_bottleneck(run.found))
    for text, group in groups.items():
        sizes = (units.format_block_size(run.block_size) for run in group)
        names = sizes if sweep else map(_name_load, group)
        prefix = "" if len(groups) == 1 else f"{', '.join(names)}: "
        yield format_sentence(f"{prefix}{text}")


def _name_load(run: _Run) -> str:
    return units.format_short_workload(run.found.workload)


def _draw_over_blocks(runs: Sequence[_Run], *, apart: bool) -> Iterator[page.Figure]:
    """Yield the pictures of a load over block size. With ``apart``, their names show the load."""
    kind = f": {units.format_pattern(runs[0].found.workload)}" if apart else ""
    yield _draw_against_sum("together-iops", runs, lambda _, iops: iops, kind=kind)
    ceiling = runs[0].found.ceiling
    yield _draw_against_sum(
        "together-throughput", runs, lambda size, iops: size * iops / 1e9, ceiling, kind=kind
    )
    dots = []
    for run in runs:
        x, y = sweep_sections.get_cpu_percent(run.found.figures), run.found.figures.iops
        label = units.format_block_size(run.block_size)
        dots.append(Dot(x, y, label, bool(run.found.doubt)))
    curves = [Series("all together", tuple(dots))]
    yield charts.draw_curves("together-iops-by-cpu", curves, kind=kind)


def _draw_against_sum(
    name: str,
    runs: Sequence[_Run],
    take: Callable[[int, float], float],
    ceiling: float | None = None,
    *,
    kind: str,
) -> page.Figure:
    """Draw disks in parallel and the sum of single ones; ``take`` gets a size and the IOPS."""
    at_once, added = [], []
    for run in runs:
        size, value = run.block_size, take(run.block_size, run.found.figures.iops)
        at_once.append(Dot(size, value, doubted=bool(run.found.doubt)))
        added.append(Dot(size, take(size, run.alone)))
    curves = [Series("all together", tuple(at_once)), Series("sum of single runs", tuple(added))]
    axis = sweep_sections.make_block_axis(run.block_size for run in runs)
    return charts.draw_curves(name, curves, axis, ceiling=ceiling, kind=kind)


def _draw_side_by_side(runs: Sequence[_Run]) -> page.Figure:
    rows = []
    for run in runs:
        iops, share = run.found.figures.iops, units.format_percent(run.found.share)
        bars = (charts.Bar(0, run.alone, "room", 14), charts.Bar(0, iops, "s0", 8))
        note = f"{share}, untrusted" if run.found.doubt else share
        rows.append(charts.ChartRow(_name_load(run), note, bars))
    return charts.draw_rows("together-loads", rows, charts.load_keys("together-loads"))


def _draw_scaling(last: _Run, runs: Sequence[_Run]) -> page.Figure | None:
    """Draw the rate over the number of disks, or return None if the load has only one number."""
    newest: dict[int, _Run] = {}
    for run in runs:
        if run.found.workload == last.found.workload:
            newest.setdefault(len(run.found.targets), run)
    if len(newest) < 2 or not last.found.alone_iops:
        return None
    per_disk = last.alone / len(last.found.alone_iops)
    at_once, in_proportion = [Dot(1, per_disk)], [Dot(1, per_disk)]
    for count, run in sorted(newest.items()):
        at_once.append(Dot(count, run.found.figures.iops, doubted=bool(run.found.doubt)))
        in_proportion.append(Dot(count, count * per_disk))
    curves = [Series("at once", tuple(at_once)), Series("in proportion", tuple(in_proportion))]
    axis = svg.make_linear_axis("disks at once", newest, integral=True)
    return charts.draw_curves("together-disks", curves, axis, load=_name_load(last))


def _make_adapter_table(runs: Sequence[_Run]) -> page.PageTable:
    rows = []
    for run in runs:
        figures = run.found.figures
        cells = [_name_load(run), units.format_rate(figures.iops)]
        cells += [units.format_digits(figures.bandwidth / 1e9), units.format_rate(run.alone)]
        cells += [units.format_percent(run.found.share), units.format_percent(run.found.busy)]
        cost = f"{units.format_digits(figures.cost_us_per_io)} µs"
        rows.append((*cells, cost, probe_tables.describe_doubt(run.found)))
    return page.make_table("together", rows)
