"""Proves that an apply helps: runs with and without its settings in turns, and reverts losses.

Each representative is judged with all its settings together, after one run that is not counted: it
brings the blocks that all runs read into whatever caches them. What regressed beyond the profile's
tolerance is compared a second time, one group of settings at a time, so that only the group to
blame is reverted; where no single group is to blame, all of them together once more. What the
second comparison does not confirm stays.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Side
from hbatune.facts.model import Endpoint
from hbatune.plan.rows import Row
from hbatune.policy.profile import Tolerance
from hbatune.probe.history import Proof
from hbatune.probe.result import Doubt, Figures, ProbeOutcome, ProbeResult, Skipped, Subject
from hbatune.probe.verdict import PAIRS, judge_blocks, judge_pairs
from hbatune.settings.table import group_of

LOST = 2
"""Pairs that may fail before a comparison is given up: one failure may be a passing load."""


class Representative(Struct, frozen=True):
    """A subject with the rows written to it and its adapters, and to all endpoints alike."""

    subject: Subject
    own: tuple[Row, ...]
    all: tuple[Row, ...]


class Switching(Protocol):
    """The interface by which settings are switched: a trial of ``act``."""

    def switch(self, keys: Collection[Key], side: Side) -> Mapping[Key, WriteResult]:
        """Bring the settings to one side; return the results of the writes that failed."""

    def revert(self, keys: Collection[Key]) -> Mapping[Key, WriteResult]:
        """Put the settings back for good; return the results of the writes that failed."""


class Proving(Struct):
    """The means of a proof: the probe, the time limit in seconds, and the question when to stop.

    ``idle`` returns why a subject must not be switched now, None where nobody else uses it: it is
    asked before every switch. ``pair`` is the time that a pair of runs takes, first estimated and
    then measured. ``advance`` is called before each run. The time runs from the first comparison
    on, and ends at ``due``.
    """

    measure: Callable[[Subject], ProbeOutcome]
    tolerance: Tolerance
    limit: float
    pair: float
    idle: Callable[[Subject], Skipped | None] = lambda subject: None
    stop: Callable[[], bool] = lambda: False
    advance: Callable[[str], None] = lambda target: None
    random: Random = field(default_factory=Random)
    clock: Callable[[], float] = time.monotonic
    pairs: int = PAIRS
    due: float | None = None

    def prove(self, trial: Switching, part: Representative) -> tuple[list[Proof], list[Row]]:
        """Judge one representative; return its proofs, and the rows that were worse twice."""
        whole = self.compare(trial, part, part.own, None)
        if not whole.verdict.beyond:
            return [whole], []
        groups = _groups(part.own)
        single = (
            [self.compare(trial, part, rows, name) for name, rows in groups.items()]
            if len(groups) > 1
            else []
        )
        guilty = {proof.group for proof in single if proof.verdict.beyond}
        if guilty:
            back = [row for row in part.all if group_of(row.setting) in guilty]
            return [whole, *single], back
        # Where only the combination costs, no group is to blame: keeping any would be a guess.
        second = replace(self.compare(trial, part, part.own, None), again=True)
        return [whole, *single, second], list(part.all) if second.verdict.beyond else []

    def warm_up(self, subject: Subject) -> ProbeOutcome:
        """Do the run that is not counted, and return its outcome."""
        return self.idle(subject) or self.measure(subject)

    def compare(
        self, trial: Switching, part: Representative, rows: Sequence[Row], group: str | None
    ) -> Proof:
        """Compare a representative with and without these rows, in random order."""
        keys = {(row.id, row.setting) for row in rows}
        runs = _Runs(self, trial, part, keys)
        began = self.clock()
        self.due = began + self.limit if self.due is None else self.due
        # A comparison that cannot be finished in time proves nothing and would only load the disk.
        left_out = self.pairs * self.pair > self.due - began
        pairs = [] if left_out else list(runs.pairs(self.pairs))
        runs.end()
        if pairs:
            self.pair = (self.clock() - began) / len(pairs)
        return Proof(
            target=part.subject.target,
            id=part.subject.endpoint.id,
            group=group,
            settings=tuple(dict.fromkeys(row.setting for row in rows)),
            verdict=judge_pairs(pairs, self.tolerance, self.pair),
            last=runs.last,
            outcome=runs.outcome,
            written=runs.written,
            left_out=left_out,
            doubted=runs.doubted,
        )

    def block(self, subject: Subject) -> tuple[list[Figures], ProbeOutcome | None]:
        """Return consecutive runs without a switch in between, and the last outcome."""
        found: list[Figures] = []
        outcome: ProbeOutcome | None = None
        while len(found) < self.pairs and not self.stop():
            self.advance(subject.target)
            outcome = self.idle(subject) or self.measure(subject)
            if not isinstance(outcome, ProbeResult):
                return found, outcome
            found.append(outcome.figures)
        return found, outcome

    def judge_blocks(
        self,
        part: Representative,
        before: Sequence[Figures],
        after: Sequence[Figures],
        last: ProbeOutcome | None,
    ) -> Proof:
        """Return the proof from two blocks of runs, for settings that cannot be switched."""
        return Proof(
            target=part.subject.target,
            id=part.subject.endpoint.id,
            group=None,
            settings=tuple(dict.fromkeys(row.setting for row in part.own)),
            verdict=judge_blocks(before, after, self.tolerance, self.pair),
            last=last if isinstance(last, ProbeResult) else None,
            outcome=None if isinstance(last, ProbeResult) else last,
        )


class _Runs:
    """The runs of one comparison. Mutable: it keeps the newest result and the reason for an end."""

    def __init__(
        self, means: Proving, trial: Switching, part: Representative, keys: Collection[Key]
    ) -> None:
        self._means, self._trial, self._subject, self._keys = means, trial, part.subject, keys
        self._requests = _fewest_requests(part)
        self.last: ProbeResult | None = None
        self.outcome: ProbeOutcome | None = None
        self.written: WriteResult | None = None
        self.doubted = 0

    def pairs(self, count: int) -> Iterator[tuple[Figures, Figures]]:
        """Yield ``count`` pairs, before and after, or fewer if the comparison has to end."""
        lost = made = 0
        while made < count and lost <= LOST and not self._means.stop():
            found = self._pair()
            if found is not None:
                # An earlier pair that failed has been made up for: it did not end the comparison.
                made += 1
                self.outcome = None
                yield found
            elif self.written is not None:
                # A setting that cannot be switched makes all further pairs meaningless.
                return
            else:
                lost += 1

    def end(self) -> None:
        """Bring the settings back to the applied side."""
        # Also where the comparison failed: an apply must not end with its settings half taken back.
        stayed = self._trial.switch(self._keys, Side.AFTER)
        self.written = self.written or next(iter(stayed.values()), None)

    def _pair(self) -> tuple[Figures, Figures] | None:
        found: dict[Side, Figures] = {}
        # The randomisation test holds only if the order within each pair is random.
        for side in self._means.random.sample(list(Side), len(Side)):
            busy = self._means.idle(self._subject)
            if busy is not None:
                self.outcome = busy
                return None
            stayed = self._trial.switch(self._keys, side)
            if stayed:
                self.written = next(iter(stayed.values()))
                return None
            self._means.advance(self._subject.target)
            outcome = self._means.measure(self._subject)
            if not isinstance(outcome, ProbeResult):
                self.outcome = outcome
                return None
            self.doubted += self._doubtful(outcome)
            # Impossible figures must not reach a verdict; a depth not reached is still a result.
            if outcome.doubt is Doubt.TOO_MANY:
                return None
            found[side] = outcome.figures
            if side is Side.AFTER:
                self.last = outcome
        return found[Side.BEFORE], found[Side.AFTER]

    def _doubtful(self, outcome: ProbeResult) -> bool:
        # With no request free, fio waits to submit, and what it has not submitted is not in flight.
        held_back = outcome.doubt is Doubt.TOO_FEW and outcome.workload.depth > self._requests
        return outcome.doubt is not None and not held_back


def _fewest_requests(part: Representative) -> float:
    """Return the lowest nr_requests that a representative has on either side."""
    rows = [row for row in part.own if row.setting == "nr_requests"]
    found = [
        *(value for row in rows for value in (row.current, row.value)),
        *(setting.value for setting in part.subject.settings if setting.setting == "nr_requests"),
    ]
    return min((value for value in found if isinstance(value, int)), default=math.inf)


def make_representatives(
    subjects: Sequence[Subject], endpoints: Sequence[Endpoint], rows: Sequence[Row]
) -> list[Representative]:
    """Return the representatives with their rows, without those on which no row was set.

    A representative represents all endpoints with its adapter, medium and model.
    """
    found = []
    for subject in subjects:
        one = (subject.endpoint, *subject.paths)
        serving = {adapter.target for adapter in subject.adapters}
        alike = {
            endpoint.id for endpoint in endpoints if any(_alike(endpoint, other) for other in one)
        }
        known = {endpoint.id for endpoint in endpoints}
        own_ids = {each.id for each in one}
        of_adapter = [row for row in rows if row.id not in known and row.adapter in serving]
        own = [row for row in rows if row.id in own_ids]
        stands_for = [row for row in rows if row.id in alike | own_ids]
        if own or of_adapter:
            found.append(Representative(subject, (*own, *of_adapter), (*stands_for, *of_adapter)))
    return found


def _alike(one: Endpoint, other: Endpoint) -> bool:
    return (one.adapter, one.medium, one.model) == (other.adapter, other.medium, other.model)


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(group_of(row.setting), []).append(row)
    return found
