"""Whether what an apply has set helps: runs with and without it in turns, and back with what costs.

Each representative is judged by all that was set on it. What regressed beyond the profile's
tolerance is looked at once more, one group of settings at a time, to put back no more than what
is to blame; where no group is to blame alone, all of them go.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Protocol

from msgspec import Struct, field

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Side
from hbatune.facts.model import Endpoint
from hbatune.plan.rows import Row
from hbatune.policy.model import Tolerance
from hbatune.probe.model import Doubt, Figures, ProbeOutcome, ProbeResult, Subject
from hbatune.probe.verdict import PAIRS, Verdict, judge_blocks, judge_pairs
from hbatune.settings.table import group_of

LOST = 2
"""Pairs that may fail before a comparison is given up."""


class Representative(Struct, frozen=True):
    """A representative, what was set on it and its adapters, and the same on all it stands for."""

    subject: Subject
    own: tuple[Row, ...]
    all: tuple[Row, ...]


class Proof(Struct, frozen=True):
    """What came of comparing a representative with and without some settings.

    ``group`` is the group of settings that was looked at alone, None for all of them together.
    ``settings`` are those. ``last`` is the newest result with the change. ``outcome`` is the probe
    and ``written`` the write that ended the comparison early, where one did; ``left_out`` says
    that there was no time for it. ``doubted`` runs broke Little's law: those with more in flight
    than was issued are not in the verdict, those with less are.
    """

    target: str
    id: str
    group: str | None
    settings: tuple[str, ...]
    verdict: Verdict
    last: ProbeResult | None = None
    outcome: ProbeOutcome | None = None
    written: WriteResult | None = None
    left_out: bool = False
    doubted: int = 0


class Switching(Protocol):
    """What switches settings: a trial of ``act``."""

    def switch(self, keys: Collection[Key], side: Side) -> Mapping[Key, WriteResult]:
        """Bring the settings to one side; return the results of those that would not go."""

    def revert(self, keys: Collection[Key]) -> Mapping[Key, WriteResult]:
        """Put the settings back for good; return the results of those that would not go."""


class Proving(Struct):
    """The means of a proof: how to probe, the time there is in seconds, and when to stop.

    ``pair`` is about how long a pair of runs takes, at first a guess and then as it was measured.
    ``advance`` is called before each run. The time runs from the first comparison on, and is over
    at ``due``.
    """

    measure: Callable[[Subject], ProbeOutcome]
    tolerance: Tolerance
    limit: float
    pair: float
    stop: Callable[[], bool] = lambda: False
    advance: Callable[[str], None] = lambda target: None
    random: Random = field(default_factory=Random)
    clock: Callable[[], float] = time.monotonic
    pairs: int = PAIRS
    due: float | None = None

    def prove(self, trial: Switching, part: Representative) -> tuple[list[Proof], list[Row]]:
        """Judge one representative; return its proofs, and the rows to put back."""
        whole = self.compare(trial, part, part.own, None)
        if not whole.verdict.beyond:
            return [whole], []
        groups = _groups(part.own)
        if len(groups) == 1:
            return [whole], list(part.all)
        single = [self.compare(trial, part, rows, name) for name, rows in groups.items()]
        guilty = {proof.group for proof in single if proof.verdict.beyond} or set(groups)
        return [whole, *single], [row for row in part.all if group_of(row.setting) in guilty]

    def compare(
        self, trial: Switching, part: Representative, rows: Sequence[Row], group: str | None
    ) -> Proof:
        """Compare a representative with and without these rows, in an order drawn by lot."""
        keys = {(row.id, row.setting) for row in rows}
        runs = _Runs(self, trial, part.subject, keys)
        began = self.clock()
        self.due = began + self.limit if self.due is None else self.due
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
        """Return runs of one setting after each other, and what ended them early."""
        found: list[Figures] = []
        outcome: ProbeOutcome | None = None
        while len(found) < self.pairs and not self.stop():
            self.advance(subject.target)
            outcome = self.measure(subject)
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
        """Return the proof of two blocks, of what cannot be switched back and forth."""
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
    """The runs of one comparison. Mutable: what ended them, and the newest with the change."""

    def __init__(
        self, means: Proving, trial: Switching, subject: Subject, keys: Collection[Key]
    ) -> None:
        self._means, self._trial, self._subject, self._keys = means, trial, subject, keys
        self.last: ProbeResult | None = None
        self.outcome: ProbeOutcome | None = None
        self.written: WriteResult | None = None
        self.doubted = 0

    def pairs(self, count: int) -> Iterator[tuple[Figures, Figures]]:
        """Yield so many pairs, before and after, or fewer where the comparison has to end."""
        lost = made = 0
        while made < count and lost <= LOST and not self._means.stop():
            found = self._pair()
            if found is not None:
                made += 1
                self.outcome = None
                yield found
            elif self.written is not None:
                return
            else:
                lost += 1

    def end(self) -> None:
        """Leave the settings as they were applied."""
        stayed = self._trial.switch(self._keys, Side.AFTER)
        self.written = self.written or next(iter(stayed.values()), None)

    def _pair(self) -> tuple[Figures, Figures] | None:
        found: dict[Side, Figures] = {}
        for side in self._means.random.sample(list(Side), len(Side)):
            stayed = self._trial.switch(self._keys, side)
            if stayed:
                self.written = next(iter(stayed.values()))
                return None
            self._means.advance(self._subject.target)
            outcome = self._means.measure(self._subject)
            if not isinstance(outcome, ProbeResult):
                self.outcome = outcome
                return None
            self.doubted += outcome.doubt is not None
            if outcome.doubt is Doubt.TOO_MANY:
                return None
            found[side] = outcome.figures
            if side is Side.AFTER:
                self.last = outcome
        return found[Side.BEFORE], found[Side.AFTER]


def make_representatives(
    subjects: Sequence[Subject], endpoints: Sequence[Endpoint], rows: Sequence[Row]
) -> list[Representative]:
    """Return what each representative is to be judged by; those that nothing was set on are not.

    A representative stands for the endpoints of its adapters, medium and model.
    """
    found = []
    for subject in subjects:
        one = (subject.endpoint, *subject.paths)
        serving = {adapter.target for adapter in subject.adapters}
        alike = {each.id for each in endpoints if any(_alike(each, other) for other in one)}
        known = {each.id for each in endpoints}
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
