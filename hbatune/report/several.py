"""Blocks of several sweeps of depth: a curve for each depth of the LUN, or number of jobs."""

from collections.abc import Callable, Iterator, Sequence

from hbatune.cli.text.probes import jobs_line, knee_line, limits, stale_notes
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.units import block, ground, pattern
from hbatune.probe.sweeps import Sweep, advise_jobs
from hbatune.report import charts
from hbatune.report.charts import Curves
from hbatune.report.figures import curves_figure
from hbatune.report.layout import Axis, linear, logarithmic, measured
from hbatune.report.page import Block, Figure, ReportData
from hbatune.report.sweeps import MOST, Take, doubts, joined_table, series

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
    return _block(
        data,
        found[: charts.MOST],
        "by number of jobs",
        lambda sweep: quantity(sweep.workload.jobs, "job"),
        ("The same I/Os in flight, by one thread or by several (D0-14).", "The same for p99."),
        told,
    )


def _lun_block(data: ReportData, found: Sequence[Sweep]) -> Block:
    return _block(
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


def _block(
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
        notes=(*told, *_notes(found, name), ground(last), *stale),
        figures=(
            _figure(
                found,
                f"IOPS over depth, by {of}",
                "IOPS, I/Os per second",
                name,
                lambda figures: figures.iops,
                captions[0],
            ),
            _figure(
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


def _notes(found: Sequence[Sweep], name: _Name) -> Iterator[str]:
    for sweep in found:
        if (knee := sweep.knee) is not None:
            yield f"{name(sweep)}: {knee_line(knee)}."
        for line in limits(sweep.results):
            yield f"{name(sweep)}: {line}."


def _figure(
    found: Sequence[Sweep], title: str, unit: str, name: _Name, take: Take, caption: str
) -> Figure:
    curves = tuple(series(sweep, name(sweep), take) for sweep in found)
    values = [dot.y for each in curves for dot in each.dots]
    make = logarithmic if "latency" in unit else linear
    chart = Curves(title, _over(found), make(unit, values), curves)
    return curves_figure(chart, caption + next(filter(None, map(doubts, found)), ""))


def _over(found: Sequence[Sweep]) -> Axis:
    depths = {result.workload.issued for sweep in found for result in sweep.results}
    return measured("depth of the workload, I/Os in flight", {each: str(each) for each in depths})
