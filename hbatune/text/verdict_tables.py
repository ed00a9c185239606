"""Text on verdicts: sentences, bars, the reasons for reverts, and the time for a decision."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from hbatune.act.executor import Key
from hbatune.facts.names import group_items, natural_key
from hbatune.plan.rows import Outcome, Row
from hbatune.policy.profile import Profile
from hbatune.probe import history, workloads
from hbatune.probe.result import Failed, ProbeResult, Skip, Skipped
from hbatune.probe.verdict import Conclusion, Design, Metric, MetricChange, Verdict
from hbatune.shipped import fill_message, find_message
from hbatune.text import probe_tables
from hbatune.text.basic_output import format_count
from hbatune.text.plan_tables import format_targets
from hbatune.text.tables import Table, make_columns
from hbatune.text.terminal import can_show_symbols, format_mark, print_line, show_table
from hbatune.text.units import format_change, format_duration, format_latency, format_percent

if TYPE_CHECKING:
    from hbatune.operations.verify import VerificationResult


METRIC_NAMES = {Metric.IOPS: "IOPS", Metric.MEAN: "mean", Metric.P99: "p99"}
DECIDED = Conclusion.IMPROVED, Conclusion.REGRESSED
MARKS = dict(zip(Conclusion, ("good", "good", "bad", "off"), strict=True))
# The maximum ratio of a scale, with the titles of its ends.
_SCALES = {1.25: ("-20 %", "+25 %"), 2.0: ("half", "double"), 8.0: ("1/8", "8 times")}
_MIDDLE = 15  # of a bar of 31 cells: no change
_ASCII = str.maketrans("░│├─┤●", ".|[-]o")


def show_verdicts(verified: VerificationResult, profile: Profile) -> None:
    """Print the verdicts with their notes, and the reverts."""
    load = f"the load of {profile.name}"
    if verified.watched is not None:
        load = f"the application's depth in {verified.watched}"
    if verified.trace is not None:
        load = f"the load of the trace in {verified.trace}"
    if verified.proofs:
        print_line(f"Verdicts at {load}: with the change against without it", hang=2, style="bold")
        agreed = {proof.target for proof in verified.proofs if proof.again and proof.verdict.beyond}
        proofs = [proof for proof in (*verified.proofs, *verified.bursts) if not proof.again]
        proofs.sort(key=lambda proof: natural_key(proof.target))
        for proof in sorted(proofs, key=lambda proof: list(MARKS).index(proof.verdict.word)):
            print_line(_describe_proof(proof, proof.target in agreed), hang=2)
            _show_bars(proof.verdict, profile)
        print_line(f"Right is better, and the shaded range is what {profile.name} tolerates.")
        print_line("Each limit of an interval is 99 % sure.")
        if verified.bursts:
            print_line("Bursts decide nothing: a change stays. Theirs is the range of two pairs.")
        if not any(proof.last.workload.writes for proof in verified.proofs if proof.last):
            print_line("The probe only reads: it cannot see how writes queue.")
    for line in (*_yield_notes(verified), *_describe_regressions(verified, profile)):
        print_line(line)
    if verified.proofs or verified.unmeasured:
        print_line()


def _describe_proof(proof: history.Proof, is_confirmed: bool) -> str:
    """Return the answer for a disk: `sdh: worse with queue_depth: 83 % fewer IOPS, p99 ...`."""
    verdict = proof.verdict
    word = "no time to compare it" if proof.left_out else find_message(verdict.word)
    mark, settings = format_mark(MARKS[verdict.word]), format_compared_settings(proof)
    text = f"{mark} {proof.target}: {word} with {settings}"
    if verdict.word in DECIDED:
        changes = {change.metric: change for change in verdict.changes}
        gain, p99 = changes[Metric.IOPS].ratio - 1, changes[Metric.P99]
        text += f": {format_percent(abs(gain))} {'more' if gain > 0 else 'fewer'} IOPS, p99 "
        text += f"{format_latency(p99.before)} → {format_latency(p99.after)}"
    return f"{text}{'; a second comparison agrees' if is_confirmed and verdict.beyond else ''}."


def _show_bars(verdict: Verdict, profile: Profile) -> None:
    """Draw the interval of each metric if it improved or regressed, else of IOPS only."""
    changes = verdict.changes if verdict.word in DECIDED else verdict.changes[:1]
    ends = [abs(math.log(end)) for change in changes for end in (change.low, change.high)]
    limit = next((limit for limit in _SCALES if max(ends, default=0) <= math.log(limit)), 8.0)
    worse, better = _SCALES[limit]
    table = Table(make_columns(f"id | value {worse:<14}same{better:>13} | number | value"))
    for change in changes:
        bar = _draw_interval(change, change.metric.tolerated(profile.tolerance), limit)
        interval = f"{format_change(change.low)} to {format_change(change.high)}"
        cells = (f"  {METRIC_NAMES[change.metric]}", bar, format_change(change.ratio), interval)
        table.rows.append(cells)
    show_table(table)


def _draw_interval(change: MetricChange, tolerated: float, limit: float) -> str:
    """Draw a change on a scale from the worst to the best ratio, and the tolerated range."""
    scale, last = change.metric.sign * _MIDDLE / math.log(limit), 2 * _MIDDLE
    places = [_MIDDLE + scale * math.log(end) for end in (change.low, change.ratio, change.high)]
    low, place, high = sorted(map(round, places))
    cells = [" "] * (last + 1)
    for cell in range(last + 1):
        if low < cell < high:
            cells[cell] = "─"
        elif abs(cell - _MIDDLE) <= round(abs(scale) * math.log1p(tolerated)):
            cells[cell] = "░"
    for cell, symbol in ((_MIDDLE, "│"), (low, "├"), (high, "┤"), (place, "●")):
        cells[min(max(cell, 0), last)] = symbol if 0 <= cell <= last else "<>"[cell > 0]
    return "".join(cells) if can_show_symbols() else "".join(cells).translate(_ASCII)


def format_verdict(verdict: Verdict, *, thorough: bool = True) -> str:
    """Return a verdict with the intervals that decide it, or the time that a decision needs."""
    if not verdict.runs:
        return f"{verdict.word}: nothing was compared"
    parts = []
    for change in verdict.changes:
        if change.word is verdict.word:
            low, high = format_change(change.low), format_change(change.high)
            parts.append(f"{METRIC_NAMES[change.metric]} between {low} and {high}")
    text = f"{verdict.word}: {', '.join(parts)}" if parts else str(verdict.word)
    if verdict.more_seconds is None:
        return text
    runs, time = verdict.runs + (verdict.more_runs or 0), format_duration(verdict.more_seconds)
    how = f"verify_pairs = {runs}" if thorough else f"--verify, verify_pairs = {runs}"
    return f"{text}: with this much noise it takes {time} more ({how})"


def format_metric_change(change: MetricChange) -> str:
    """Return a change with its interval, in percent."""
    low, high = format_change(change.low), format_change(change.high)
    return f"{format_change(change.ratio)} ({low} to {high})"


def _describe_regressions(verified: VerificationResult, profile: Profile) -> Iterator[str]:
    """Yield a line for each reverted setting, then for each that was kept on request."""
    back = [row for row in verified.rows if row.outcome is Outcome.REVERTED]
    for rows, proofs in ((back, verified.reverted), (verified.rows, verified.worse)):
        for first, targets, proof in _group_by_proof(rows, proofs):
            end = f"stays at {first.value}, as asked"
            if first.outcome is Outcome.REVERTED:
                end = f"is back at {first.current}"
            why = f"{proof.target} is worse than {profile.name} tolerates"
            yield f"{targets}: {first.setting} {end}: {why}."


def _group_by_proof(
    rows: Sequence[Row], proofs: Mapping[Key, history.Proof]
) -> Iterator[tuple[Row, str, history.Proof]]:
    """Group rows by values and proof: yield the first row, all targets and the proof."""
    compared = [row for row in rows if row.key in proofs]
    keys = attrgetter("setting", "current", "value")
    for group in group_items(compared, lambda row: (*keys(row), id(proofs[row.key]))).values():
        yield group[0], format_targets([row.target for row in group]), proofs[group[0].key]


def format_compared_settings(proof: history.Proof) -> str:
    """Return a short text for the compared settings."""
    if proof.group:
        return f"{proof.group} alone"
    suffix = " again" if proof.again else ""
    if proof.verdict.design is Design.BURSTS:
        suffix = f" in bursts of {proof.last.workload.issued}" if proof.last else " in bursts"
    return f"{', '.join(proof.settings)}{suffix}"


def describe_unmeasured(endpoint: Skipped | Failed, *, thorough: bool) -> str:
    """Return a line with the reason why an apply does not measure an endpoint."""
    remedy = f"; `hbatune apply --verify {endpoint.target}` has more"
    if thorough:
        remedy = ", see verify_limit in [probe] of hbatune.toml"
    see = remedy if endpoint.reason is Skip.NO_TIME else ""
    return f"{endpoint.target}: not measured: {probe_tables.explain_missing_result(endpoint)}{see}."


def _yield_notes(verified: VerificationResult) -> Iterator[str]:
    for endpoint in verified.unmeasured:
        yield describe_unmeasured(endpoint, thorough=verified.thorough)
    for target, proofs in group_items(verified.proofs, attrgetter("target")).items():
        texts: list[str] = []
        for proof in proofs:
            texts += _yield_proof_notes(proof, verified)
        is_confirmed = any(proof.verdict.beyond for proof in proofs[1:])
        if proofs[0].verdict.beyond and len(proofs) > 1 and not is_confirmed:
            again = f"`hbatune apply --verify {target}` compares longer"
            texts.append(f"no second comparison confirms that it is worse, so it stays; {again}")
        for text in dict.fromkeys(texts):
            yield f"{target}: {text}."


def _yield_proof_notes(proof: history.Proof, verified: VerificationResult) -> Iterator[str]:
    verdict = proof.verdict
    if proof.last is not None and proof.group is None and not proof.again:
        shape = probe_tables.format_shape(proof.last.workload)
        yield f"measured with {shape}: {probe_tables.format_figures(proof.last.figures)}"
        yield from probe_tables.describe_replay(proof.last)
    if proof.last is not None and proof.last.blank:
        yield probe_tables.BLANK_NOTE
    for hidden in proof.unexercised:
        prefix = "" if hidden.why is workloads.Hidden.PARTLY else "not exercised: "
        reason = find_message(hidden.why).format(reach=hidden.reach, needed=hidden.needed)
        yield f"{hidden.setting}: {prefix}{reason}"
    ended = f"the comparison ended after {format_count(verdict.runs, 'pair')}"
    if proof.left_out:
        yield f"{', '.join(proof.settings)}: cannot tell, as the time was too short to compare it"
        return
    if proof.outcome is not None and not isinstance(proof.outcome, ProbeResult):
        yield f"{ended}: {probe_tables.explain_missing_result(proof.outcome)}"
    if proof.doubted:
        doubted = format_count(proof.doubted, "run")
        yield f"{doubted} broke Little's law (D3-6): fio or the CPUs were measured, too"
    if proof.written is not None:
        written = proof.written
        why = written.said or (os.strerror(written.errno) if written.errno else written.outcome)
        yield f"{ended}: {written.setting} could not be switched ({why})"
    if not verdict.runs:
        yield f"no verdict: repeat the command with --verify, or `hbatune rollback {proof.target}`"
    elif verdict.word is Conclusion.CANNOT_TELL:
        yield format_verdict(verdict, thorough=verified.thorough)
    if verdict.design is Design.BLOCKS:
        yield fill_message("verdict", "blocks")
