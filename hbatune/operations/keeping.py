"""What a command has measured goes into the history; where it cannot, that is said."""

import time
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import paths
from hbatune.cli.text.documents import ProbePair
from hbatune.cli.text.output import note
from hbatune.operations.situation import Situation
from hbatune.operations.verifying import Verified
from hbatune.plan.rows import Row
from hbatune.probe import history
from hbatune.probe.history import HistoryError, Record, ValueChange, record
from hbatune.probe.model import ProbeResult
from hbatune.probe.selection import with_written


class Done(Struct, frozen=True):
    """What came of an apply: the rows, and what was measured around it.

    ``saved`` is whether the journal could be brought up to date.
    """

    rows: tuple[Row, ...]
    probes: list[ProbePair] = []
    verified: Verified | None = None
    saved: bool = True

    @property
    def results(self) -> list[ProbeResult]:
        """What was measured last of each target, as it is now: not where something went back."""
        after = [pair.after for pair in self.probes]
        proofs = [] if self.verified is None else self.verified.proofs
        beyond = {proof.target for proof in proofs if proof.verdict.beyond}
        last = {proof.target: proof.last for proof in proofs if proof.target not in beyond}
        return [each for each in (*after, *last.values()) if isinstance(each, ProbeResult)]


def keep_results(situation: Situation, done: Done) -> None:
    """Put what an apply has measured into the history."""
    keep((*_probes(situation, done), *_proofs(situation, done)))


def keep(records: Iterable[Record]) -> None:
    """Put records into the history, or say why it does not take them: nothing else is lost."""
    try:
        gone = history.append(paths.HISTORY, records)
    except HistoryError as error:
        note(f"the results are not kept: {error.message}")
        return
    if gone:
        note(f"the history is full: its {gone} oldest results went")


def _probes(situation: Situation, done: Done) -> Iterator[Record]:
    machine, profile = situation.machine, situation.profile.name
    for pair in done.probes:
        if isinstance(pair.before, ProbeResult):
            yield record(machine, profile, "apply, before", pair.before, time.time())
        if isinstance(pair.after, ProbeResult):
            after = _as_written(pair.after, done.rows)
            yield record(machine, profile, "apply, after", after, time.time())


def _as_written(result: ProbeResult, rows: Sequence[Row]) -> ProbeResult:
    """Return a result taken after an apply with the values that this one has set."""
    return replace(result, settings=with_written(result.settings, rows))


def _proofs(situation: Situation, done: Done) -> Iterator[Record]:
    if done.verified is None:
        return
    machine, put_back = situation.machine, done.verified.reverted
    for proof in done.verified.proofs:
        rows = [row for row in done.rows if row.id == proof.id and row.setting in proof.settings]
        yield Record(
            time=time.time(),
            command="apply --verify",
            kernel=machine.kernel,
            boot_id=machine.boot_id,
            profile=situation.profile.name,
            target=proof.target,
            id=proof.id,
            result=None if proof.last is None else _as_written(proof.last, done.rows),
            proof=proof,
            settings=_sets(rows),
            reverted=tuple(row.setting for row in rows if (row.id, row.setting) in put_back),
        )


def _sets(rows: Sequence[Row]) -> tuple[ValueChange, ...]:
    return tuple(ValueChange(row.target, row.setting, row.current, row.value) for row in rows)
