"""Text on probes of one disk or of all disks of an adapter, and the history as CSV."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from hbatune.facts.model import Machine
from hbatune.facts.names import group_items
from hbatune.policy.library import installed_library
from hbatune.probe import comparison
from hbatune.probe.history import HistoryEntry, KeptTogether, TracedCause
from hbatune.probe.knee import Knee
from hbatune.probe.result import Failed, Figures, ProbeResult, Skipped, Workload
from hbatune.probe.sweeps import JobsAdvice, Sweep, advise_jobs, group_by_jobs
from hbatune.shipped import fill_message, find_message, load_texts
from hbatune.text import terminal, units
from hbatune.text.basic_output import format_count
from hbatune.text.tables import Table, load_columns

if TYPE_CHECKING:
    from hbatune.operations.probe import Together
    from hbatune.probe.run import TogetherResult


_CHART_MARGIN, _MIN_CHART_CELLS, _MIN_CHART_DEPTHS = 34, 8, 3
"""Columns of a chart without its two bars, and the minimum cells and depths of a chart."""
BLANK_NOTE = "every block sampled is zero: never written to, or trimmed, it may have answered "
BLANK_NOTE += "without reading its medium"
MIN_DONE_FRACTION = 0.99  # minimum fraction of a replay's I/Os to be done in time without a note
SATURATED_FRACTION = 0.9
"""The fraction of busy CPU time at which a probe measures the CPUs instead of the drive."""


def format_shape(workload: Workload) -> str:
    """Return a short text for a workload: block size, order, mix, depth."""
    limit = "" if workload.rate is None else f"{workload.rate} a second, at most "
    return f"{format_load(workload)}, {limit}{workload.issued} in flight{format_jobs(workload)}"


def format_figures(figures: Figures) -> str:
    """Return the latencies of a run, and its I/Os per second for each CPU (D1-1)."""
    latencies = {"mean": figures.mean_us, "p50": figures.p50_us, "p99": figures.p99_us}
    parts = [f"{name} {units.format_latency(us)}" for name, us in latencies.items()]
    if (rate := figures.iops_per_cpu_percent) is not None:
        parts.append(f"{units.format_rate(100 * rate)} IOPS per CPU")
    return ", ".join(parts)


def format_jobs(workload: Workload) -> str:
    """Return the number of jobs as a suffix, or an empty text for one job."""
    return f" in {format_count(workload.jobs, 'job')}" if workload.jobs > 1 else ""


def format_load(workload: Workload) -> str:
    """Return a short text for a workload without its depth: block size, order, mix."""
    shape = f"{units.format_block_size(workload.block_size)} {units.format_pattern(workload)}"
    return f"{shape}{units.format_writer(workload)}"


def explain_missing_result(outcome: Skipped | Failed) -> str:
    """Return the reason why an outcome has no results."""
    words = find_message(outcome.reason)
    if isinstance(outcome, Skipped):
        if (load := outcome.load) is not None:
            share = units.format_percent(load.utilisation)
            words += f" ({share} utilised, {load.in_flight} in flight)"
        return f"{words} ({_make_plain(outcome.detail)})" if outcome.detail else words
    if outcome.errno is not None:
        words += f" ({os.strerror(outcome.errno)})"
    if outcome.status is not None:
        words += f" (status {outcome.status})"
    if outcome.process is not None:
        words += f" (process {outcome.process.pid})"
    return f"{words}: {_make_plain(outcome.text)}" if outcome.text else words


def describe_standings(
    standings: Mapping[str, tuple[ProbeResult, comparison.Standing]], profile: str
) -> Iterator[str]:
    """Yield a line each on the objective and the link of each target, if known."""
    for target, (_, standing) in standings.items():
        if standing.goal is not None:
            yield f"{target}: {_describe_goal(standing.goal, profile)}."
        for link in standing.links:
            yield f"{target}: {_describe_link(link)}."


def describe_knee(knee: Knee, standing: comparison.Standing | None = None) -> str:
    """Return the knee with its interval and the next depth's gain, and the document's (D0-12)."""
    if knee.past is None or knee.iops is None or knee.p99 is None:
        text = f"no knee up to depth {knee.depth}: more depth may still give more IOPS"
    else:
        iops, p99 = _format_difference(knee.iops), _format_difference(knee.p99)
        text = f"past depth {knee.depth}: {iops} IOPS for {p99} p99"
        if knee.low < knee.high:
            text += f" (it may be anywhere from {knee.low} to {knee.high})"
        if knee.doubt is not None:
            text += f"; no alert uses it: {find_message(knee.doubt)}"
    document = None if standing is None else standing.document
    if document is not None and document.knee is not None:
        low, high = document.knee
        text += f"; on such a medium it is at depth {low} to {high} ({document.source})"
    return text


def describe_jobs(advice: JobsAdvice) -> str:
    """Return the sufficient number of jobs and their depth, as text (D0-14)."""
    jobs, most = format_count(advice.jobs, "job"), format_count(advice.most, "job")
    depth = f"{advice.depth} deep" if advice.jobs == 1 else f"{advice.depth} deep each"
    name = "most-jobs" if advice.jobs == advice.most else "enough-jobs"
    return fill_message("probe", name, jobs=jobs, depth=depth, most=most)


def describe_mix(mix: comparison.MixCost) -> str:
    """Return the cost of a mix, compared with the document's values, as text."""
    low, high = (round(100 * bound) for bound in mix.document)
    effect = "cost" if mix.cost >= 0 else "gain"
    share = units.format_percent(abs(mix.cost))
    return fill_message("probe", "mix", mix=mix, effect=effect, share=share, low=low, high=high)


def show_curves(
    curves: Sequence[Sweep], standings: Mapping[str, tuple[ProbeResult, comparison.Standing]]
) -> None:
    """Print the knees of sweeps, their charts, the CPUs' limit and the tail latencies."""
    for curve in curves:
        if curve.knee is not None:
            standing = standings[curve.target][1] if curve.target in standings else None
            name = _name_curve(curve, curves)
            terminal.print_line(f"{name}: {describe_knee(curve.knee, standing)}.")
    for group in group_by_jobs(curves):
        if (advice := advise_jobs(group)) is not None:
            terminal.print_line(f"{group[0].name}: {describe_jobs(advice)}.")
    table = Table(load_columns("tails"))
    for curve in curves:
        for position, result in _select_tails(curve):
            figures = result.figures
            tails = (figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us)
            cells = [_name_curve(curve, curves), str(result.workload.issued), position]
            table.rows.append([*cells, *map(units.format_digits, tails)])
        name = _name_curve(curve, curves)
        for line in draw_curve(name, curve, terminal.get_width() or 0):
            terminal.print_line(line)
        for line in describe_cpu_limits(curve.results):
            terminal.print_line(f"{name}: {line}.")
    terminal.show_table(table)


def draw_curve(name: str, curve: Sweep, width: int) -> Iterator[str]:
    """Yield a chart of the IOPS and the p99 of each depth, with ``width`` columns."""
    cells = (width - _CHART_MARGIN) // 2
    if cells < _MIN_CHART_CELLS or len(curve.results) < _MIN_CHART_DEPTHS:
        return
    fastest = max(result.figures.iops for result in curve.results)
    slowest_us = max(result.figures.p99_us for result in curve.results)
    yield ""
    yield name
    yield f"{'DEPTH':>7} {'IOPS':>10} {'':{cells}}   {'P99 MS':>9}"
    for result in curve.results:
        figures, depth = result.figures, result.workload.issued
        iops = _draw_bar(figures.iops / fastest, cells)
        p99 = _draw_bar(figures.p99_us / slowest_us, cells)
        mark = "<" if curve.knee is not None and depth == curve.knee.depth else " "
        left = f"{depth:>7} {figures.iops:>10,.0f} {iops:<{cells}} {mark}"
        yield f"{left} {units.format_digits(figures.p99_us / 1000):>9} {p99}"
    yield ""


def _draw_bar(share: float, cells: int) -> str:
    """Return a bar over this share of the cells, in eighths of a cell if they can be shown."""
    eighths = round(8 * cells * share)
    if not terminal.can_show_symbols():
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _name_curve(curve: Sweep, curves: Sequence[Sweep]) -> str:
    if sum(candidate.name == curve.name for candidate in curves) == 1:
        return curve.name
    return f"{curve.name}, {format_load(curve.workload)}{format_jobs(curve.workload)}"


def describe_cpu_limits(results: Iterable[ProbeResult]) -> Iterator[str]:
    """Yield the depth, if any, at which the CPUs become the limit instead of the drive."""
    for result in results:
        if result.figures.busy is not None and result.figures.busy >= SATURATED_FRACTION:
            share = units.format_percent(result.figures.busy)
            depth = f"from depth {result.workload.issued} on the CPUs are the limit"
            yield f"{depth}: those involved are busy {share} of the time"
            return


def describe_cause(cause: TracedCause) -> str:
    """Describe the latest answer of `why` for a disk."""
    p99, gain = units.format_latency(cause.p99_us), units.format_percent(cause.gain)
    if cause.lever == "none":
        return f"`why` traced a p99 of {p99}: no setting helps ({cause.cause})"
    return f"`why` traced a p99 of {p99}: {cause.lever} can win at most {gain} of it"


def describe_stale(entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """Yield a line for each reason why results are stale, and for rules based on them."""
    newest = {entry.record.rule: entry for entry in entries}
    for entry in entries:
        for stale in entry.stale:
            target = entry.record.target
            device = "disk" if entry.record.together is None else "adapter"
            then, current = stale.then or "unknown", stale.now or "unknown"
            text = find_message(stale.what).format(device=device, then=then, current=current)
            yield f"{target}: {text}."
        rule = entry.record.rule
        if entry.stale and rule is not None and newest[rule] is entry:
            command = f"hbatune autotune {entry.record.target}"
            yield f"{rule} was measured then: `{command}` measures it again."


def describe_doubt(result: ProbeResult | TogetherResult | KeptTogether) -> str:
    """Return why a result is not trusted (D3-6), or an empty string."""
    if result.doubt is None:
        return ""
    disks = 1 if isinstance(result, ProbeResult) else len(result.targets)
    rate, iops = disks * (result.workload.rate or 0), units.format_digits(result.figures.iops)
    return find_message(result.doubt).format(iops=iops, rate=rate)


def describe_replay(result: ProbeResult) -> Iterator[str]:
    """Yield the differences between a replay and its trace."""
    part, figures = result.workload.trace, result.figures
    if part is None:
        return
    from hbatune.probe.trace_file import MAX_LOST_FRACTION  # most results are not replays

    if part.unwritten:
        yield fill_message("replay", "unwritten", share=units.format_percent(part.unwritten))
    if (done := figures.iops / part.rate) < MIN_DONE_FRACTION:
        yield fill_message("replay", "behind", share=units.format_percent(done))
    if figures.moved:
        yield fill_message("replay", "moved", ios=format_count(figures.moved, "I/O"))
    if part.lost > MAX_LOST_FRACTION:
        yield fill_message("replay", "lost", share=units.format_percent(part.lost))


def _make_plain(text: str) -> str:
    """Return text of unknown origin on one line, with control characters escaped."""
    return terminal.make_printable(" ".join(text.split()))


def _format_difference(share: float) -> str:
    return f"{units.format_percent(abs(share))} {'more' if share >= 0 else 'less'}"


def _describe_goal(goal: comparison.Goal, profile: str) -> str:
    spare = units.format_percent(abs(goal.spare))
    return (
        f"p99 is {units.format_digits(goal.measured_ms)} ms; {profile} requires at most "
        f"{goal.p99_ms:g} ms ({goal.source}): {find_message(goal.headroom).format(spare=spare)}"
    )


def make_document_cells(row: comparison.DocumentRow) -> list[str]:
    """Return the cells of a document's figure next to the measured one."""
    workload = row.result.workload
    name: str = load_texts("messages.toml")["figures"][row.figure]
    if row.depth is not None and row.depth != workload.issued:
        name += f" at depth {row.depth}"
    if row.raid is not None:
        pair = f"{row.raid.adapters} {row.raid.card.split()[0]}"
        name += f" of {pair}, RAID {row.raid.level} of {row.raid.drives} SSDs"
    low, high = _format_figure(row.figure, row.low), _format_figure(row.figure, row.high)
    cells = [row.result.target, units.format_short_workload(workload), name]
    cells += [low if low == high else f"{low} to {high}", _format_figure(row.figure, row.measured)]
    return [*cells, units.format_digits(row.ratio), row.source]


def _format_figure(figure: str, value: float) -> str:
    if figure == "bandwidth":
        return units.format_digits(value / 1e9)
    return units.format_rate(value) if figure == "iops" else units.format_latency(value)


def list_document_titles() -> dict[str, str]:
    """Return the title of each document, by its id."""
    return {source.document: source.title for source in installed_library().sources().values()}


def show_document_tables(results: Iterable[ProbeResult], machine: Machine) -> None:
    """Print one table for each document with figures for these disks and loads."""
    library, titles = installed_library(), list_document_titles()
    compared = comparison.compare_with_documents(results, machine, library.yardsticks())
    for document, rows in compared.items():
        terminal.print_heading(f"{document}: {titles[document]}")
        terminal.show_table(Table(load_columns("documents"), list(map(make_document_cells, rows))))


def describe_mixes(results: Sequence[ProbeResult]) -> Iterator[str]:
    """Yield the cost of a mix on each target, if it was measured and a document has a value."""
    yardsticks = installed_library().yardsticks()
    for target, target_results in group_items(results, attrgetter("target")).items():
        if (mix := comparison.compute_mix_cost(target_results, yardsticks)) is not None:
            yield f"{target}: {describe_mix(mix)}."


def _describe_link(link: comparison.LinkShare) -> str:
    measured, ceiling = units.format_digits(link.measured), units.format_digits(link.ceiling)
    text = f"{measured} GB/s, {units.format_percent(link.used)} of the {ceiling} GB/s that "
    text += f"the link of {link.adapter} carries"
    if link.document is not None:
        document = units.format_digits(link.document)
        text += f"; an adapter on such a link gave {document} ({link.source})"
    return text


def _select_tails(curve: Sweep) -> Iterator[tuple[str, ProbeResult]]:
    """Yield the results with shown tail latencies: the middle depth and the knee (D3-5)."""
    middle = curve.results[len(curve.results) // 2]
    knee_depth = None if curve.knee is None else curve.knee.depth
    knees = [result for result in curve.results if result.workload.issued == knee_depth]
    if middle in knees:
        yield "middle, and the knee", middle
        return
    yield "middle", middle
    for knee in knees:
        yield "the knee", knee


def describe_together(together: Together) -> Iterator[str]:
    """Yield a line for each run on the disks of an adapter, or the reason for no run."""
    for result in together.results:
        yield f"{result.adapter}: {_describe_figures(result)}: {describe_bottleneck(result)}."
        if result.doubt is not None:
            yield f"{result.adapter}: that is {describe_doubt(result)}."
    for failed in together.failed:
        yield f"{failed.target}: not probed together: {explain_missing_result(failed)}."
    if not together.results and not together.failed:
        reason = "no adapter has two of these disks with results, so none were probed together"
        yield f"Not probed together: {reason}."


def _describe_figures(result: TogetherResult) -> str:
    figures = result.figures
    alone = sum(single.figures.iops for single in result.alone)
    return (
        f"{format_count(len(result.targets), 'disk')} together do "
        f"{units.format_rate(figures.iops)} IOPS ({units.format_digits(figures.bandwidth / 1e9)} "
        f"GB/s), {units.format_percent(result.share)} of the {units.format_rate(alone)} that "
        f"they do one at a time ({units.format_short_workload(result.workload)} on each)"
    )


def describe_bottleneck(result: TogetherResult | KeptTogether) -> str:
    """Describe the bottleneck of an adapter's disks, with the measured value."""
    used = ceiling = ""
    if result.ceiling:
        used = units.format_percent(result.figures.bandwidth / 1e9 / result.ceiling)
        ceiling = units.format_digits(result.ceiling)
    busy = units.format_percent(result.busy)
    return find_message(result.bottleneck).format(used=used, ceiling=ceiling, busy=busy)


def list_csv_rows(entries: Iterable[HistoryEntry]) -> Iterator[list[terminal.Field]]:
    """Yield the runs of a history as CSV (D3-9), in the order of its entries."""
    for entry in entries:
        record = entry.record
        measured = record.result or record.together
        if measured is None:
            continue
        workload, figures = measured.workload, measured.figures
        served = measured.served
        if not isinstance(served, tuple):
            served = () if served is None else (served,)
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.time))
        row: list[terminal.Field] = [timestamp, record.target, record.id, record.command]
        row += [record.profile, record.kernel]
        row.append(" ".join(str(device.driver) for device in served))
        row.append(" ".join(str(device.firmware) for device in served))
        row += [workload.pattern, workload.block_size, workload.reads, workload.depth]
        row += [workload.jobs, workload.rate, workload.queue_depth]
        row += ["yes" if workload.writer else "no", figures.iops, figures.bandwidth]
        row += [figures.mean_us, figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us]
        row += [figures.cpu_us_per_io, figures.interrupt_us_per_io, figures.busy]
        row += [figures.concurrency, figures.written_beside]
        row.append(None if record.result is None else record.result.doubt)
        row.append(None if record.proof is None else record.proof.verdict.word)
        row.append(" ".join(reason.what for reason in entry.stale))
        yield row
