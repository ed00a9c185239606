"""The section on the four corners: random and sequential I/Os, read and written, over depth."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hbatune.cli.text.probes import knee_line, stale_notes, standing_lines
from hbatune.cli.text.units import block, digits, ground, pattern
from hbatune.probe.sweeps import Corners, Sweep
from hbatune.report.charts import Curves, Guide
from hbatune.report.figures import curves_figure
from hbatune.report.layout import linear, measured
from hbatune.report.page import Block, Figure, Howto, PageSection, ReportData
from hbatune.report.sweeps import HOLLOW, MOST, Take, drawable, joined_table, series

_NEAR = 3.0
"""A link's ceiling is drawn where it is at most so many times the most that was measured: a line
far above would flatten the curves."""


def corners(data: ReportData) -> PageSection:
    """Return the section, the newest disk first."""
    found = [each for each in data.corners if all(map(drawable, each.sweeps))]
    howto = Howto(
        # DISK and not a real name: a command that destroys data must not be ready to paste.
        "The four corners have not been measured yet. They write: name an empty disk.",
        "hbatune probe four-corners DISK --destructive",
    )
    blocks = [_block(data, each) for each in found[:MOST]]
    if len(found) > MOST:
        blocks.append(Block(notes=(f"{len(found) - MOST} more disks are in `hbatune history`.",)))
    name = "What it does at most: the four corners"
    return PageSection("corners", name, tuple(blocks), howto)


def _block(data: ReportData, found: Corners) -> Block:
    last = found.sweeps[-1].records[-1]
    ceiling = _ceiling(data, found)
    return Block(
        name=last.target,
        notes=(*_notes(data, found), ground(last), *stale_notes(data.stale(last))),
        figures=(
            _figure(
                found.random,
                "IOPS of random I/O over depth",
                "IOPS, I/Os per second",
                lambda each: each.iops,
                "Random I/Os ask of disk and adapter how many they manage (D4-8).",
            ),
            _figure(
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


def _notes(data: ReportData, found: Corners) -> Iterator[str]:
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
    return min((each.ceiling for each in links), default=None)


def _beyond(ceiling: float | None) -> str:
    return "" if ceiling is None else f" The adapter's link carries {digits(ceiling)} GB/s."


def _figure(
    found: Sequence[Sweep],
    name: str,
    unit: str,
    take: Take,
    caption: str,
    ceiling: float | None = None,
) -> Figure:
    curves = tuple(series(sweep, _load(sweep), take) for sweep in found)
    values = [dot.y for each in curves for dot in each.dots]
    level = None
    if ceiling is not None and ceiling <= _NEAR * max(values):
        level = Guide(ceiling, f"link: {digits(ceiling)} GB/s")
        values.append(ceiling)
    depths = {each.workload.issued for sweep in found for each in sweep.results}
    axis = measured("depth, I/Os in flight", {each: str(each) for each in depths})
    doubted = any(each.doubt for sweep in found for each in sweep.results)
    chart = Curves(name, axis, linear(unit, values), curves, level=level)
    return curves_figure(chart, caption + (HOLLOW if doubted else ""))


def _load(sweep: Sweep) -> str:
    return f"{block(sweep.workload.block_size)} {pattern(sweep.workload)}"
