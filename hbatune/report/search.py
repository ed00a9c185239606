"""The section on searches: what `autotune` tried on each disk, and what it answered."""

from collections.abc import Iterator, Mapping

from hbatune.cli.text.probes import stale_notes
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.rows import shown
from hbatune.cli.text.units import digits, latency, percent, when
from hbatune.probe.history import Record
from hbatune.probe.kept import CandidateTried, Searched, SearchedDepth, SearchedSettings
from hbatune.report.charts import Bar, ChartRow, Curves, Dot, Guide, Mark, Rows, Series
from hbatune.report.figures import curves_figure, rows_figure
from hbatune.report.layout import Axis, linear, logarithmic, measured
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import LegendEntry, Shape
from hbatune.settings.setting import Value

MOST = 6
"""The most disks that are drawn, the newest first."""
_WORDS = {
    "best": "better than what was in force",
    "as good as": "as good as the best",
    "out of reach": "no depth meets the objective; this one comes nearest",
    "cannot tell": "the likeliest, which is not sure enough",
}
_LEADER, _REST = ("s2", Shape.DIAMOND), ("s0", Shape.CIRCLE)


def search(data: ReportData) -> PageSection:
    """Return the section, the newest search of each disk first."""
    ordered = sorted(data.records, key=lambda record: record.time)
    newest = {each.id: (each, each.search) for each in ordered if each.search is not None}
    found = sorted(newest.values(), key=lambda each: -each[0].time)
    profile = "oltp" if data.profile is None else data.profile.name
    howto = Howto(
        "No disk's best settings have been searched yet.",
        f"hbatune autotune {data.disk} --profile {profile}",
    )
    blocks = [_block(data, record, searched) for record, searched in found[:MOST]]
    if len(found) > MOST:
        blocks.append(Block(notes=(f"{len(found) - MOST} more searches: `hbatune history`.",)))
    return PageSection("search", "The search for the best settings", tuple(blocks), howto)


def _block(data: ReportData, record: Record, found: Searched) -> Block:
    figures, tables = list[Figure](), list[PageTable]()
    if found.depth is not None and _drawable(found.depth):
        figures += _depth_figures(found.depth, found.objective_us)
        tables.append(_depth_table(found.depth))
    for each in found.settings:
        if figure := _tournament(each):
            figures.append(figure)
    return Block(
        name=record.target,
        notes=(*_notes(record, found), *stale_notes(data.stale(record))),
        figures=tuple(figures),
        folded=tuple(tables),
    )


def _notes(record: Record, found: Searched) -> Iterator[str]:
    yield f"Searched {when(record.time)} on kernel {record.kernel}."
    if (depth := found.depth) is not None:
        yield (
            f"queue_depth {depth.depth}: {_told(depth.word)}, {percent(depth.chance)} sure; "
            f"in force was {depth.current}."
        )
    for each in found.settings:
        if each.leader < len(each.candidates):
            leader = _values(each.candidates[each.leader], each.in_force)
            beside = " beside a bulk writer" if each.interference else ""
            yield f"{leader}: {_told(each.word)}, {each.depth} deep{beside}."
    if record.rule is not None:
        yield f"Written to {record.rule}."


def _told(word: str) -> str:
    return _WORDS.get(word, word)


def _drawable(found: SearchedDepth) -> bool:
    figures = [figure for each in found.probes for figure in (each.depth, each.iops, each.p99_us)]
    return bool(figures) and min(figures) > 0


def _depth_figures(found: SearchedDepth, objective_us: float | None) -> Iterator[Figure]:
    depths = {each.depth: str(each.depth) for each in found.probes}
    axis = measured("depth, I/Os in flight", {**depths, max(found.depth, 1): str(found.depth)})
    answer = Guide(found.depth, f"answer: {found.depth}")
    rates = [(each.depth, each.iops) for each in found.probes]
    times = [(each.depth, each.p99_us / 1000) for each in found.probes]
    yield curves_figure(
        Curves(
            "IOPS at the depths tried",
            axis,
            linear("IOPS, I/Os per second", [rate for _, rate in rates]),
            (_series("IOPS", rates, found.depth),),
            upright=answer,
        ),
        "Each point is a probe; its number says when it was made. The dashed line is the answer.",
    )
    level = None
    values = [time for _, time in times]
    if objective_us is not None and objective_us > 0:
        level = Guide(objective_us / 1000, f"objective: {objective_us / 1000:g} ms")
        values.append(level.value)
    caption = "No objective: the highest rate was searched."
    if level is not None:
        caption = "The best depth has the highest rate of those below the objective."
    yield curves_figure(
        Curves(
            "p99 at the depths tried",
            axis,
            logarithmic("p99 latency, ms", values),
            (_series("p99", times, found.depth),),
            upright=answer,
            level=level,
        ),
        caption,
    )


def _series(name: str, points: list[tuple[int, float]], answer: int) -> Series:
    """Return the probes by rising depth, each with its number."""
    numbered = sorted((depth, number, value) for number, (depth, value) in enumerate(points, 1))
    dots = (
        Dot(depth, value, f"{number}.", chosen=depth == answer) for depth, number, value in numbered
    )
    return Series(name, tuple(dots))


def _depth_table(found: SearchedDepth) -> PageTable:
    rows = tuple(
        (str(number), str(each.depth), digits(each.iops), latency(each.p99_us))
        for number, each in enumerate(found.probes, 1)
    )
    heads = ("Probe", "Depth", "IOPS", "p99")
    return PageTable("The probes of this search", heads, rows, frozenset(range(4)))


def _tournament(found: SearchedSettings) -> Figure | None:
    """Return a row for each candidate, None where there is nothing to draw."""
    scores = [score for each in found.candidates for score in each.scores]
    if not scores or min(scores) <= 0:
        return None
    axis: Axis
    if found.interference:
        name = "Candidates beside a bulk writer"
        axis = logarithmic("p99 of the reader, ms", [score / 1000 for score in scores])
        caption = "Less is better; the rates below the names are the writer's. "
    else:
        name = "Candidates by their rate"
        axis = linear("IOPS, less where p99 misses the objective", scores)
        caption = "More is better. "
    rows = tuple(
        _row(each, found, leads=number == found.leader)
        for number, each in enumerate(found.candidates)
    )
    keys = (LegendEntry("a probe of the answer", *_LEADER), LegendEntry("another probe", *_REST))
    caption += (
        "Each mark is a probe, in an order drawn by lot; the worse half goes after each round. "
        "Whether the last one is better is judged by pairs with what was in force."
    )
    return rows_figure(Rows(name, axis, rows, keys, pitch=44), caption)


def _row(candidate: CandidateTried, found: SearchedSettings, *, leads: bool) -> ChartRow:
    style, shape = _LEADER if leads else _REST
    scale = 1000 if found.interference else 1
    values = [score / scale for score in candidate.scores]
    bars = (Bar(min(values), max(values), "spread", 3),) if values else ()
    known = [] if candidate.values else ["in force"]
    if candidate.written is not None:
        known.append(f"{digits(candidate.written / 1e6)} MB/s")
    else:
        known.append(quantity(len(candidate.scores), "probe"))
    marks = tuple(Mark(value, shape, style) for value in values)
    return ChartRow(_values(candidate, found.in_force), ", ".join(known), bars, marks)


def _values(candidate: CandidateTried, in_force: Mapping[str, Value]) -> str:
    """Return what a candidate sets; of what was in force, the values that others changed."""
    values = candidate.values or in_force
    return ", ".join(f"{name} {value}" for name, value in values.items()) or shown(None)
