"""Text on verdicts: a table, the reasons for reverts, and the time a decision would need."""

import os
from collections.abc import Iterator

from hbatune.act.chain import WriteResult
from hbatune.cli.text.output import heading, say, show_table
from hbatune.cli.text.probes import READS_ONLY, why_not
from hbatune.cli.text.rows import targets_text
from hbatune.cli.text.table import NOTHING, Cell, Table, figure, identity, state, value
from hbatune.cli.text.units import duration, percent_change, quantity
from hbatune.facts.names import natural_key
from hbatune.operations.verify import Verified
from hbatune.plan.rows import Outcome, Row
from hbatune.policy.model import Profile
from hbatune.probe.model import ProbeResult
from hbatune.probe.prove import Proof
from hbatune.probe.verdict import Design, Metric, MetricChange, Verdict, Word

METRICS = {Metric.IOPS: "IOPS", Metric.MEAN: "mean", Metric.P99: "p99"}
_COLUMNS = (
    identity("TARGET"),
    value("WHAT"),
    state("VERDICT"),
    *(figure(metric) for metric in METRICS.values()),
)


def show_verdicts(found: Verified, profile: Profile) -> None:
    """Print the verdicts with notes, and the settings that were reverted with the reason."""
    if found.proofs:
        heading("Verdicts: with the change against without it")
        proofs = sorted(found.proofs, key=lambda proof: natural_key(proof.target))
        show_table(Table(_COLUMNS, [_cells(proof) for proof in proofs]))
        say("In brackets: the interval, with 99 % confidence for all three together.")
        say(READS_ONLY)
    for line in (*_notes(found), *reverts(found, profile)):
        say(line)
    if found.proofs or found.skipped:
        say()


def verdict_line(verdict: Verdict) -> str:
    """Return a verdict in a few words; `cannot tell` with the time that a decision would need."""
    if verdict.more_seconds is None:
        return str(verdict.word)
    runs, time = verdict.runs + (verdict.more_runs or 0), duration(verdict.more_seconds)
    return f"{verdict.word}: with this much noise it takes {time} more (verify_pairs = {runs})"


def change_text(change: MetricChange) -> str:
    """Return a change with its interval, in percent."""
    low, high = percent_change(change.low), percent_change(change.high)
    return f"{percent_change(change.ratio)} ({low} to {high})"


def reverts(found: Verified, profile: Profile) -> Iterator[str]:
    """Yield a line for each setting reverted: targets, value and reason."""
    groups: dict[tuple[str, object, object, int], tuple[Proof, list[Row]]] = {}
    for row in found.rows:
        proof = found.reverted.get((row.id, row.setting))
        if proof is not None and row.outcome is Outcome.REVERTED:
            key = (row.setting, row.current, row.value, id(proof))
            groups.setdefault(key, (proof, []))[1].append(row)
    for (setting, before, tried, _), (proof, rows) in groups.items():
        targets = targets_text([row.target for row in rows])
        yield f"{targets}: {setting} is back at {before}: {_why(proof, str(tried), profile)}."


def _why(proof: Proof, value: str, profile: Profile) -> str:
    beyond = [change for change in proof.verdict.changes if change.beyond]
    costs = " and ".join(
        f"{METRICS[change.metric]} {change_text(change)}, beyond the "
        f"{change.metric.tolerated(profile.tolerance):.0%} that {profile.name} tolerates"
        for change in beyond
    )
    with_ = f"with {value}" if len(proof.settings) == 1 else f"with {' and '.join(proof.settings)}"
    return f"{with_} {proof.target} has {costs}"


def _cells(proof: Proof) -> list[Cell]:
    by_metric = {change.metric: change_text(change) for change in proof.verdict.changes}
    return [
        proof.target,
        f"{proof.group} alone" if proof.group else proof.settings,
        "no time" if proof.left_out else str(proof.verdict.word),
        *(by_metric.get(metric, NOTHING) for metric in METRICS),
    ]


def _notes(found: Verified) -> Iterator[str]:
    for skipped in found.skipped:
        yield f"{skipped.target}: not compared: {why_not(skipped)}."
    if found.left_out:
        targets = ", ".join(found.left_out)
        yield f"{targets}: not compared: no time, see verify_limit in [probe] of hbatune.toml."
    for proof in found.proofs:
        yield from (f"{proof.target}: {text}." for text in _proof_notes(proof))


def _proof_notes(proof: Proof) -> Iterator[str]:
    verdict = proof.verdict
    ended = f"the comparison ended after {quantity(verdict.runs, 'pair')}"
    if proof.left_out:
        yield "not compared further: the time is up"
        return
    if proof.outcome is not None and not isinstance(proof.outcome, ProbeResult):
        yield f"{ended}: {why_not(proof.outcome)}"
    if proof.doubted:
        doubted = quantity(proof.doubted, "run")
        yield f"{doubted} broke Little's law (D3-6): fio or the CPUs were measured, too"
    if proof.written is not None:
        yield f"{ended}: {_unswitched(proof.written)}"
    if verdict.word is Word.CANNOT_TELL and verdict.more_seconds is not None:
        yield verdict_line(verdict)
    if verdict.design is Design.BLOCKS:
        yield (
            "cannot be switched back and forth, so that all runs before stand against all after: "
            "only a change larger than the drift in between can be seen"
        )


def _unswitched(written: WriteResult) -> str:
    why = os.strerror(written.errno) if written.errno else str(written.outcome)
    return f"{written.setting} could not be switched ({why})"
