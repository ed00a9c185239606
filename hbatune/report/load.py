"""The section on rising load: response time over IOPS, as document D4 draws it.

Mixed loads are here, and any load of which several disks have a sweep: each disk is a curve.
"""

from collections.abc import Iterator, Sequence

from hbatune.cli.text.probes import knee_line, stale_notes
from hbatune.cli.text.units import block, ground, pattern
from hbatune.probe.model import Pattern, Workload
from hbatune.probe.sweeps import Sweep, Swept
from hbatune.report import charts
from hbatune.report.charts import Curves, Dot, Series
from hbatune.report.figures import curves_figure
from hbatune.report.layout import linear, logarithmic
from hbatune.report.page import Block, Figure, Howto, PageSection, ReportData
from hbatune.report.sweeps import HOLLOW, MOST, Take, chosen, joined_table


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
    blocks = [_block(data, each) for each in found[:MOST]]
    if len(found) > MOST:
        blocks.append(Block(notes=(f"{len(found) - MOST} more loads are in `hbatune history`.",)))
    return PageSection("load", "Response time as the load rises", tuple(blocks), howto)


def is_mix(sweep: Sweep) -> bool:
    """Whether a sweep is of reads and writes together."""
    return sweep.workload.pattern is Pattern.RANDOM_MIX


def _block(data: ReportData, found: Sequence[Sweep]) -> Block:
    drawn = found[: charts.MOST]
    asked = found[0].workload
    return Block(
        name=f"{block(asked.block_size)} {pattern(asked)}",
        notes=tuple(_notes(data, found, drawn)),
        figures=(
            _figure(drawn, "Mean response time over IOPS", "mean", lambda each: each.mean_us),
            _figure(drawn, "p99 over IOPS", "p99", lambda each: each.p99_us),
        ),
        folded=(joined_table(drawn, "Disk", lambda sweep: sweep.results[0].target),),
    )


def _notes(data: ReportData, found: Sequence[Sweep], drawn: Sequence[Sweep]) -> Iterator[str]:
    for sweep in drawn:
        last = sweep.records[-1]
        # The knee of a load that only reads is told in the section on depth.
        knee = sweep.knee if is_mix(sweep) else None
        told = "" if knee is None else f"{knee_line(knee)}. "
        yield f"{last.target}: {told}{ground(last)}"
    if len(found) > len(drawn):
        more = ", ".join(each.results[0].target for each in found[len(drawn) :])
        yield f"Not drawn, for there are only so many curves in a picture: {more}."
    stale = stale_notes(data.stale(*(each.records[-1] for each in drawn)))
    yield from dict.fromkeys(stale)


def _figure(found: Sequence[Sweep], name: str, what: str, take: Take) -> Figure:
    curves = tuple(
        Series(
            sweep.results[0].target,
            tuple(
                Dot(
                    each.figures.iops,
                    take(each.figures) / 1000,
                    str(each.workload.issued),
                    doubted=each.doubt is not None,
                )
                for each in sweep.results
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
