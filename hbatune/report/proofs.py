"""The section on proofs: verdicts with intervals."""

from collections.abc import Iterator

from hbatune.cli.text.probes import stale_notes
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.units import when
from hbatune.cli.text.verdicts import METRICS, change_text, verdict_line, what_text
from hbatune.policy.model import Tolerance
from hbatune.probe.history import Record
from hbatune.probe.kept import Proof
from hbatune.probe.verdict import Design, MetricChange, Word
from hbatune.report.charts import Bar, ChartRow, Guide, Mark, Rows
from hbatune.report.figures import rows_figure
from hbatune.report.layout import linear
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import LegendEntry, Shape

MOST = 12
"""The most verdicts that are drawn; `hbatune history` lists all of them."""
_EDGE = 200.0
"""Percent at which an interval is cut off: one noisy verdict must not flatten all others."""

_SIGNS = {
    Word.IMPROVED: (Shape.CIRCLE, "s2"),
    Word.REGRESSED: (Shape.DIAMOND, "s1"),
    Word.UNCHANGED: (Shape.SQUARE, "s0"),
    Word.CANNOT_TELL: (Shape.TRIANGLE, "s3 doubted"),
}


def proofs(data: ReportData) -> PageSection:
    """Return the section, the newest verdict first."""
    judged = newest(data)
    blocks = [_block(data, record, proof) for record, proof in judged[:MOST]]
    if len(judged) > MOST:
        blocks.append(Block(notes=(f"{len(judged) - MOST} older verdicts: `hbatune history`.",)))
    howto = Howto("No change has been measured with and without.", data.apply)
    return PageSection("before-after", "Before and after", tuple(blocks), howto)


def newest(data: ReportData) -> list[tuple[Record, Proof]]:
    """Return the newest proof of each disk and set of settings, the newest first."""
    ordered = sorted(data.records, key=lambda record: record.time)
    found: dict[object, tuple[Record, Proof]] = {}
    for record in ordered:
        if record.proof is not None:
            key = (record.id, record.proof.settings, record.proof.group, record.proof.again)
            # Removed first, since a dict keeps the place of an old key: the newest go last.
            found.pop(key, None)
            found[key] = (record, record.proof)
    return list(reversed(found.values()))


def _block(data: ReportData, record: Record, proof: Proof) -> Block:
    what = what_text(proof)
    verdict = "no time" if proof.left_out else str(proof.verdict.word)
    notes = list(_notes(data, record, proof))
    values = [
        (each.setting, "-" if each.before is None else str(each.before), str(each.after))
        for each in record.settings
    ]
    heads = ("Metric", "Before", "After", "Change (interval)", "Verdict")
    figures = [_cells(change) for change in proof.verdict.changes]
    tables = [PageTable("What was switched", ("Setting", "Without", "With"), tuple(values))]
    if figures:
        table = PageTable("Means of all runs", heads, tuple(figures), frozenset({1, 2, 3}))
        tables.append(table)
    return Block(
        name=f"{proof.target}, {what}: {verdict}",
        notes=tuple(notes),
        figures=(_forest(data, record, proof),) if figures else (),
        tables=tuple(table for table in tables if table.rows),
        paired=True,
    )


def _notes(data: ReportData, record: Record, proof: Proof) -> Iterator[str]:
    verdict = proof.verdict
    turns = (
        "with and without in turns, in an order drawn by lot"
        if verdict.design is Design.INTERLEAVED
        else "all runs before, then all after, since it cannot be switched back and forth"
    )
    yield f"Measured {when(record.time)}: {quantity(verdict.runs, 'run')} of each, {turns}."
    if proof.doubted:
        doubted = quantity(proof.doubted, "run")
        yield f"{doubted} broke Little's law: fio or the CPUs were measured, too."
    if record.reverted:
        yield f"Put back: {', '.join(record.reverted)}."
    if verdict.word is Word.CANNOT_TELL and verdict.more_seconds is not None:
        yield f"{verdict_line(verdict)}."
    yield from stale_notes(data.stale(record))


def _cells(change: MetricChange) -> tuple[str, ...]:
    unit = "" if METRICS[change.metric] == "IOPS" else " µs"
    return (
        METRICS[change.metric],
        f"{change.before:,.0f}{unit}",
        f"{change.after:,.0f}{unit}",
        change_text(change),
        str(change.word),
    )


def _forest(data: ReportData, record: Record, proof: Proof) -> Figure:
    tolerance = None
    # The tolerance of another profile would be the wrong band for this verdict.
    if data.profile is not None and data.profile.name == record.profile:
        tolerance = data.profile.tolerance
    changes = proof.verdict.changes
    ends = [_held(_percent(ratio)) for each in changes for ratio in (each.low, each.high)]
    tolerated = [] if tolerance is None else [_allowed(each, tolerance) for each in changes]
    axis = linear("change with the settings, %", [*ends, *tolerated, *(-t for t in tolerated)])
    words = list(dict.fromkeys(each.word for each in changes))
    keys = [LegendEntry(str(word), _SIGNS[word][1], _SIGNS[word][0]) for word in words]
    if tolerance is not None:
        keys.append(LegendEntry("tolerated", "tolerated", None))
    name = f"What the settings changed on {proof.target}"
    chart = Rows(
        name,
        axis,
        tuple(_row(change, tolerance) for change in changes),
        tuple(keys),
        pitch=46,
        upright=Guide(0, "no change"),
    )
    caption = (
        "The mark is the change, the bar the interval in which it lies, 99 % sure of all three "
        "together. More IOPS and less latency are better."
    )
    if any(abs(_percent(ratio)) > _EDGE for each in changes for ratio in (each.low, each.high)):
        caption += " A bar that reaches the edge goes on beyond it."
    return rows_figure(chart, caption)


def _row(change: MetricChange, tolerance: Tolerance | None) -> ChartRow:
    low, middle, high = (_held(_percent(each)) for each in (change.low, change.ratio, change.high))
    shape, style = _SIGNS[change.word]
    bars = [Bar(low, high, style.split()[0], 3)]
    if tolerance is not None:
        allowed = _allowed(change, tolerance)
        bars.insert(0, Bar(-allowed, allowed, "tolerated", 22))
    mark = Mark(middle, shape, style)
    return ChartRow(METRICS[change.metric], change_text(change), tuple(bars), (mark,))


def _allowed(change: MetricChange, tolerance: Tolerance) -> float:
    return 100 * change.metric.tolerated(tolerance)


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _held(percent: float) -> float:
    return max(-100.0, min(_EDGE, percent))
