"""The sections on changes, verdicts, and the searches of `autotune`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from hbatune.facts.names import group_items, natural_key
from hbatune.plan.rows import Row, State
from hbatune.policy.profile import Tolerance
from hbatune.probe import history
from hbatune.probe.verdict import Conclusion, Metric, MetricChange
from hbatune.report import charts, page, svg
from hbatune.settings.setting import Value
from hbatune.settings.table import IRQ_AFFINITY
from hbatune.shipped import load_texts
from hbatune.text import limit_text, units, verdict_tables
from hbatune.text.basic_output import format_count
from hbatune.text.plan_tables import format_targets, format_value
from hbatune.text.probe_tables import describe_cause
from hbatune.text.verdict_tables import DECIDED, METRIC_NAMES, format_metric_change


def make_change_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on changed settings, reverted settings, and the remaining plan."""
    rows = data.plan.rows if data.plan else ()
    drift = [row for row in rows if row.state is State.DRIFT]
    fixed = [row for row in rows if row.state is State.FIXED]
    tables = {
        "Set": page.make_table("set", _list_change_cells(find_changed(data), data)),
        "Tried and reverted": page.make_table("reverted", _list_reverted_cells(data)),
        "Still to change": page.make_table("drift", _list_change_cells(drift, data)),
        "Cannot be changed here": page.make_table("fixed", _list_fixed_cells(fixed)),
    }
    return [page.Block(name, tables=(table,)) for name, table in tables.items() if table.rows]


def explain_no_changes(data: page.ReportData) -> str:
    """Return why no settings were changed, and none remain to be changed."""
    then = "no profile is active" if data.plan is None else "nothing differs from the profile"
    if data.recorded:
        return f"A snapshot holds no values from before, and {then}."
    return f"Nothing has been changed since this host was booted, and {then}."


def _list_change_cells(rows: Iterable[Row], data: page.ReportData) -> Iterator[tuple[str, ...]]:
    """Yield one line for all targets with the same change and reason."""
    causes = history.find_causes(data.records, data.machine)
    for targets, group in _group_rows(rows):
        row, current, value = group[0], _show_span(group, "current"), _show_span(group, "value")
        limit, reason = limit_text.describe_limit(row.limit), limit_text.describe_limit(row.why)
        reason = f"{reason} ({row.source})" if row.source else reason
        reason = f"{limit}; {reason}" if limit else reason
        for row in group:
            if (cause := causes.get((*row.key, row.current))) is not None:
                reason += f". {row.target}: {describe_cause(cause)}"
        yield targets, row.setting, current, value, reason


def _group_rows(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield groups of equal rows with their targets. CPUs of vectors may differ in a group."""

    def get_content(row: Row) -> object:
        values = () if row.setting == IRQ_AFFINITY else (row.current, row.value)
        return row.adapter, row.setting, row.limit, row.rule, *values

    for group in group_items(rows, get_content).values():
        group.sort(key=lambda row: natural_key(row.target))
        yield format_targets([row.target for row in group]), group


def _show_span(rows: Sequence[Row], field: str) -> str:
    """Return the common value of the rows, or the first and the last value."""
    values = list(dict.fromkeys(format_value(getattr(row, field)) for row in rows))
    return values[0] if len(values) == 1 else f"{values[0]} … {values[-1]}"


def find_changed(data: page.ReportData) -> Iterator[Row]:
    """Yield a row for each changed setting in the journal, with the reason from the plan."""
    planned = {(row.id, row.setting): row for row in data.plan.rows} if data.plan else {}
    for entry in data.journal.entries:
        if entry.value is None or entry.value == entry.before:
            continue
        row, limit = planned.get(entry.key), None
        if row is not None:
            has_changed = row.current is not None and row.current != entry.value
            limit = f"it is {row.current} by now" if has_changed else row.limit
        yield Row(
            target=entry.target,
            id=entry.id,
            adapter=entry.adapter,
            setting=entry.setting,
            current=entry.before,
            wanted=entry.value,
            value=entry.value,
            state=State.OK,
            limit=limit,
            why=row.why if row else "no rule of this profile is about it",
            source=row.source if row else "",
            rule=row.rule if row else "",
        )


def _list_reverted_cells(data: page.ReportData) -> Iterator[tuple[str, ...]]:
    reverts: dict[history.ValueChange, history.Record] = {}
    for record in data.ordered:
        for setting in record.settings:
            if setting.setting in record.reverted:
                # A revert has several proofs. The latest proof of a regression explains it.
                beyond = record.proof is not None and record.proof.verdict.beyond
                if beyond or setting not in reverts:
                    reverts[setting] = record
    for change, record in reverts.items():
        costs = []
        for metric in () if record.proof is None else record.proof.verdict.changes:
            if metric.beyond:
                costs.append(f"{METRIC_NAMES[metric.metric]} {format_metric_change(metric)}")
        values = (format_value(change.before), format_value(change.after))
        yield change.target, change.setting, *values, format_value("; ".join(costs) or None)


def _list_fixed_cells(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    for targets, group in _group_rows(rows):
        row, current = group[0], _show_span(group, "current")
        limit = format_value(limit_text.describe_limit(row.limit) or None)
        yield targets, row.setting, current, format_value(row.wanted), limit


_MAX_VERDICTS = 12
"""Maximum number of verdicts drawn. `hbatune history` lists all of them."""
_EDGE = 200.0
"""Maximum of an interval in percent: one noisy verdict must not flatten all others."""

_SIGNS: Mapping[str, svg.LegendEntry] = {key.text: key for key in charts.load_keys("verdicts")}


def make_proof_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section on verdicts, the better first."""
    verdicts, more = find_latest_proofs(data), "more verdicts: `hbatune history`."
    return page.make_blocks(_make_proof_block, data, verdicts, more, _MAX_VERDICTS)


_RecordedProof = tuple[history.Record, history.Proof]


def find_latest_proofs(data: page.ReportData) -> list[_RecordedProof]:
    """Return the latest proof of each disk and set of settings: better, worse, then others."""
    latest: dict[object, _RecordedProof] = {}
    for record in data.ordered:
        if record.proof is not None:
            key = (record.id, record.proof.settings, record.proof.group, record.proof.again)
            # A dict keeps the position of an existing key: remove it, so the latest is last.
            latest.pop(key, None)
            latest[key] = (record, record.proof)
    newest = list(reversed(latest.values()))
    return sorted(newest, key=lambda item: [item[1].verdict.word is not word for word in DECIDED])


def _make_proof_block(data: page.ReportData, recorded: _RecordedProof) -> page.Block:
    record, proof = recorded
    verdict = "no time" if proof.left_out else str(proof.verdict.word)
    switched, changes = [], proof.verdict.changes
    for setting in record.settings:
        switched.append((setting.setting, format_value(setting.before), str(setting.after)))
    compared = page.make_table("proof", map(_list_proof_cells, changes))
    tables = (page.make_table("switched", switched), compared)
    return page.Block(
        name=f"{proof.target}, {verdict_tables.format_compared_settings(proof)}: {verdict}",
        notes=tuple(_describe_proof(data, record, proof)),
        figures=(_draw_proof(data, record, proof),) if changes else (),
        tables=tuple(table for table in tables if table.rows),
        paired=True,
    )


def _describe_proof(
    data: page.ReportData, record: history.Record, proof: history.Proof
) -> Iterator[str]:
    verdict = proof.verdict
    order = load_texts("report.toml")["orders"][verdict.design]
    runs = format_count(verdict.runs, "run")
    yield f"Measured {units.format_time(record.time)}: {runs} of each, {order}."
    if proof.doubted:
        doubted = format_count(proof.doubted, "run")
        yield f"{doubted} broke Little's law: fio or the CPUs were measured, too."
    gain = _find_predicted_gain(data, record)
    for change in verdict.changes:
        if gain is not None and change.metric is Metric.P99:
            predicted = f"`why` predicted at most {units.format_percent(gain)} less p99 before it"
            yield f"{predicted}. The comparison measured {format_metric_change(change)}."
    if record.reverted:
        yield f"Reverted: {', '.join(record.reverted)}."
    if verdict.word is Conclusion.CANNOT_TELL:
        yield f"{verdict_tables.format_verdict(verdict)}."
    yield from data.list_stale(record)


def _find_predicted_gain(data: page.ReportData, record: history.Record) -> float | None:
    """Return the gain that the last trace before a proof predicts for its settings, or None."""
    traced, settings = None, record.proof.settings if record.proof else ()
    for earlier in data.ordered:
        if earlier.id == record.id and earlier.time < record.time and earlier.traced is not None:
            traced = earlier.traced
    return traced.gain if traced is not None and traced.lever in settings else None


def _list_proof_cells(change: MetricChange) -> tuple[str, ...]:
    name = METRIC_NAMES[change.metric]
    unit = "" if name == "IOPS" else " µs"
    values = (f"{change.before:,.0f}{unit}", f"{change.after:,.0f}{unit}")
    return name, *values, format_metric_change(change), str(change.word)


def _draw_proof(data: page.ReportData, record: history.Record, proof: history.Proof) -> page.Figure:
    tolerance = None
    # Another profile's tolerance would be the wrong band for this verdict.
    if data.profile is not None and data.profile.name == record.profile:
        tolerance = data.profile.tolerance
    changes = proof.verdict.changes
    keys = list(dict.fromkeys(_SIGNS[change.word] for change in changes))
    if tolerance is not None:
        keys.append(svg.LegendEntry("tolerated", "tolerated"))
    ends = chain.from_iterable((change.low, change.high) for change in changes)
    is_clamped = any(abs(_to_percent(end)) > _EDGE for end in ends)
    return charts.draw_rows(
        "proof",
        [_make_proof_row(change, tolerance) for change in changes],
        keys,
        pitch=46,
        upright=charts.Guide(0, "no change"),
        notes=["clamped"] if is_clamped else [],
        target=proof.target,
    )


def _make_proof_row(change: MetricChange, tolerance: Tolerance | None) -> charts.ChartRow:
    percents = map(_to_percent, (change.low, change.ratio, change.high))
    low, middle, high = [max(-100.0, min(_EDGE, percent)) for percent in percents]
    sign = _SIGNS[change.word]
    bars = [charts.Bar(low, high, sign.style.split()[0], 3)]
    if tolerance is not None:
        allowed = 100 * change.metric.tolerated(tolerance)
        bars.insert(0, charts.Bar(-allowed, allowed, "tolerated", 22))
    name, interval = METRIC_NAMES[change.metric], format_metric_change(change)
    return charts.ChartRow(name, interval, tuple(bars), (charts.Mark(middle, sign),))


def _to_percent(ratio: float) -> float:
    return 100 * (ratio - 1)


_RecordedSearch = tuple[history.Record, history.Searched]
_LEADER, _REST = charts.load_keys("candidates")


def make_search_blocks(data: page.ReportData) -> list[page.Block]:
    """Return the section with the latest search of each disk, the latest first."""
    newest: dict[str, _RecordedSearch] = {}
    for record in data.ordered:
        if record.search is not None:
            newest[record.id] = (record, record.search)
    searches = sorted(newest.values(), key=lambda entry: -entry[0].time)
    return page.make_blocks(_make_search_block, data, searches, "more searches: `hbatune history`.")


def _make_search_block(data: page.ReportData, recorded: _RecordedSearch) -> page.Block:
    record, searched = recorded
    figures, tables = list[page.Figure](), list[page.PageTable]()
    if searched.depth is not None and _is_drawable(searched.depth):
        figures += _draw_depths(searched.depth, searched.objective_us)
        tables.append(_make_depth_table(searched.depth))
    for setting in searched.settings:
        if figure := _draw_candidates(setting):
            figures.append(figure)
    return page.Block(
        name=record.target,
        notes=(*_describe_search(record, searched), *data.list_stale(record)),
        figures=tuple(figures),
        folded=tuple(tables),
    )


def _describe_search(record: history.Record, searched: history.Searched) -> Iterator[str]:
    yield f"Searched {units.format_time(record.time)} on kernel {record.kernel}."
    conclusions = load_texts("report.toml")["conclusions"]
    if (depth := searched.depth) is not None:
        conclusion = conclusions.get(depth.word, depth.word)
        yield (
            f"queue_depth {depth.depth}: {conclusion}, {units.format_percent(depth.chance)} sure; "
            f"the value before was {depth.current}."
        )
    for setting in searched.settings:
        if setting.leader < len(setting.candidates):
            leader = _show_values(setting.candidates[setting.leader], setting.in_force)
            conclusion = conclusions.get(setting.word, setting.word)
            suffix = " with a bulk writer" if setting.interference else ""
            yield f"{leader}: {conclusion}, {setting.depth} deep{suffix}."
    if record.rule is not None:
        yield f"Written to {record.rule}."


def _is_drawable(searched: history.SearchedDepth) -> bool:
    probes = searched.probes
    return bool(probes) and all(min(run.depth, run.iops, run.p99_us) > 0 for run in probes)


def _draw_depths(
    searched: history.SearchedDepth, objective_us: float | None
) -> Iterator[page.Figure]:
    depths = [max(searched.depth, 1), *(probe.depth for probe in searched.probes)]
    axis = svg.make_measured_axis("depth, I/Os in flight", depths)
    answer = charts.Guide(searched.depth, f"answer: {searched.depth}")
    curves = [_make_series("IOPS", searched, lambda probe: probe.iops)]
    yield charts.draw_curves("search-iops", curves, axis, upright=answer)
    curves = [_make_series("p99", searched, lambda probe: probe.p99_us / 1000)]
    level, name = None, "search-p99-free"
    if objective_us is not None and objective_us > 0:
        level = charts.Guide(objective_us / 1000, f"objective: {objective_us / 1000:g} ms")
        name = "search-p99"
    yield charts.draw_curves(name, curves, axis, upright=answer, level=level)


def _make_series(
    name: str, searched: history.SearchedDepth, take: Callable[[history.Measurement], float]
) -> charts.Series:
    dots = []
    for number, probe in enumerate(searched.probes, 1):
        is_answer = probe.depth == searched.depth
        dots.append(charts.Dot(probe.depth, take(probe), f"{number}.", chosen=is_answer))
    return charts.Series(name, tuple(sorted(dots, key=lambda dot: dot.x)))


def _make_depth_table(searched: history.SearchedDepth) -> page.PageTable:
    rows = []
    for number, probe in enumerate(searched.probes, 1):
        figures = (units.format_digits(probe.iops), units.format_latency(probe.p99_us))
        rows.append((str(number), str(probe.depth), *figures))
    return page.make_table("search", rows)


def _draw_candidates(searched: history.SearchedSettings) -> page.Figure | None:
    """Draw a row for each candidate, or return None without positive scores."""
    scores = chain.from_iterable(candidate.scores for candidate in searched.candidates)
    if min(scores, default=0) <= 0:
        return None
    rows = []
    for number, candidate in enumerate(searched.candidates):
        rows.append(_make_search_row(candidate, searched, leads=number == searched.leader))
    name = "candidates-writer" if searched.interference else "candidates"
    return charts.draw_rows(name, rows, (_LEADER, _REST))


def _make_search_row(
    candidate: history.CandidateTried, searched: history.SearchedSettings, *, leads: bool
) -> charts.ChartRow:
    key = _LEADER if leads else _REST
    # With a writer, the scores are latencies in µs.
    scale = 1000 if searched.interference else 1
    marks = [charts.Mark(score / scale, key) for score in candidate.scores]
    notes = [] if candidate.values else ["in force"]
    if candidate.written is not None:
        notes.append(f"{units.format_digits(candidate.written / 1e6)} MB/s")
    else:
        notes.append(format_count(len(candidate.scores), "probe"))
    name = _show_values(candidate, searched.in_force)
    return charts.make_spread_row(name, ", ".join(notes), marks)


def _show_values(candidate: history.CandidateTried, in_force: Mapping[str, Value]) -> str:
    """Return a candidate's settings. The current settings show the values that others change."""
    values = candidate.values or in_force
    return ", ".join(f"{name} {value}" for name, value in values.items()) or format_value(None)
