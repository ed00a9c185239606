"""Measure whether an apply helps, and revert regressions.

Runs with and without the settings alternate. Each representative is first compared with all its
settings together. If the result regressed beyond the profile's tolerance, each group of settings is
compared separately, and only the group that caused it is reverted. If no single group caused it,
all of them are compared again. Regressions that this does not confirm are not reverted.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Side, Trial
from hbatune.facts.model import Endpoint
from hbatune.plan.rows import Row
from hbatune.policy.profile import Tolerance
from hbatune.probe.history import Proof
from hbatune.probe.result import Doubt, Figures, ProbeOutcome, ProbeResult, Skipped, Subject
from hbatune.probe.verdict import DEFAULT_PAIRS, Verdict, evaluate_blocks, evaluate_pairs
from hbatune.settings.table import find_group

MAX_LOST_PAIRS = 2
"""Pairs that may fail before a comparison is stopped: one failure may be a passing load."""


class Representative(Struct, frozen=True):
    """A subject with the rows written to it and its adapters, and to all endpoints of its group."""

    subject: Subject
    own: tuple[Row, ...]
    all: tuple[Row, ...]


class Proving(Struct):
    """The means of a proof: the probe, the time limit in seconds, and the check when to stop.

    ``idle`` returns why a subject must not be switched now, or None if nothing else uses it; it is
    called before every switch. ``pair`` is the duration of a pair of runs, first estimated and then
    measured. ``advance`` is called before each run, and ``confirming`` with the target and the
    seconds before a regression is confirmed. ``judge`` makes the verdict of the pairs. The time
    starts with the first comparison and ends at ``due``.
    """

    measure: Callable[[Subject], ProbeOutcome]
    tolerance: Tolerance
    limit: float
    pair: float
    idle: Callable[[Subject], Skipped | None] = lambda subject: None
    stop: Callable[[], bool] = lambda: False
    advance: Callable[[str], None] = lambda target: None
    confirming: Callable[[str, float], None] = lambda target, seconds: None
    judge: Callable[[Sequence[tuple[Figures, Figures]], Tolerance, float], Verdict] = evaluate_pairs
    random: Random = field(default_factory=Random)
    clock: Callable[[], float] = time.monotonic
    pairs: int = DEFAULT_PAIRS
    due: float | None = None

    def prove(self, trial: Trial, part: Representative) -> tuple[list[Proof], list[Row]]:
        """Compare one representative; return its proofs, and the rows that regressed twice."""
        combined = self.compare(trial, part, part.own, None)
        if not combined.verdict.beyond:
            return [combined], []
        groups: dict[str, list[Row]] = {}
        for row in part.own:
            groups.setdefault(find_group(row.setting), []).append(row)
        once, free = self.pairs * self.pair, (self.due or math.inf) - self.clock()
        # Without the time for all groups, all settings are compared again.
        if len(groups) == 1 or (len(groups) + 1) * once > free:
            groups = {}
        self.confirming(part.subject.target, max(1, len(groups)) * once)
        single = []
        guilty = set()
        for name, rows in groups.items():
            proof = self.compare(trial, part, rows, name)
            single.append(proof)
            if proof.verdict.beyond:
                guilty.add(name)
        if guilty:
            to_revert = [row for row in part.all if find_group(row.setting) in guilty]
            return [combined, *single], to_revert
        # If only the combination regresses, no group caused it: keeping any would be a guess.
        second = replace(self.compare(trial, part, part.own, None), again=True)
        return [combined, *single, second], list(part.all) if second.verdict.beyond else []

    def warm_up(self, subject: Subject) -> ProbeOutcome:
        """Do the run that is not counted. It loads the blocks that all runs read into caches."""
        return self.idle(subject) or self.measure(subject)

    def compare(
        self, trial: Trial, part: Representative, rows: Sequence[Row], group: str | None
    ) -> Proof:
        """Compare a representative with and without these rows, in random order."""
        keys = {row.key for row in rows}
        runs = _Runs(self, trial, part, keys)
        began = self.clock()
        self.due = began + self.limit if self.due is None else self.due
        # A comparison that cannot finish in time proves nothing and would only load the disk.
        left_out = self.pairs * self.pair > self.due - began
        pairs = [] if left_out else list(runs.pairs(self.pairs))
        runs.end()
        if pairs:
            self.pair = (self.clock() - began) / len(pairs)
        return Proof(
            target=part.subject.target,
            id=part.subject.endpoint.id,
            group=group,
            settings=_list_settings(rows),
            verdict=self.judge(pairs, self.tolerance, self.pair),
            last=runs.last,
            outcome=runs.outcome,
            written=runs.written,
            left_out=left_out,
            doubted=runs.doubted,
        )

    def block(self, subject: Subject) -> tuple[list[Figures], ProbeOutcome | None]:
        """Return consecutive runs without a switch in between, and the last outcome."""
        runs: list[Figures] = []
        outcome: ProbeOutcome | None = None
        while len(runs) < self.pairs and not self.stop():
            self.advance(subject.target)
            outcome = self.idle(subject) or self.measure(subject)
            if not isinstance(outcome, ProbeResult):
                return runs, outcome
            runs.append(outcome.figures)
        return runs, outcome

    def judge_blocks(
        self,
        part: Representative,
        before: Sequence[Figures],
        after: Sequence[Figures],
        last: ProbeOutcome | None,
    ) -> Proof:
        """Return the proof from two blocks of runs, for settings that cannot be switched."""
        verdict = evaluate_blocks(before, after, self.tolerance, self.pair)
        settings = _list_settings(part.own)
        proof = Proof(part.subject.target, part.subject.endpoint.id, None, settings, verdict)
        if isinstance(last, ProbeResult):
            return replace(proof, last=last)
        return replace(proof, outcome=last)


def _list_settings(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.setting for row in rows))


class _Runs:
    """The runs of one comparison. Mutable: stores the latest result and why it ended early."""

    def __init__(
        self, means: Proving, trial: Trial, part: Representative, keys: Collection[Key]
    ) -> None:
        self._means, self._trial, self._subject, self._keys = means, trial, part.subject, keys
        self._requests = _find_fewest_requests(part)
        self.last: ProbeResult | None = None
        self.outcome: ProbeOutcome | None = None
        self.written: WriteResult | None = None
        self.doubted = 0

    def pairs(self, count: int) -> Iterator[tuple[Figures, Figures]]:
        """Yield ``count`` pairs, before and after, or fewer if the comparison has to end."""
        lost = completed = 0
        while completed < count and lost <= MAX_LOST_PAIRS and not self._means.stop():
            pair = self._measure_pair()
            if pair is not None:
                # This pair replaces an earlier one that failed, which did not end the comparison.
                completed += 1
                self.outcome = None
                yield pair
            elif self.written is not None:
                # A setting that cannot be switched makes all further pairs meaningless.
                return
            else:
                lost += 1

    def end(self) -> None:
        """Switch the settings to the applied side."""
        # Also after a failed comparison: an apply must not end with its settings partly restored.
        failures = self._trial.switch(self._keys, Side.AFTER)
        self.written = self.written or next(iter(failures.values()), None)

    def _measure_pair(self) -> tuple[Figures, Figures] | None:
        figures: dict[Side, Figures] = {}
        # The randomisation test holds only if the order within each pair is random.
        for side in self._means.random.sample(list(Side), len(Side)):
            busy = self._means.idle(self._subject)
            if busy is not None:
                self.outcome = busy
                return None
            failures = self._trial.switch(self._keys, side)
            if failures:
                self.written = next(iter(failures.values()))
                return None
            self._means.advance(self._subject.target)
            outcome = self._means.measure(self._subject)
            if not isinstance(outcome, ProbeResult):
                self.outcome = outcome
                return None
            self.doubted += self._is_doubtful(outcome)
            # Impossible figures must not reach a verdict; a depth not reached is still a result.
            if outcome.doubt is Doubt.TOO_MANY:
                return None
            figures[side] = outcome.figures
            if side is Side.AFTER:
                self.last = outcome
        return figures[Side.BEFORE], figures[Side.AFTER]

    def _is_doubtful(self, outcome: ProbeResult) -> bool:
        # Without a free request, fio waits to submit, and unsubmitted I/Os are not in flight.
        held_back = outcome.doubt is Doubt.TOO_FEW and outcome.workload.depth > self._requests
        return outcome.doubt is not None and not held_back


def _find_fewest_requests(part: Representative) -> float:
    """Return the lowest nr_requests of a representative on either side."""
    values: list[object] = []
    for row in part.own:
        if row.setting == "nr_requests":
            values += [row.current, row.value]
    for entry in part.subject.settings:
        if entry.setting == "nr_requests":
            values.append(entry.value)
    return min((value for value in values if isinstance(value, int)), default=math.inf)


def make_representatives(
    subjects: Sequence[Subject], endpoints: Sequence[Endpoint], rows: Sequence[Row]
) -> list[Representative]:
    """Return the representatives with their rows, except those without any row set."""
    endpoint_ids = {endpoint.id for endpoint in endpoints}
    representatives = []
    for subject in subjects:
        members = subject.members
        member_ids = {member.id for member in members}
        groups = {(member.adapter, member.medium, member.model) for member in members}
        serving = {adapter.target for adapter in subject.adapters}
        group_ids = set(member_ids)
        for endpoint in endpoints:
            if (endpoint.adapter, endpoint.medium, endpoint.model) in groups:
                group_ids.add(endpoint.id)
        member_rows, group_rows, adapter_rows = [], [], []
        for row in rows:
            if row.id in member_ids:
                member_rows.append(row)
            if row.id in group_ids:
                group_rows.append(row)
            if row.id not in endpoint_ids and row.adapter in serving:
                adapter_rows.append(row)
        if member_rows or adapter_rows:
            representatives.append(
                Representative(subject, (*member_rows, *adapter_rows), (*group_rows, *adapter_rows))
            )
    return representatives
