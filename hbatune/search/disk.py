"""What a search on one disk has found: the best depth, the best settings, what was not judged."""

from enum import StrEnum

from msgspec import Struct

from hbatune.loader import Count, Figure
from hbatune.plan.rows import Outcome
from hbatune.probe.history import ValueChange
from hbatune.probe.kept import (
    CandidateTried,
    DepthTried,
    Searched,
    SearchedDepth,
    SearchedSettings,
)
from hbatune.probe.model import Failed, ProbeResult, Skipped
from hbatune.search.candidates import Candidate
from hbatune.search.curve import Measurement
from hbatune.search.depth import DepthAnswer
from hbatune.search.tournament import Score, TournamentAnswer
from hbatune.settings.setting import Value


class Unjudged(StrEnum):
    """Why settings of a disk were not judged."""

    FIXED = "fixed"  # it cannot be set; detail: why
    NO_CHOICE = "no choice"  # nothing else can be set
    NEEDS_WRITES = "needs writes"  # a lone reader says nothing about it
    NOT_WRITABLE = "not writable"  # outcome: why nothing may be written to the disk
    ENDED = "ended"  # the search of the disk ended before


class NotJudged(Struct, frozen=True):
    """Settings that were not judged, and why."""

    settings: tuple[str, ...]
    reason: Unjudged
    detail: str | None = None
    outcome: Skipped | None = None


class End(StrEnum):
    """Why a search ended early, besides a probe without figures."""

    STOPPED = "stopped"
    NO_TIME = "no time"
    UNTRUSTED = "untrusted"  # a probe broke Little's law, or did no I/O
    NOT_SET = "not set"  # a value was not taken
    STUCK = "stuck"  # a write to a setting did not return
    CONFLICT = "conflict"  # others changed a setting during the search


class NotRestored(Struct, frozen=True):
    """A setting that does not have its value from ``before`` the search, and the value found.

    It is a conflict if others have changed it: it then has their value.
    """

    setting: str
    before: Value | None
    outcome: Outcome
    errno: int | None = None
    found: Value | None = None


class FoundDepth(Struct, frozen=True):
    """A depth search: the depth in force, the deepest to try, all probes, and the answer.

    ``current`` is what the disk takes: with fewer requests than its own depth, their number. There
    is no answer where the search ended early. ``compared`` is a tournament of the depth in force
    and the one that was found, which a depth that is not likely enough to be better had to win.
    """

    current: Count
    deepest: Count
    measured: tuple[Measurement, ...]
    answer: DepthAnswer | None = None
    compared: TournamentAnswer | None = None


class FoundSettings(Struct, frozen=True):
    """A tournament of candidates at a depth; number 0 is what is ``in_force``.

    With ``interference`` the scores are those of a reader's p99 beside a bulk writer, and
    ``written`` are the bytes/s of the writer with each candidate.
    """

    candidates: tuple[Candidate, ...]
    depth: Count
    scores: tuple[Score, ...]
    answer: TournamentAnswer
    in_force: dict[str, Value] = {}
    interference: bool = False
    written: tuple[Figure, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that the candidates are about."""
        return tuple(dict.fromkeys(name for each in self.candidates for name in each.values))


class DiskSearchResult(Struct):
    """The search on one disk; it grows as the search goes on. ``alike`` are those it stands for.

    ``objective_us`` is the p99 that the profile wants at most. ``better`` are the values that are
    better than those in force, and ``result`` is the probe nearest to them. ``ended`` and
    ``outcome`` say why it ended early, if it did, and ``doubtful`` is the probe that was not
    trusted then; ``blank`` is that of the first probe.
    """

    target: str
    id: str
    objective_us: Figure | None = None
    alike: tuple[str, ...] = ()
    depth: FoundDepth | None = None
    settings: FoundSettings | None = None
    schedulers: FoundSettings | None = None
    not_judged: list[NotJudged] = []
    better: list[ValueChange] = []
    result: ProbeResult | None = None
    ended: End | None = None
    outcome: Skipped | Failed | None = None
    doubtful: ProbeResult | None = None
    blank: bool | None = None
    not_restored: tuple[NotRestored, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the search came to its end, with every value restored."""
        return self.ended is None and self.outcome is None and not self.not_restored

    @property
    def counts(self) -> bool:
        """Whether its answers count: also where the time was up, but not after trouble."""
        timed_out = self.ended is End.NO_TIME and bool(self.better)
        return (self.whole or timed_out) and not self.not_restored


def searched(found: DiskSearchResult) -> Searched:
    """Return what is kept of a search in the history."""
    tournaments = (found.settings, found.schedulers)
    return Searched(
        objective_us=found.objective_us,
        depth=None if found.depth is None else _searched_depth(found.depth),
        settings=tuple(_searched_settings(each) for each in tournaments if each is not None),
    )


def _searched_depth(found: FoundDepth) -> SearchedDepth | None:
    if found.answer is None:
        return None
    probes = tuple(DepthTried(each.depth, each.iops, each.p99_us) for each in found.measured)
    answer = found.answer
    return SearchedDepth(found.current, probes, answer.word, answer.depth, answer.chance)


def _searched_settings(found: FoundSettings) -> SearchedSettings:
    candidates = []
    for number, candidate in enumerate(found.candidates):
        scores = (each.score for each in found.scores if each.candidate == number)
        # Beside a writer a score is one over the p99 in seconds, so that more is better.
        kept = tuple(1e6 / score if found.interference else score for score in scores)
        written = found.written[number] if found.written else None
        candidates.append(CandidateTried(candidate.values, kept, written))
    answer = found.answer
    return SearchedSettings(
        *(tuple(candidates), found.in_force, found.depth, found.interference),
        *(answer.word, answer.leader),
    )
