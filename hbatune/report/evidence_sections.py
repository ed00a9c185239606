"""The sections on changes, proofs and searches.

The section on changes and their reasons, from the journal, the plan and the history.

The section on proofs: verdicts with intervals.

The section on searches: what `autotune` tried on each disk, and what it answered.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hbatune.facts.names import natural_key
from hbatune.plan.rows import Row, State
from hbatune.policy.profile import Tolerance
from hbatune.probe.history import (
    CandidateTried,
    Proof,
    Record,
    Searched,
    SearchedDepth,
    SearchedSettings,
    ValueChange,
)
from hbatune.probe.verdict import Conclusion, Design, MetricChange
from hbatune.report.charts import (
    Bar,
    ChartRow,
    Curves,
    Dot,
    Guide,
    Mark,
    Rows,
    Series,
    curves_figure,
    rows_figure,
)
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import Axis, LegendEntry, Shape, linear, logarithmic, measured
from hbatune.settings.setting import Value
from hbatune.text.basic_output import quantity
from hbatune.text.plan_tables import shown, targets_text
from hbatune.text.probe_tables import stale_notes
from hbatune.text.units import digits, format_time, latency, percent
from hbatune.text.verdict_tables import METRICS, change_text, verdict_line, what_text

AFFINITY = "irq_affinity"
_WHY = "Why (source)"


def changes(data: ReportData) -> PageSection:
    """Return the section: settings changed, settings reverted, and the rest of the plan."""
    blocks = [
        _change_block(
            "Set",
            "Settings that hbatune has changed since this host was booted",
            _set(data),
        ),
        _change_block(
            "Tried and put back", "Settings that cost more than they gave", _put_back(data)
        ),
        _change_block("Still to change", "Settings that differ from the profile", _drift(data)),
        _change_block(
            "Cannot be changed here", "Settings that the kernel or the driver fixes", _fixed(data)
        ),
    ]
    found = tuple(block for block in blocks if block is not None)
    howto = Howto(_nothing(data), data.apply)
    return PageSection("changes", "What was changed, and why", found, howto)


def _nothing(data: ReportData) -> str:
    """Return the reason why there is nothing to show."""
    then = "no profile is active" if data.plan is None else "nothing differs from the profile"
    if data.recorded:
        return f"A snapshot holds no values from before, and {then}."
    return f"Nothing has been changed since this host was booted, and {then}."


def set_count(data: ReportData) -> int:
    """Return how many settings differ from their baselines."""
    return sum(1 for _ in _changed(data))


def _change_block(
    name: str, caption: str, found: tuple[tuple[str, ...], list[list[str]]]
) -> Block | None:
    heads, rows = found
    if not rows:
        return None
    return Block(name, tables=(PageTable(caption, heads, tuple(map(tuple, rows)), wide=True),))


def _set(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    return ("Target", "Setting", "Before", "Set to", _WHY), list(_change_cells(_changed(data)))


def _change_cells(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield one line for all targets with the same change for the same reason."""
    for alike in _alike(rows):
        targets = targets_text([row.target for row in alike])
        row, now, value = alike[0], _span(alike, "current"), _span(alike, "value")
        yield [targets, row.setting, now, value, _why(row)]


def _alike(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield groups of equal rows; the CPUs of vectors may differ within a group."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        values = () if row.setting == AFFINITY else (row.current, row.value)
        key = (row.adapter, row.setting, row.limit, row.rule, *values)
        found.setdefault(key, []).append(row)
    for alike in found.values():
        yield sorted(alike, key=lambda row: natural_key(row.target))


def _span(rows: Sequence[Row], field: str) -> str:
    """Return the value that the rows share, or the first and the last of several."""
    values = list(dict.fromkeys(shown(getattr(row, field)) for row in rows))
    return values[0] if len(values) == 1 else f"{values[0]} … {values[-1]}"


def _changed(data: ReportData) -> Iterator[Row]:
    """Yield a row for each changed setting in the journal, with the reason from the plan."""
    planned = {(row.id, row.setting): row for row in data.plan.rows} if data.plan else {}
    for entry in data.journal.entries:
        if entry.value is None or entry.value == entry.before:
            continue
        row = planned.get(entry.key)
        yield Row(
            target=entry.target,
            id=entry.id,
            adapter=entry.adapter,
            setting=entry.setting,
            current=entry.before,
            wanted=entry.value,
            value=entry.value,
            state=State.OK,
            limit=_since(entry.value, row),
            why=row.why if row else "no rule of this profile is about it",
            source=row.source if row else "",
            rule=row.rule if row else "",
        )


def _since(value: Value, row: Row | None) -> str | None:
    """Return that the value has changed since, or else the limit that decided it."""
    if row is None:
        return None
    if row.current is not None and row.current != value:
        return f"it is {row.current} by now"
    return row.limit


def _put_back(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    found: dict[ValueChange, Record] = {}
    for record in sorted(data.records, key=lambda record: record.time):
        for setting in record.settings:
            if setting.setting in record.reverted:
                # A revert has several proofs; the newest one that shows the cost explains it.
                beyond = record.proof is not None and record.proof.verdict.beyond
                if beyond or setting not in found:
                    found[setting] = record
    heads = ("Target", "Setting", "Back at", "Tried", "What it cost")
    rows = [
        [each.target, each.setting, shown(each.before), shown(each.after), _cost(record)]
        for each, record in found.items()
    ]
    return heads, rows


def _cost(record: Record) -> str:
    if record.proof is None:
        return shown(None)
    beyond = [change for change in record.proof.verdict.changes if change.beyond]
    return "; ".join(f"{METRICS[each.metric]} {change_text(each)}" for each in beyond) or shown(
        None
    )


def _drift(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    heads = ("Target", "Setting", "Current", "Wanted", _WHY)
    return heads, list(_change_cells(_in_state(data, State.DRIFT)))


def _fixed(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    heads = ("Target", "Setting", "Current", "Wanted", "Why not")
    rows = []
    for alike in _alike(_in_state(data, State.FIXED)):
        row, targets = alike[0], targets_text([row.target for row in alike])
        now = _span(alike, "current")
        rows.append([targets, row.setting, now, shown(row.wanted), shown(row.limit)])
    return heads, rows


def _in_state(data: ReportData, state: State) -> list[Row]:
    return [row for row in data.plan.rows if row.state is state] if data.plan else []


def _why(row: Row) -> str:
    reason = f"{row.why} ({row.source})" if row.source else row.why
    return f"{row.limit}; {reason}" if row.limit else reason


MAX_VERDICTS = 12
"""The most verdicts that are drawn; `hbatune history` lists all of them."""
_EDGE = 200.0
"""Percent at which an interval is cut off: one noisy verdict must not flatten all others."""

_SIGNS = {
    Conclusion.IMPROVED: (Shape.CIRCLE, "s2"),
    Conclusion.REGRESSED: (Shape.DIAMOND, "s1"),
    Conclusion.UNCHANGED: (Shape.SQUARE, "s0"),
    Conclusion.CANNOT_TELL: (Shape.TRIANGLE, "s3 doubted"),
}


def proofs(data: ReportData) -> PageSection:
    """Return the section, the newest verdict first."""
    judged = newest(data)
    blocks = [_proof_block(data, record, proof) for record, proof in judged[:MAX_VERDICTS]]
    if len(judged) > MAX_VERDICTS:
        blocks.append(
            Block(notes=(f"{len(judged) - MAX_VERDICTS} older verdicts: `hbatune history`.",))
        )
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


def _proof_block(data: ReportData, record: Record, proof: Proof) -> Block:
    what = what_text(proof)
    verdict = "no time" if proof.left_out else str(proof.verdict.word)
    notes = list(_proof_notes(data, record, proof))
    values = [
        (
            setting.setting,
            "-" if setting.before is None else str(setting.before),
            str(setting.after),
        )
        for setting in record.settings
    ]
    heads = ("Metric", "Before", "After", "Change (interval)", "Verdict")
    figures = [_proof_cells(change) for change in proof.verdict.changes]
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


def _proof_notes(data: ReportData, record: Record, proof: Proof) -> Iterator[str]:
    verdict = proof.verdict
    turns = (
        "with and without in turns, in an order drawn by lot"
        if verdict.design is Design.INTERLEAVED
        else "all runs before, then all after, since it cannot be switched back and forth"
    )
    yield f"Measured {format_time(record.time)}: {quantity(verdict.runs, 'run')} of each, {turns}."
    if proof.doubted:
        doubted = quantity(proof.doubted, "run")
        yield f"{doubted} broke Little's law: fio or the CPUs were measured, too."
    if record.reverted:
        yield f"Put back: {', '.join(record.reverted)}."
    if verdict.word is Conclusion.CANNOT_TELL and verdict.more_seconds is not None:
        yield f"{verdict_line(verdict)}."
    yield from stale_notes(data.stale(record))


def _proof_cells(change: MetricChange) -> tuple[str, ...]:
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
        tuple(_proof_row(change, tolerance) for change in changes),
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


def _proof_row(change: MetricChange, tolerance: Tolerance | None) -> ChartRow:
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


MAX_SEARCHES = 6
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
    blocks = [_search_block(data, record, searched) for record, searched in found[:MAX_SEARCHES]]
    if len(found) > MAX_SEARCHES:
        blocks.append(
            Block(notes=(f"{len(found) - MAX_SEARCHES} more searches: `hbatune history`.",))
        )
    return PageSection("search", "The search for the best settings", tuple(blocks), howto)


def _search_block(data: ReportData, record: Record, found: Searched) -> Block:
    figures, tables = list[Figure](), list[PageTable]()
    if found.depth is not None and _drawable(found.depth):
        figures += _depth_figures(found.depth, found.objective_us)
        tables.append(_depth_table(found.depth))
    for setting in found.settings:
        if figure := _tournament(setting):
            figures.append(figure)
    return Block(
        name=record.target,
        notes=(*_search_notes(record, found), *stale_notes(data.stale(record))),
        figures=tuple(figures),
        folded=tuple(tables),
    )


def _search_notes(record: Record, found: Searched) -> Iterator[str]:
    yield f"Searched {format_time(record.time)} on kernel {record.kernel}."
    if (depth := found.depth) is not None:
        yield (
            f"queue_depth {depth.depth}: {_told(depth.word)}, {percent(depth.chance)} sure; "
            f"in force was {depth.current}."
        )
    for setting in found.settings:
        if setting.leader < len(setting.candidates):
            leader = _values(setting.candidates[setting.leader], setting.in_force)
            beside = " beside a bulk writer" if setting.interference else ""
            yield f"{leader}: {_told(setting.word)}, {setting.depth} deep{beside}."
    if record.rule is not None:
        yield f"Written to {record.rule}."


def _told(word: str) -> str:
    return _WORDS.get(word, word)


def _drawable(found: SearchedDepth) -> bool:
    figures = [
        figure for probe in found.probes for figure in (probe.depth, probe.iops, probe.p99_us)
    ]
    return bool(figures) and min(figures) > 0


def _depth_figures(found: SearchedDepth, objective_us: float | None) -> Iterator[Figure]:
    depths = {probe.depth: str(probe.depth) for probe in found.probes}
    axis = measured("depth, I/Os in flight", {**depths, max(found.depth, 1): str(found.depth)})
    answer = Guide(found.depth, f"answer: {found.depth}")
    rates = [(probe.depth, probe.iops) for probe in found.probes]
    times = [(probe.depth, probe.p99_us / 1000) for probe in found.probes]
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
    scores = [score for candidate in found.candidates for score in candidate.scores]
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
        _search_row(each, found, leads=number == found.leader)
        for number, each in enumerate(found.candidates)
    )
    keys = (LegendEntry("a probe of the answer", *_LEADER), LegendEntry("another probe", *_REST))
    caption += (
        "Each mark is a probe, in an order drawn by lot; the worse half goes after each round. "
        "Whether the last one is better is judged by pairs with what was in force."
    )
    return rows_figure(Rows(name, axis, rows, keys, pitch=44), caption)


def _search_row(candidate: CandidateTried, found: SearchedSettings, *, leads: bool) -> ChartRow:
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
