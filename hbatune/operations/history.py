"""Puts measurements into the history; a failure to do so is a note, and loses nothing else."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from hbatune.operations.context import Context
from hbatune.operations.notes import HistoryFull, Task, TaskFailed
from hbatune.operations.situation import Situation
from hbatune.operations.verify import Verified
from hbatune.plan.rows import Row
from hbatune.probe import history
from hbatune.probe.history import HistoryError, Record, ValueChange, record
from hbatune.probe.model import ProbePair, ProbeResult
from hbatune.probe.selection import with_written


def keep(context: Context, records: Iterable[Record]) -> None:
    """Append records to the history; a history that cannot take them is a note."""
    try:
        gone = history.append(context.paths.history, records)
    except HistoryError as error:
        context.reporter.note(TaskFailed(Task.SAVE_HISTORY, error))
        return
    if gone:
        context.reporter.note(HistoryFull(gone))


def records_of_apply(
    context: Context,
    situation: Situation,
    rows: Sequence[Row],
    probes: Iterable[ProbePair],
    verified: Verified | None,
) -> Iterator[Record]:
    """Yield the measurements of an apply with these rows as records."""
    yield from _of_probes(context, situation, rows, probes)
    if verified is not None:
        yield from _of_proofs(context, situation, rows, verified)


def _of_probes(
    context: Context, situation: Situation, rows: Sequence[Row], probes: Iterable[ProbePair]
) -> Iterator[Record]:
    machine, profile = situation.machine, situation.profile.name
    for pair in probes:
        if isinstance(pair.before, ProbeResult):
            yield record(machine, profile, "apply, before", pair.before, context.clock())
        if isinstance(pair.after, ProbeResult):
            after = _as_written(pair.after, rows)
            yield record(machine, profile, "apply, after", after, context.clock())


def _as_written(result: ProbeResult, rows: Sequence[Row]) -> ProbeResult:
    """Return a result measured after an apply, with the values that the apply has set."""
    return replace(result, settings=with_written(result.settings, rows))


def _of_proofs(
    context: Context, situation: Situation, rows: Sequence[Row], verified: Verified
) -> Iterator[Record]:
    machine, put_back = situation.machine, verified.reverted
    for proof in verified.proofs:
        judged = [row for row in rows if row.id == proof.id and row.setting in proof.settings]
        yield Record(
            time=context.clock(),
            command="apply --verify",
            kernel=machine.kernel,
            boot_id=machine.boot_id,
            profile=situation.profile.name,
            target=proof.target,
            id=proof.id,
            result=None if proof.last is None else _as_written(proof.last, rows),
            proof=proof,
            settings=_sets(judged),
            reverted=tuple(row.setting for row in judged if (row.id, row.setting) in put_back),
        )


def _sets(rows: Sequence[Row]) -> tuple[ValueChange, ...]:
    return tuple(ValueChange(row.target, row.setting, row.current, row.value) for row in rows)
