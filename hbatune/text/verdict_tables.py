"""Text on verdicts: a table, the reasons for reverts, and the time for a decision."""

from __future__ import annotations

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
from hbatune.text.tables import EMPTY_CELL, Cell, Table, load_columns
from hbatune.text.terminal import print_heading, print_line, show_table
from hbatune.text.units import format_change, format_duration, format_percent

if TYPE_CHECKING:
    from hbatune.operations.verify import VerificationResult


METRIC_NAMES = {Metric.IOPS: "IOPS", Metric.MEAN: "mean", Metric.P99: "p99"}


def show_verdicts(verified: VerificationResult, profile: Profile) -> None:
    """Print changes that are worse in bursts only, the verdicts with notes, and the reverts."""
    load = f"the load of {profile.name}"
    if verified.watched is not None:
        load = f"the application's depth in {verified.watched}"
    for line in _describe_kept_bursts(verified, load):
        print_line(line)
    if verified.proofs:
        print_heading(f"Verdicts at {load}: with the change against without it")
        compared = (*verified.proofs, *verified.bursts)
        proofs = sorted(compared, key=lambda proof: natural_key(proof.target))
        show_table(Table(load_columns("verdicts"), list(map(_make_cells, proofs))))
        print_line("In brackets: the interval, with 99 % confidence for all three together.")
        if verified.bursts:
            print_line("Bursts decide nothing: theirs is the range of two pairs.")
        if not any(proof.last.workload.writes for proof in verified.proofs if proof.last):
            print_line("The probe only reads: it cannot see how writes queue.")
    for line in (*_yield_notes(verified), *_describe_regressions(verified, profile)):
        print_line(line)
    if verified.proofs or verified.unmeasured:
        print_line()


def _describe_kept_bursts(verified: VerificationResult, load: str) -> Iterator[str]:
    words = {proof.target: proof.verdict.word for proof in verified.proofs}
    for proof in verified.bursts:
        if proof.verdict.beyond:
            stays = f"{', '.join(proof.settings)} stays: {words[proof.target]} at {load}"
            yield f"{proof.target}: {stays}, worse in bursts."


def format_verdict(verdict: Verdict, *, thorough: bool = True) -> str:
    """Return a short text for a verdict with the intervals of the metrics that decide it.

    `cannot tell` also has the time that a decision needs, if so much is allowed.
    """
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
            why = _explain_regression(proof, str(first.value), profile)
            yield f"{targets}: {first.setting} {end}: {why}."


def _group_by_proof(
    rows: Sequence[Row], proofs: Mapping[Key, history.Proof]
) -> Iterator[tuple[Row, str, history.Proof]]:
    """Group rows by values and proof: yield the first row, all targets and the proof."""
    compared = [row for row in rows if row.key in proofs]
    keys = attrgetter("setting", "current", "value")
    groups = group_items(compared, lambda row: (*keys(row), id(proofs[row.key])))
    for group in groups.values():
        yield group[0], format_targets([row.target for row in group]), proofs[group[0].key]


def _explain_regression(proof: history.Proof, value: str, profile: Profile) -> str:
    costs = []
    for change in proof.verdict.changes:
        if change.beyond:
            tolerated = format_percent(change.metric.tolerated(profile.tolerance))
            metric = f"{METRIC_NAMES[change.metric]} {format_metric_change(change)}"
            costs.append(f"{metric}, beyond the {tolerated} that {profile.name} tolerates")
    with_ = f"with {value}" if len(proof.settings) == 1 else f"with {' and '.join(proof.settings)}"
    return f"{with_} {proof.target} has {' and '.join(costs)}"


def _make_cells(proof: history.Proof) -> list[Cell]:
    word = "no time" if proof.left_out else str(proof.verdict.word)
    changes = dict.fromkeys(METRIC_NAMES, EMPTY_CELL)
    for change in proof.verdict.changes:
        changes[change.metric] = format_metric_change(change)
    return [proof.target, format_compared_settings(proof), word, *changes.values()]


def format_compared_settings(proof: history.Proof) -> str:
    """Return a short text for the compared settings."""
    if proof.group:
        return f"{proof.group} alone"
    suffix = " again" if proof.again else ""
    if proof.verdict.design is Design.BURSTS and proof.last is not None:
        suffix = f" in bursts of {proof.last.workload.issued}"
    return f"{', '.join(proof.settings)}{suffix}"


def explain_unexercised(hidden: workloads.Unexercised) -> str:
    """Explain why a probe does not exercise a setting."""
    prefix = "" if hidden.why is workloads.Hidden.PARTLY else "not exercised: "
    reason = find_message(hidden.why).format(reach=hidden.reach, needed=hidden.needed)
    return f"{hidden.setting}: {prefix}{reason}"


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
    if proof.last is not None and proof.last.blank:
        yield probe_tables.BLANK_NOTE
    yield from map(explain_unexercised, proof.unexercised)
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
