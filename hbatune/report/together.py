"""The section on adapters: all disks at once beside the sum of each alone (D1-5, D4-9)."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from hbatune.cli.text.probes import doubt_text, stale_notes
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.rows import targets_text
from hbatune.cli.text.together import bottleneck_text
from hbatune.cli.text.units import block, brief, digits, pattern, percent, rate, when
from hbatune.probe.history import Record
from hbatune.probe.kept import KeptTogether
from hbatune.probe.model import Workload
from hbatune.probe.sweeps import Swept
from hbatune.report.charts import Bar, ChartRow, Curves, Dot, Guide, Rows, Series
from hbatune.report.figures import curves_figure, rows_figure
from hbatune.report.layout import linear, measured
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import LegendEntry
from hbatune.report.sweeps import CPU, HOLLOW, cpu_percent

MOST = 6
"""The most adapters that are drawn."""
MOST_RUNS = 12
"""The most runs of one command that are drawn as rows."""
_FEWEST = 3
"""Block sizes from which on they make a curve."""
_NEAR = 3.0
"""A link's ceiling is drawn where it is at most so many times the most that was measured."""
_RATE = "IOPS, I/Os per second"


class _Run(Struct, frozen=True):
    """A run on all disks of an adapter, with its record."""

    record: Record
    found: KeptTogether

    @property
    def alone(self) -> float:
        """The sum of the IOPS of each disk alone."""
        return sum(self.found.alone_iops)

    @property
    def gb_per_s(self) -> float:
        """What the disks moved at once."""
        return self.found.figures.bandwidth / 1e9


def together(data: ReportData) -> PageSection:
    """Return the section, the adapter that was measured last first."""
    runs = [
        _Run(each, each.together)
        for each in sorted(data.records, key=lambda record: record.time)
        if each.together is not None and each.together.targets
    ]
    adapters: dict[str, list[_Run]] = {}
    for run in reversed(runs):
        adapters.setdefault(run.record.id, []).append(run)
    howto = Howto(
        "The disks of no adapter have been measured at once yet. Name two or more.",
        f"hbatune probe block-sweep-small {data.disk} DISK --together",
    )
    blocks = [_block(data, each) for each in list(adapters.values())[:MOST]]
    if len(adapters) > MOST:
        more = len(adapters) - MOST
        blocks.append(Block(notes=(f"{more} more adapters are in `hbatune history`.",)))
    name = "What an adapter does with all its disks"
    return PageSection("together", name, tuple(blocks), howto)


def _block(data: ReportData, runs: Sequence[_Run]) -> Block:
    """Return the newest runs of each command, and those of other numbers of disks."""
    newest = _newest(runs)
    loads = [load for made in newest for load in _loads(made)]
    sweeps = [load for load in loads if _is_sweep(load)]
    rest = [run for load in loads if not _is_sweep(load) for run in load]
    figures = [figure for load in sweeps for figure in _over_blocks(load, apart=len(sweeps) > 1)]
    if rest:
        figures.append(_side_by_side(rest[:MOST_RUNS]))
    if (scaled := _scaling(newest[0][-1], runs)) is not None:
        figures.append(scaled)
    stale = data.stale(*(made[-1].record for made in newest))
    notes = [note for each in (*sweeps, rest) if each for note in _notes(each)]
    return Block(
        name=runs[0].record.target,
        notes=(*notes, *stale_notes(stale)),
        figures=tuple(figures),
        folded=(_table([run for made in newest for run in made]),),
    )


def _newest(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the runs that each command has made last, in their order, the newest command first."""
    last: dict[str, tuple[float, str]] = {}
    for run in runs:
        last.setdefault(run.record.command, (run.record.time, run.record.boot_id))
    return [
        [
            each
            for each in reversed(runs)
            if (each.record.command, each.record.time, each.record.boot_id) == (command, *asked)
        ]
        for command, asked in last.items()
    ]


def _loads(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the runs of one command by load: those of one differ in the size of blocks only."""
    found: dict[Workload, list[_Run]] = {}
    for run in runs:
        found.setdefault(Swept.BLOCK.without(run.found.workload), []).append(run)
    return list(found.values())


def _is_sweep(load: Sequence[_Run]) -> bool:
    """Whether there are enough sizes of blocks for a curve, one run of each."""
    sizes = {each.found.workload.block_size for each in load}
    return len(sizes) == len(load) >= _FEWEST


def _notes(runs: Sequence[_Run]) -> Iterator[str]:
    first = runs[0]
    disks, made = quantity(len(first.found.targets), "disk"), when(first.record.time)
    named, sweep = targets_text(first.found.targets), _is_sweep(runs)
    what = f"{disks} at once, {pattern(first.found.workload)}" if sweep else f"{disks} at once"
    yield f"{what}, measured {made} on kernel {first.record.kernel}: {named}."
    for text in dict.fromkeys(bottleneck_text(each.found) for each in runs):
        of = [each for each in runs if bottleneck_text(each.found) == text]
        names = [_name(each) if sweep else brief(each.found.workload) for each in of]
        which = "" if len(of) == len(runs) else f"{', '.join(names)}: "
        told = f"{which}{text}."
        yield f"{told[0].upper()}{told[1:]}"


def _name(run: _Run) -> str:
    return block(run.found.workload.block_size)


def _over_blocks(runs: Sequence[_Run], *, apart: bool) -> Iterator[Figure]:
    """Yield the pictures of a load over the size of blocks, told ``apart`` by their names."""
    kind = f": {pattern(runs[0].found.workload)}" if apart else ""
    untrusted = _untrusted(runs)
    caption = f"Where the lines part, the disks hold each other back (D1-5).{untrusted}"
    name = f"IOPS of all disks over block size{kind}"
    yield _against_sum(runs, name, _RATE, caption, lambda _, iops: iops)
    ceiling = runs[0].found.ceiling
    caption = "Large blocks show what adapter and link carry (D4-9)."
    if ceiling is not None:
        caption += f" The adapter's link carries {digits(ceiling)} GB/s."
    caption += untrusted
    name = f"Throughput of all disks over block size{kind}"
    yield _against_sum(
        runs, name, "throughput, GB/s", caption, lambda size, iops: size * iops / 1e9, ceiling
    )
    dots = tuple(
        Dot(
            cpu_percent(each.found.figures),
            each.found.figures.iops,
            _name(each),
            doubted=each.found.doubt is not None,
        )
        for each in runs
    )
    chart = Curves(
        f"IOPS of all disks over CPU time{kind}",
        linear(CPU, [dot.x for dot in dots]),
        linear(_RATE, [dot.y for dot in dots]),
        (Series("all at once", dots),),
    )
    yield curves_figure(
        chart,
        "Each point is a block size, which stands beside it. The steeper, the less an I/O costs "
        f"the CPUs (D1-5).{untrusted}",
    )


def _untrusted(runs: Iterable[_Run]) -> str:
    """Return the end of a caption that says what hollow points are, empty where there are none."""
    return HOLLOW if any(each.found.doubt for each in runs) else ""


def _against_sum(
    runs: Sequence[_Run],
    name: str,
    unit: str,
    caption: str,
    take: Callable[[int, float], float],
    ceiling: float | None = None,
) -> Figure:
    """Return what the disks do at once beside the sum of each alone, over the size of blocks.

    ``take`` makes a value of the size in bytes and the IOPS.
    """
    sizes = [each.found.workload.block_size for each in runs]
    pairs = list(zip(sizes, runs, strict=True))
    at_once = [
        Dot(size, take(size, each.found.figures.iops), doubted=each.found.doubt is not None)
        for size, each in pairs
    ]
    added = [Dot(size, take(size, each.alone)) for size, each in pairs]
    values = [dot.y for dot in (*at_once, *added)]
    level = None
    if ceiling is not None and ceiling <= _NEAR * max(values):
        level = Guide(ceiling, f"link: {digits(ceiling)} GB/s")
        values.append(ceiling)
    chart = Curves(
        name,
        measured("block size, bytes", {size: block(size) for size in sizes}),
        linear(unit, values),
        (Series("all at once", tuple(at_once)), Series("sum of each alone", tuple(added))),
        level=level,
    )
    return curves_figure(chart, caption)


def _side_by_side(runs: Sequence[_Run]) -> Figure:
    """Return a row for each load, with what the disks do at once and the sum of each alone."""
    rows = tuple(
        ChartRow(
            brief(each.found.workload),
            percent(each.found.share) + (", untrusted" if each.found.doubt else ""),
            (Bar(0, each.alone, "room", 14), Bar(0, each.found.figures.iops, "s0", 8)),
        )
        for each in runs
    )
    values = [value for each in runs for value in (each.alone, each.found.figures.iops)]
    keys = (LegendEntry("all at once", "s0", None), LegendEntry("sum of each alone", "room", None))
    chart = Rows("All disks at once", linear(_RATE, values), rows, keys, pitch=44)
    return rows_figure(
        chart, "Where the bar ends before its outline, the disks hold each other back."
    )


def _scaling(last: _Run, runs: Sequence[_Run]) -> Figure | None:
    """Return the rate over the number of disks, by the newest run of each number.

    The same load is meant; what one disk does is the mean of each alone. None where that is all.
    """
    alike = [each for each in runs if each.found.workload == last.found.workload]
    newest: dict[int, _Run] = {}
    for each in alike:
        newest.setdefault(len(each.found.targets), each)
    if len(newest) < 2 or not last.found.alone_iops:
        return None
    one = last.alone / len(last.found.alone_iops)
    counts = sorted(newest)
    several = [newest[each] for each in counts]
    at_once = [
        Dot(1, one),
        *(
            Dot(count, each.found.figures.iops, doubted=each.found.doubt is not None)
            for count, each in zip(counts, several, strict=True)
        ),
    ]
    in_proportion = [Dot(each, each * one) for each in (1, *counts)]
    values = [dot.y for dot in (*at_once, *in_proportion)]
    chart = Curves(
        "IOPS over the number of disks",
        linear("disks at once", [1, *counts], whole=True),
        linear(_RATE, values),
        (Series("at once", tuple(at_once)), Series("in proportion", tuple(in_proportion))),
    )
    caption = f"{brief(last.found.workload)} on each disk (D4-10).{_untrusted(several)}"
    return curves_figure(chart, caption)


def _table(runs: Sequence[_Run]) -> PageTable:
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
            brief(each.found.workload),
            rate(each.found.figures.iops),
            digits(each.gb_per_s),
            rate(each.alone),
            percent(each.found.share),
            percent(each.found.busy),
            f"{digits(each.found.figures.cost_us_per_io)} µs",
            doubt_text(each.found),
        )
        for each in runs
    )
    return PageTable("The figures of these runs", heads, rows, frozenset(range(1, 7)))
