"""The sections on changes, verdicts and searches.

The changes and their reasons come from the journal, the plan and the history. Verdicts have
intervals. A search shows the settings that `autotune` tried on each disk, and its result.
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
    make_curves_figure,
    make_rows_figure,
)
from hbatune.report.page import Block, Figure, Howto, PageSection, PageTable, ReportData
from hbatune.report.svg import (
    Axis,
    LegendEntry,
    Shape,
    make_linear_axis,
    make_log_axis,
    make_measured_axis,
)
from hbatune.settings.setting import LimitReason, Value
from hbatune.text.basic_output import format_count
from hbatune.text.limit_text import describe_limit
from hbatune.text.plan_tables import format_targets, format_value
from hbatune.text.probe_tables import describe_stale
from hbatune.text.units import format_digits, format_latency, format_percent, format_time
from hbatune.text.verdict_tables import (
    METRIC_NAMES,
    format_compared_settings,
    format_metric_change,
    format_verdict,
)

AFFINITY_SETTING = "irq_affinity"
_WHY = "Why (source)"


def make_changes_section(data: ReportData) -> PageSection:
    """Return the section: changed settings, reverted settings, and the remaining plan."""
    blocks = [
        _make_change_block(
            "Set", "Settings that hbatune has changed since this host was booted", _list_set(data)
        ),
        _make_change_block(
            "Tried and put back", "Settings that cost more than they gave", _list_reverted(data)
        ),
        _make_change_block(
            "Still to change", "Settings that differ from the profile", _list_drift(data)
        ),
        _make_change_block(
            "Cannot be changed here",
            "Settings that the kernel or the driver fixes",
            _list_fixed(data),
        ),
    ]
    filled = tuple(block for block in blocks if block is not None)
    howto = Howto(_explain_empty(data), data.apply)
    return PageSection("changes", "What was changed, and why", filled, howto)


def _explain_empty(data: ReportData) -> str:
    """Return the reason why the section is empty."""
    then = "no profile is active" if data.plan is None else "nothing differs from the profile"
    if data.recorded:
        return f"A snapshot holds no values from before, and {then}."
    return f"Nothing has been changed since this host was booted, and {then}."


def set_count(data: ReportData) -> int:
    """Return the number of settings that differ from their baselines."""
    return sum(1 for _ in _find_changed(data))


def _make_change_block(
    name: str, caption: str, table: tuple[tuple[str, ...], list[list[str]]]
) -> Block | None:
    heads, rows = table
    if not rows:
        return None
    return Block(name, tables=(PageTable(caption, heads, tuple(map(tuple, rows)), wide=True),))


def _list_set(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    return ("Target", "Setting", "Before", "Set to", _WHY), list(
        _list_change_cells(_find_changed(data))
    )


def _list_change_cells(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield one line for all targets with the same change and reason."""
    for group in _group_rows(rows):
        targets = format_targets([row.target for row in group])
        row, current, value = group[0], _show_span(group, "current"), _show_span(group, "value")
        yield [targets, row.setting, current, value, _explain_row(row)]


def _group_rows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield groups of equal rows. The CPUs of vectors may differ within a group."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        values = () if row.setting == AFFINITY_SETTING else (row.current, row.value)
        key = (row.adapter, row.setting, row.limit, row.rule, *values)
        groups.setdefault(key, []).append(row)
    for group in groups.values():
        yield sorted(group, key=lambda row: natural_key(row.target))


def _show_span(rows: Sequence[Row], field: str) -> str:
    """Return the common value of the rows, or the first and the last value."""
    values = list(dict.fromkeys(format_value(getattr(row, field)) for row in rows))
    return values[0] if len(values) == 1 else f"{values[0]} … {values[-1]}"


def _find_changed(data: ReportData) -> Iterator[Row]:
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
            limit=_describe_limit(entry.value, row),
            why=row.why if row else "no rule of this profile is about it",
            source=row.source if row else "",
            rule=row.rule if row else "",
        )


def _describe_limit(value: Value, row: Row | None) -> LimitReason | str | None:
    """Return a note if the value has changed since, otherwise its limit."""
    if row is None:
        return None
    if row.current is not None and row.current != value:
        return f"it is {row.current} by now"
    return row.limit


def _list_reverted(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    reverts: dict[ValueChange, Record] = {}
    for record in sorted(data.records, key=lambda record: record.time):
        for setting in record.settings:
            if setting.setting in record.reverted:
                # A revert has several proofs. The latest proof of a regression explains it.
                beyond = record.proof is not None and record.proof.verdict.beyond
                if beyond or setting not in reverts:
                    reverts[setting] = record
    heads = ("Target", "Setting", "Back at", "Tried", "What it cost")
    rows = [
        [
            change.target,
            change.setting,
            format_value(change.before),
            format_value(change.after),
            _describe_cost(record),
        ]
        for change, record in reverts.items()
    ]
    return heads, rows


def _describe_cost(record: Record) -> str:
    if record.proof is None:
        return format_value(None)
    beyond = [change for change in record.proof.verdict.changes if change.beyond]
    return "; ".join(
        f"{METRIC_NAMES[change.metric]} {format_metric_change(change)}" for change in beyond
    ) or format_value(None)


def _list_drift(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    heads = ("Target", "Setting", "Current", "Wanted", _WHY)
    return heads, list(_list_change_cells(_select_state(data, State.DRIFT)))


def _list_fixed(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    heads = ("Target", "Setting", "Current", "Wanted", "Why not")
    rows = []
    for group in _group_rows(_select_state(data, State.FIXED)):
        row, targets = group[0], format_targets([row.target for row in group])
        current = _show_span(group, "current")
        reason = format_value(describe_limit(row.limit) or None)
        rows.append([targets, row.setting, current, format_value(row.wanted), reason])
    return heads, rows


def _select_state(data: ReportData, state: State) -> list[Row]:
    return [row for row in data.plan.rows if row.state is state] if data.plan else []


def _explain_row(row: Row) -> str:
    limit, reason = describe_limit(row.limit), describe_limit(row.why)
    reason = f"{reason} ({row.source})" if row.source else reason
    return f"{limit}; {reason}" if limit else reason


MAX_VERDICTS = 12
"""Maximum number of verdicts drawn. `hbatune history` lists all of them."""
_EDGE = 200.0
"""Maximum of an interval in percent: one noisy verdict must not flatten all others."""

_SIGNS = {
    Conclusion.IMPROVED: (Shape.CIRCLE, "s2"),
    Conclusion.REGRESSED: (Shape.DIAMOND, "s1"),
    Conclusion.UNCHANGED: (Shape.SQUARE, "s0"),
    Conclusion.CANNOT_TELL: (Shape.TRIANGLE, "s3 doubted"),
}


def make_proofs_section(data: ReportData) -> PageSection:
    """Return the section, the latest verdict first."""
    verdicts = find_latest_proofs(data)
    blocks = [_make_proof_block(data, record, proof) for record, proof in verdicts[:MAX_VERDICTS]]
    if len(verdicts) > MAX_VERDICTS:
        blocks.append(
            Block(notes=(f"{len(verdicts) - MAX_VERDICTS} older verdicts: `hbatune history`.",))
        )
    howto = Howto("No change has been measured with and without.", data.apply)
    return PageSection("before-after", "Before and after", tuple(blocks), howto)


def find_latest_proofs(data: ReportData) -> list[tuple[Record, Proof]]:
    """Return the latest proof of each disk and set of settings, the latest first."""
    ordered = sorted(data.records, key=lambda record: record.time)
    latest: dict[object, tuple[Record, Proof]] = {}
    for record in ordered:
        if record.proof is not None:
            key = (record.id, record.proof.settings, record.proof.group, record.proof.again)
            # A dict keeps the position of an existing key: remove it, so the latest is last.
            latest.pop(key, None)
            latest[key] = (record, record.proof)
    return list(reversed(latest.values()))


def _make_proof_block(data: ReportData, record: Record, proof: Proof) -> Block:
    subject = format_compared_settings(proof)
    verdict = "no time" if proof.left_out else str(proof.verdict.word)
    notes = list(_describe_proof(data, record, proof))
    values = [
        (
            setting.setting,
            "-" if setting.before is None else str(setting.before),
            str(setting.after),
        )
        for setting in record.settings
    ]
    heads = ("Metric", "Before", "After", "Change (interval)", "Verdict")
    figures = [_list_proof_cells(change) for change in proof.verdict.changes]
    tables = [PageTable("What was switched", ("Setting", "Without", "With"), tuple(values))]
    if figures:
        table = PageTable("Means of all runs", heads, tuple(figures), frozenset({1, 2, 3}))
        tables.append(table)
    return Block(
        name=f"{proof.target}, {subject}: {verdict}",
        notes=tuple(notes),
        figures=(_draw_proof(data, record, proof),) if figures else (),
        tables=tuple(table for table in tables if table.rows),
        paired=True,
    )


def _describe_proof(data: ReportData, record: Record, proof: Proof) -> Iterator[str]:
    verdict = proof.verdict
    order = (
        "with and without in turns, in an order drawn by lot"
        if verdict.design is Design.INTERLEAVED
        else "all runs before, then all after, since it cannot be switched back and forth"
    )
    yield (
        f"Measured {format_time(record.time)}: {format_count(verdict.runs, 'run')} of "
        f"each, {order}."
    )
    if proof.doubted:
        doubted = format_count(proof.doubted, "run")
        yield f"{doubted} broke Little's law: fio or the CPUs were measured, too."
    if record.reverted:
        yield f"Put back: {', '.join(record.reverted)}."
    if verdict.word is Conclusion.CANNOT_TELL and verdict.more_seconds is not None:
        yield f"{format_verdict(verdict)}."
    yield from describe_stale(data.stale(record))


def _list_proof_cells(change: MetricChange) -> tuple[str, ...]:
    unit = "" if METRIC_NAMES[change.metric] == "IOPS" else " µs"
    return (
        METRIC_NAMES[change.metric],
        f"{change.before:,.0f}{unit}",
        f"{change.after:,.0f}{unit}",
        format_metric_change(change),
        str(change.word),
    )


def _draw_proof(data: ReportData, record: Record, proof: Proof) -> Figure:
    tolerance = None
    # Another profile's tolerance would be the wrong band for this verdict.
    if data.profile is not None and data.profile.name == record.profile:
        tolerance = data.profile.tolerance
    changes = proof.verdict.changes
    ends = [
        _clamp_percent(_to_percent(ratio))
        for change in changes
        for ratio in (change.low, change.high)
    ]
    tolerated = (
        [] if tolerance is None else [_get_tolerated(change, tolerance) for change in changes]
    )
    axis = make_linear_axis(
        "change with the settings, %", [*ends, *tolerated, *(-t for t in tolerated)]
    )
    conclusions = list(dict.fromkeys(change.word for change in changes))
    keys = [
        LegendEntry(str(conclusion), _SIGNS[conclusion][1], _SIGNS[conclusion][0])
        for conclusion in conclusions
    ]
    if tolerance is not None:
        keys.append(LegendEntry("tolerated", "tolerated", None))
    name = f"What the settings changed on {proof.target}"
    chart = Rows(
        name,
        axis,
        tuple(_make_proof_row(change, tolerance) for change in changes),
        tuple(keys),
        pitch=46,
        upright=Guide(0, "no change"),
    )
    caption = (
        "The mark is the change, the bar the interval in which it lies, 99 % sure of all three "
        "together. More IOPS and less latency are better."
    )
    if any(
        abs(_to_percent(ratio)) > _EDGE for change in changes for ratio in (change.low, change.high)
    ):
        caption += " A bar that reaches the edge goes on beyond it."
    return make_rows_figure(chart, caption)


def _make_proof_row(change: MetricChange, tolerance: Tolerance | None) -> ChartRow:
    low, middle, high = (
        _clamp_percent(_to_percent(ratio)) for ratio in (change.low, change.ratio, change.high)
    )
    shape, style = _SIGNS[change.word]
    bars = [Bar(low, high, style.split()[0], 3)]
    if tolerance is not None:
        allowed = _get_tolerated(change, tolerance)
        bars.insert(0, Bar(-allowed, allowed, "tolerated", 22))
    mark = Mark(middle, shape, style)
    return ChartRow(METRIC_NAMES[change.metric], format_metric_change(change), tuple(bars), (mark,))


def _get_tolerated(change: MetricChange, tolerance: Tolerance) -> float:
    return 100 * change.metric.tolerated(tolerance)


def _to_percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _clamp_percent(percent: float) -> float:
    return max(-100.0, min(_EDGE, percent))


MAX_SEARCHES = 6
"""Maximum number of disks drawn, the latest first."""
_WORDS = {
    "best": "better than what was in force",
    "as good as": "as good as the best",
    "out of reach": "no depth meets the objective; this one comes nearest",
    "cannot tell": "the likeliest, which is not sure enough",
}
_LEADER, _REST = ("s2", Shape.DIAMOND), ("s0", Shape.CIRCLE)


def make_search_section(data: ReportData) -> PageSection:
    """Return the section with the latest search of each disk, the latest first."""
    ordered = sorted(data.records, key=lambda record: record.time)
    newest = {record.id: (record, record.search) for record in ordered if record.search is not None}
    searches = sorted(newest.values(), key=lambda entry: -entry[0].time)
    profile = "oltp" if data.profile is None else data.profile.name
    howto = Howto(
        "No disk's best settings have been searched yet.",
        f"hbatune autotune {data.disk} --profile {profile}",
    )
    blocks = [
        _make_search_block(data, record, searched) for record, searched in searches[:MAX_SEARCHES]
    ]
    if len(searches) > MAX_SEARCHES:
        blocks.append(
            Block(notes=(f"{len(searches) - MAX_SEARCHES} more searches: `hbatune history`.",))
        )
    return PageSection("search", "The search for the best settings", tuple(blocks), howto)


def _make_search_block(data: ReportData, record: Record, searched: Searched) -> Block:
    figures, tables = list[Figure](), list[PageTable]()
    if searched.depth is not None and _is_drawable(searched.depth):
        figures += _draw_depths(searched.depth, searched.objective_us)
        tables.append(_make_depth_table(searched.depth))
    for setting in searched.settings:
        if figure := _draw_candidates(setting):
            figures.append(figure)
    return Block(
        name=record.target,
        notes=(*_describe_search(record, searched), *describe_stale(data.stale(record))),
        figures=tuple(figures),
        folded=tuple(tables),
    )


def _describe_search(record: Record, searched: Searched) -> Iterator[str]:
    yield f"Searched {format_time(record.time)} on kernel {record.kernel}."
    if (depth := searched.depth) is not None:
        conclusion = _describe_conclusion(depth.word)
        yield (
            f"queue_depth {depth.depth}: {conclusion}, {format_percent(depth.chance)} sure; "
            f"in force was {depth.current}."
        )
    for setting in searched.settings:
        if setting.leader < len(setting.candidates):
            leader = _show_values(setting.candidates[setting.leader], setting.in_force)
            suffix = " beside a bulk writer" if setting.interference else ""
            yield f"{leader}: {_describe_conclusion(setting.word)}, {setting.depth} deep{suffix}."
    if record.rule is not None:
        yield f"Written to {record.rule}."


def _describe_conclusion(conclusion: str) -> str:
    return _WORDS.get(conclusion, conclusion)


def _is_drawable(searched: SearchedDepth) -> bool:
    figures = [
        figure for probe in searched.probes for figure in (probe.depth, probe.iops, probe.p99_us)
    ]
    return bool(figures) and min(figures) > 0


def _draw_depths(searched: SearchedDepth, objective_us: float | None) -> Iterator[Figure]:
    depths = {probe.depth: str(probe.depth) for probe in searched.probes}
    axis = make_measured_axis(
        "depth, I/Os in flight", {**depths, max(searched.depth, 1): str(searched.depth)}
    )
    answer = Guide(searched.depth, f"answer: {searched.depth}")
    rates = [(probe.depth, probe.iops) for probe in searched.probes]
    times = [(probe.depth, probe.p99_us / 1000) for probe in searched.probes]
    yield make_curves_figure(
        Curves(
            "IOPS at the depths tried",
            axis,
            make_linear_axis("IOPS, I/Os per second", [rate for _, rate in rates]),
            (_make_series("IOPS", rates, searched.depth),),
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
    yield make_curves_figure(
        Curves(
            "p99 at the depths tried",
            axis,
            make_log_axis("p99 latency, ms", values),
            (_make_series("p99", times, searched.depth),),
            upright=answer,
            level=level,
        ),
        caption,
    )


def _make_series(name: str, points: list[tuple[int, float]], answer: int) -> Series:
    """Return the probes in order of depth, each with its number."""
    numbered = sorted((depth, number, value) for number, (depth, value) in enumerate(points, 1))
    dots = (
        Dot(depth, value, f"{number}.", chosen=depth == answer) for depth, number, value in numbered
    )
    return Series(name, tuple(dots))


def _make_depth_table(searched: SearchedDepth) -> PageTable:
    rows = tuple(
        (str(number), str(probe.depth), format_digits(probe.iops), format_latency(probe.p99_us))
        for number, probe in enumerate(searched.probes, 1)
    )
    heads = ("Probe", "Depth", "IOPS", "p99")
    return PageTable("The probes of this search", heads, rows, frozenset(range(4)))


def _draw_candidates(searched: SearchedSettings) -> Figure | None:
    """Draw a row for each candidate, or return None without positive scores."""
    scores = [score for candidate in searched.candidates for score in candidate.scores]
    if not scores or min(scores) <= 0:
        return None
    axis: Axis
    if searched.interference:
        name = "Candidates beside a bulk writer"
        axis = make_log_axis("p99 of the reader, ms", [score / 1000 for score in scores])
        caption = "Less is better; the rates below the names are the writer's. "
    else:
        name = "Candidates by their rate"
        axis = make_linear_axis("IOPS, less where p99 misses the objective", scores)
        caption = "More is better. "
    rows = tuple(
        _make_search_row(candidate, searched, leads=number == searched.leader)
        for number, candidate in enumerate(searched.candidates)
    )
    keys = (LegendEntry("a probe of the answer", *_LEADER), LegendEntry("another probe", *_REST))
    caption += (
        "Each mark is a probe, in an order drawn by lot; the worse half goes after each round. "
        "Whether the last one is better is judged by pairs with what was in force."
    )
    return make_rows_figure(Rows(name, axis, rows, keys, pitch=44), caption)


def _make_search_row(
    candidate: CandidateTried, searched: SearchedSettings, *, leads: bool
) -> ChartRow:
    style, shape = _LEADER if leads else _REST
    scale = 1000 if searched.interference else 1
    values = [score / scale for score in candidate.scores]
    bars = (Bar(min(values), max(values), "spread", 3),) if values else ()
    notes = [] if candidate.values else ["in force"]
    if candidate.written is not None:
        notes.append(f"{format_digits(candidate.written / 1e6)} MB/s")
    else:
        notes.append(format_count(len(candidate.scores), "probe"))
    marks = tuple(Mark(value, shape, style) for value in values)
    return ChartRow(_show_values(candidate, searched.in_force), ", ".join(notes), bars, marks)


def _show_values(candidate: CandidateTried, in_force: Mapping[str, Value]) -> str:
    """Return a candidate's settings. The current settings show the values that others change."""
    values = candidate.values or in_force
    return ", ".join(f"{name} {value}" for name, value in values.items()) or format_value(None)
