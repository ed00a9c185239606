"""Measure whether an apply helps, and revert regressions.

Runs with and without the settings alternate. Each representative is first compared with all its
settings together. If the result regressed beyond the profile's tolerance, each group of settings is
compared separately, and only the group that caused it is reverted. If no single group caused it,
all of them are compared again. Regressions that this does not confirm are not reverted. If the time
is too short for each group, the groups that it leaves out are not reverted either.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from random import Random

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.act import chain, executor
from hbatune.act.trial import Side, Trial
from hbatune.facts.model import Endpoint
from hbatune.plan.rows import Row
from hbatune.policy.profile import Tolerance
from hbatune.probe.history import Proof
from hbatune.probe.result import (
    Doubt,
    Figures,
    Prepare,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
)
from hbatune.probe.verdict import DEFAULT_PAIRS, MIN_PAIRS, Verdict, evaluate_blocks, evaluate_pairs
from hbatune.probe.workloads import Hidden, Unexercised, find_unexercised
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
    called before every switch. ``advance`` is called after each pair, and ``confirming`` with the
    target, the seconds and the number of comparisons before a regression is confirmed. ``judge``
    makes the verdict of the pairs. The time starts with the first comparison and ends at ``due``.

    A run measures ``runtime`` seconds, at least ``shortest``. It takes ``overhead`` more, to check
    the disk, switch its settings and start fio. The first comparison of a representative takes
    ``first`` seconds, and all that confirm it ``second`` at most.
    """

    measure: Callable[[Subject, float, Prepare], ProbeOutcome]
    tolerance: Tolerance
    limit: float
    runtime: float
    overhead: float = 0.0
    shortest: float = 0.0
    idle: Callable[[Subject], Skipped | None] = lambda subject: None
    stop: Callable[[], bool] = lambda: False
    advance: Callable[[str], None] = lambda target: None
    confirming: Callable[[str, float, int], None] = lambda target, seconds, count: None
    judge: Callable[[Sequence[tuple[Figures, Figures]], Tolerance, float], Verdict] = evaluate_pairs
    random: Random = field(default_factory=Random)
    clock: Callable[[], float] = time.monotonic
    pairs: int = DEFAULT_PAIRS
    first: float = math.inf
    second: float = math.inf
    due: float | None = None

    def prove(self, trial: Trial, part: Representative) -> tuple[list[Proof], list[Row]]:
        """Compare one representative; return its proofs, and the rows that regressed twice."""
        began = self.clock()
        combined = self.compare(trial, part, part.own, None, self.first)
        if not combined.verdict.beyond:
            return [combined], []
        once, end = self.clock() - began, self.due or math.inf
        free = min(end - self.clock(), max(once, self.second))
        groups = _group_rows(part.own, combined.unexercised)
        count = len(groups) + 1  # all groups together again, if no single group is worse
        while count > 1 and count * 2 * self.fewest * (self.overhead + self.least) > free:
            count -= 1
        each = min(once, free / count)
        self.confirming(part.subject.target, each * count, count)
        single: list[Proof] = []
        for name, rows in groups.items():
            late = len(single) >= count
            single.append(self.compare(trial, part, rows, name, each, left_out=late))
        guilty = {proof.group for proof in single if proof.verdict.beyond}
        if guilty or any(proof.left_out for proof in single):
            to_revert = [row for row in part.all if find_group(row.setting) in guilty]
            return [combined, *single], to_revert
        # If only the combination regresses, no group caused it: keeping any would be a guess.
        second = self.compare(trial, part, part.own, None, each, left_out=len(single) >= count)
        second = replace(second, again=True)
        return [combined, *single, second], list(part.all) if second.verdict.beyond else []

    def warm_up(self, subject: Subject) -> ProbeOutcome:
        """Do the run that is not counted. It loads the blocks that all runs read into caches."""
        return self.measure(subject, self.runtime, partial(self.idle, subject))

    @property
    def least(self) -> float:
        """The minimum seconds that a run measures; more on a slow machine, which is noisy."""
        return max(self.shortest, self.overhead / 4)

    @property
    def fewest(self) -> int:
        """The minimum number of pairs: all, unless the time of a confirmation is limited."""
        return self.pairs if self.second == math.inf else min(self.pairs, MIN_PAIRS)

    def compare(
        self,
        trial: Trial,
        part: Representative,
        rows: Sequence[Row],
        group: str | None,
        seconds: float = math.inf,
        *,
        left_out: bool = False,
    ) -> Proof:
        """Compare a representative with and without these rows, in random order.

        The runs are fitted into the seconds. The comparison is left out if the time is up.
        """
        runs = _Runs(self, trial, part, {row.key for row in rows})
        began = self.clock()
        self.due = began + self.limit if self.due is None else self.due
        # A comparison that cannot finish in time proves nothing and would only load the disk.
        left_out |= 2 * self.fewest * (self.overhead + self.least) > self.due - began
        pairs = [] if left_out else list(runs.pairs(self.pairs, began + seconds))
        runs.end()
        pair = (self.clock() - began) / max(1, len(pairs))
        return Proof(
            target=part.subject.target,
            id=part.subject.endpoint.id,
            group=group,
            settings=_list_settings(rows),
            verdict=self.judge(pairs, self.tolerance, pair),
            last=runs.last,
            unexercised=find_unexercised(rows, runs.last.workload) if runs.last else (),
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
            outcome = self.measure(subject, self.runtime, partial(self.idle, subject))
            if not isinstance(outcome, ProbeResult):
                return runs, outcome
            runs.append(outcome.figures)
            self.advance(subject.target)
        return runs, outcome

    def judge_blocks(
        self,
        part: Representative,
        before: Sequence[Figures],
        after: Sequence[Figures],
        last: ProbeOutcome | None,
    ) -> Proof:
        """Return the proof from two blocks of runs, for settings that cannot be switched."""
        verdict = evaluate_blocks(before, after, self.tolerance, 2 * (self.runtime + self.overhead))
        settings = _list_settings(part.own)
        proof = Proof(part.subject.target, part.subject.endpoint.id, None, settings, verdict)
        if isinstance(last, ProbeResult):
            return replace(proof, last=last, unexercised=find_unexercised(part.own, last.workload))
        return replace(proof, outcome=last)


def _group_rows(rows: Iterable[Row], unexercised: Iterable[Unexercised]) -> dict[str, list[Row]]:
    """Return the rows by group, exercised groups first; nothing if there is a single group."""
    hidden = {item.setting for item in unexercised if item.why is not Hidden.PARTLY}
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.setting in hidden):
        groups.setdefault(find_group(row.setting), []).append(row)
    return groups if len(groups) > 1 else {}


def _list_settings(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.setting for row in rows))


class _Runs:
    """The runs of one comparison. Mutable: stores the latest result and why it ended early."""

    def __init__(
        self, means: Proving, trial: Trial, part: Representative, keys: Collection[executor.Key]
    ) -> None:
        self._means, self._trial, self._subject, self._keys = means, trial, part.subject, keys
        self._requests = _find_fewest_requests(part)
        self.last: ProbeResult | None = None
        self.outcome: ProbeOutcome | None = None
        self.written: chain.WriteResult | None = None
        self.doubted = 0

    def pairs(self, count: int, end: float) -> Iterator[tuple[Figures, Figures]]:
        """Yield ``count`` pairs, before and after, or the fewest if the time is short."""
        lost = completed = 0
        means = self._means
        while completed < count and lost <= MAX_LOST_PAIRS and not means.stop():
            began = means.clock()
            if completed >= means.fewest and began + 2 * (means.overhead + means.least) > end:
                return
            if end < math.inf:
                share = (end - began) / (count - completed) / 2
                means.runtime = max(means.least, share - means.overhead)
            pair = self._measure_pair()
            if pair is not None:
                means.overhead = max(0.0, (means.clock() - began) / 2 - means.runtime)
                # This pair replaces an earlier one that failed, which did not end the comparison.
                completed += 1
                self.outcome = None
                means.advance(self._subject.target)
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
            prepare = partial(self._switch, side)
            outcome = self._means.measure(self._subject, self._means.runtime, prepare)
            if not isinstance(outcome, ProbeResult):
                self.outcome = outcome if self.written is None else None
                return None
            # Without a free request, fio waits to submit, and unsubmitted I/Os are not in flight.
            held_back = outcome.doubt is Doubt.TOO_FEW and outcome.workload.depth > self._requests
            # A replay that falls behind shows the effect of a setting.
            self.doubted += outcome.doubt not in (None, Doubt.RATE) and not held_back
            # Impossible figures must not reach a verdict; a depth not reached is still a result.
            if outcome.doubt is Doubt.TOO_MANY:
                return None
            figures[side] = outcome.figures
            if side is Side.AFTER:
                self.last = outcome
        return figures[Side.BEFORE], figures[Side.AFTER]

    def _switch(self, side: Side) -> Skipped | None:
        """Switch the settings unless other I/O uses the disk; return why they were not switched."""
        if (busy := self._means.idle(self._subject)) is not None:
            return busy
        failures = self._trial.switch(self._keys, side)
        self.written = next(iter(failures.values()), None)
        return Skipped(self._subject.target, Skip.UNSWITCHABLE) if failures else None


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
    get_group = attrgetter("adapter", "medium", "model")
    representatives = []
    for subject in subjects:
        member_ids = {member.id for member in subject.members}
        groups = set(map(get_group, subject.members))
        serving = {adapter.target for adapter in subject.adapters}
        peers = {endpoint.id for endpoint in endpoints if get_group(endpoint) in groups}
        group_ids = member_ids | peers
        member_rows = [row for row in rows if row.id in member_ids]
        group_rows = [row for row in rows if row.id in group_ids]
        others = [row for row in rows if row.id not in endpoint_ids]
        adapter_rows = [row for row in others if row.adapter in serving]
        if member_rows or adapter_rows:
            representatives.append(
                Representative(subject, (*member_rows, *adapter_rows), (*group_rows, *adapter_rows))
            )
    return representatives
