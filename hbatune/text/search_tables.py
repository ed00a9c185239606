"""Text on searches for the best settings: a table of answers, and their results."""

import os
from collections.abc import Callable, Iterator

from hbatune.facts.names import natural_key
from hbatune.operations.autotune import AutotuneResult
from hbatune.plan.rows import Outcome
from hbatune.probe.result import ProbeResult
from hbatune.search import tournament
from hbatune.search.depth import DepthAnswer, DepthConclusion, FigureRange
from hbatune.settings.table import QUEUE_DEPTH
from hbatune.shipped import fill_message, find_message
from hbatune.text import probe_tables, terminal, units
from hbatune.text.basic_output import format_count
from hbatune.text.tables import EMPTY_CELL, Table, load_columns

_ANSWERS = {"best": "better", "as good as": "as good as the current value"}
"""Texts for conclusions of a depth search or a tournament. The others are shown as they are."""


def show_autotuned(done: AutotuneResult) -> None:
    """Print the answers, the reservations about them, and the written rules."""
    table = Table(load_columns("searches"))
    disks = sorted(done.disks, key=lambda disk: natural_key(disk.target))
    for disk in disks:
        table.rows += _yield_rows(disk, done.situation.profile.name)
    terminal.show_table(table)
    for disk in disks:
        for line in _yield_remarks(disk):
            terminal.print_line(f"{disk.target}: {line}.")
    for line in _describe_outcome(done):
        terminal.print_line(line)


def _yield_rows(disk: tournament.DiskSearchResult, profile: str) -> Iterator[list[str]]:
    if disk.depth is not None and disk.depth.answer is not None:
        yield [disk.target, *_make_depth_cells(disk, disk.depth, disk.depth.answer, profile)]
    for search in filter(None, (disk.settings, disk.schedulers)):
        yield [disk.target, *_make_settings_cells(search)]
    for unjudged in disk.not_judged:
        names = ", ".join(unjudged.settings)
        detail = unjudged.detail
        if unjudged.outcome is not None:
            detail = probe_tables.explain_missing_result(unjudged.outcome)
        settings = " and ".join(unjudged.settings)
        reason = find_message(unjudged.reason).format(settings=settings, detail=detail)
        yield [disk.target, names, EMPTY_CELL, EMPTY_CELL, "not judged", reason]


def _make_depth_cells(
    disk: tournament.DiskSearchResult,
    search: tournament.FoundDepth,
    answer: DepthAnswer,
    profile: str,
) -> list[str]:
    better = answer.word is DepthConclusion.BEST
    best = str(answer.depth) if better else EMPTY_CELL
    cells = [QUEUE_DEPTH, str(search.current), best, _ANSWERS.get(answer.word, str(answer.word))]
    goal = disk.objective_us
    within = "" if goal is None else f"; {profile} requires at most {units.format_latency(goal)}"
    figures = (
        f"{_format_range(answer.iops, units.format_rate)} IOPS at a p99 of "
        f"{_format_range(answer.p99_us, units.format_latency)}{within}"
    )
    probes = format_count(answer.probes, "probe")
    sure = f"{units.format_percent(answer.chance)} sure after {probes}"
    if search.compared is not None and search.compared.ratio is not None:
        sure += f", and {units.format_change(search.compared.ratio)} in pairs with {search.current}"
    if answer.word is DepthConclusion.OUT_OF_REACH:
        why = f"even {answer.depth} in flight is too slow: {figures}; {sure}"
    elif answer.word is DepthConclusion.CANNOT_TELL:
        why = f"the likeliest is {answer.depth}, and only {sure}"
    elif better:
        why = f"{figures}; {sure}"
    else:
        why = f"the most is {figures}; {sure}"
    return [*cells, why]


def _make_settings_cells(search: tournament.FoundSettings) -> list[str]:
    answer = search.answer
    better = answer.word is tournament.TournamentConclusion.BEST
    values = search.candidates[answer.leader].values
    # For a better candidate, show only the settings that it changes.
    shown_names = [name for name in search.in_force if name in values or not better]
    before = ", ".join(str(search.in_force[name]) for name in shown_names)
    best = ", ".join(str(values[name]) for name in shown_names) if better else EMPTY_CELL
    writer_text = " with a bulk writer" if search.interference else ""
    probes = format_count(answer.probes, "probe")
    tried = f"{len(search.candidates)} candidates{writer_text}, {search.depth} deep, {probes}"
    change = _describe_change(search)
    if change is None:
        why = f"nothing else is better: {tried}"
    else:
        named_values = ", ".join(f"{name} {value}" for name, value in values.items())
        leader = "" if better else f"{named_values} has "
        why = f"{leader}{change}; {tried}"
    return [", ".join(shown_names), before, best, _ANSWERS.get(answer.word, str(answer.word)), why]


def _describe_change(search: tournament.FoundSettings) -> str | None:
    """Return the effect of the leading candidate, or None if no candidate was compared."""
    answer = search.answer
    if answer.ratio is None or answer.low is None or answer.high is None:
        return None
    if not search.interference:
        change, low, high = map(units.format_change, (answer.ratio, answer.low, answer.high))
        return f"{change} IOPS ({low} to {high})"
    # The score is 1/p99, so its highest ratio is the lowest p99.
    p99s = (1 / answer.ratio, 1 / answer.high, 1 / answer.low)
    change, low, high = map(units.format_change, p99s)
    leader, current = (units.format_digits(search.written[n] / 1e6) for n in (answer.leader, 0))
    facts = {"leader": leader, "current": current}
    return fill_message("search", "interference", change=change, low=low, high=high, **facts)


def _yield_remarks(disk: tournament.DiskSearchResult) -> Iterator[str]:
    if disk.outcome is not None:
        prefix = "not searched" if disk.result is None else "the search ended"
        yield f"{prefix}: {probe_tables.explain_missing_result(disk.outcome)}"
    if disk.ended is not None:
        yield find_message(disk.ended)
    for setting in disk.not_restored:
        name = "changed" if setting.outcome is Outcome.CONFLICT else "unrestored"
        why = "" if setting.errno is None else f": {os.strerror(setting.errno)}"
        yield fill_message("search", name, setting=setting, why=why, target=disk.target)
    if disk.doubtful is not None:
        yield _explain_doubt(disk.doubtful)
    if disk.blank:
        yield probe_tables.BLANK_NOTE
    if disk.alike:
        yield f"it stands for {', '.join(disk.alike)}, of its model behind the same adapter"


def _explain_doubt(probe: ProbeResult) -> str:
    figures = probe.figures
    if not figures.iops:
        return f"no I/O of the last one came back in {units.format_digits(figures.runtime)} s"
    in_flight = units.format_digits(figures.concurrency)
    return fill_message("search", "doubt", in_flight=in_flight, issued=probe.workload.issued)


def _describe_outcome(done: AutotuneResult) -> Iterator[str]:
    better = any(disk.better for disk in done.disks)
    lost = any(disk.not_restored for disk in done.disks)
    unchanged = "all other settings are unchanged." if lost else "all settings are unchanged."
    rules, profile = done.rules, done.situation.profile.name
    if rules is None:
        yield f"{unchanged.capitalize()}{fill_message('search', 'hint') if better else ''}"
        return
    for rules_file in rules.written:
        settings = ", ".join(rules_file.settings)
        yield f"{rules_file.file} has the rules for disks like {rules_file.target}: {settings}."
    if rules.differing:
        yield fill_message("search", "differing", disks=", ".join(rules.differing))
    if rules.written:
        yield fill_message("search", "written", profile=profile, unchanged=unchanged)
    elif rules.saved:
        yield f"No rule is written: nothing was better. {unchanged.capitalize()}"


def _format_range(interval: FigureRange, text: Callable[[float], str]) -> str:
    return f"{text(interval.value)} ({text(interval.low)} to {text(interval.high)})"
