"""Depth of the workload against depth of the LUN itself, where that was tried (D2-1)."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hbatune.cli.commands.history import stale_notes
from hbatune.cli.text.beside import knee_line
from hbatune.cli.text.curves import limits
from hbatune.probe.sweeps import Sweep
from hbatune.report.charts import curve
from hbatune.report.charts.axis import Axis, linear, logarithmic, measured
from hbatune.report.charts.curve import Curves, draw
from hbatune.report.page import Block, Figure, Table
from hbatune.report.sections.seen import Seen
from hbatune.report.sections.swept import MOST, Take, doubts, series, table
from hbatune.report.sections.words import block, ground, pattern


def lun_depths(seen: Seen, found: Sequence[Sweep]) -> Iterator[Block]:
    """Yield a block for each disk whose own depth was set to one after the other."""
    disks: dict[object, list[Sweep]] = {}
    for sweep in found:
        disks.setdefault(sweep.records[0].id, []).append(sweep)
    for alike in list(disks.values())[:MOST]:
        yield _block(seen, sorted(alike, key=_depth)[: curve.MOST])


def _depth(sweep: Sweep) -> int:
    return sweep.workload.queue_depth or 0


def _block(seen: Seen, found: Sequence[Sweep]) -> Block:
    asked, last = found[0].workload, found[-1].records[-1]
    name = f"{last.target}: {block(asked.block_size)} {pattern(asked)}, by depth of the LUN itself"
    stale = dict.fromkeys(stale_notes(seen.stale(*(each.records[-1] for each in found))))
    return Block(
        name=name,
        notes=(*_notes(found), ground(last), *stale),
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


def _notes(found: Sequence[Sweep]) -> Iterator[str]:
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
    return Figure(name, draw(chart), caption + next(filter(None, map(doubts, found)), ""))


def _over(found: Sequence[Sweep]) -> Axis:
    depths = {result.workload.issued for sweep in found for result in sweep.results}
    return measured("depth of the workload, I/Os in flight", {each: str(each) for each in depths})


def _named(sweep: Sweep) -> Table:
    made = table(sweep)
    return replace(made, caption=f"{made.caption}, LUN depth {_depth(sweep)}")
