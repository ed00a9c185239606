"""Find the best candidate settings of a disk, and the result of a search on one disk.

The candidates of a tournament: what could be set on a disk instead of what is in force. Pure.

Which candidates are worth probes hangs on what a probe can see. Reads that pass the page cache by
see where a request completes and whether it is merged; they see neither read-ahead nor writeback,
and a scheduler only beside other work, which is a tournament of its own.

A tournament of candidate settings: which is the best, and is it better than what is in force.

Pure. Every round probes all candidates that are left, in an order drawn by lot, so that a drift, a
cache that warms up or a neighbour falls on all alike; only probes of one round are compared. After
the rounds of ``HALVED`` the worse half goes, and before that whoever is clearly behind (successive
elimination: Even-Dar, Mannor and Mansour, Journal of Machine Learning Research 7, 2006; successive
halving: Karnin, Koren and Somekh, ICML 2013).

The leader of many noisy candidates looks better than it is. So whether it is better than the
candidate in force is judged by fresh probes alone: pairs in an order drawn by lot, by the
randomisation test and the intervals of a verdict.

What a search on one disk has found: the best depth, the best settings, what was not judged.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from random import Random
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from hbatune.facts.model import Attribute, Endpoint
from hbatune.loader import Count, Figure, Seconds
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.profile import Share
from hbatune.probe.history import (
    CandidateTried,
    DepthTried,
    Searched,
    SearchedDepth,
    SearchedSettings,
    ValueChange,
)
from hbatune.probe.result import Failed, ProbeResult, Skipped
from hbatune.probe.verdict import ALPHA, bootstrap_interval, chance
from hbatune.search.curve import Measurement
from hbatune.search.depth import DepthAnswer
from hbatune.settings.limits import SCHEDULER_FILE, scheduler_of
from hbatune.settings.resolve import resolve_endpoint
from hbatune.settings.setting import Legal, Value, choices
from hbatune.settings.table import NR_REQUESTS, SCHEDULER, SETTINGS

SEEN_BY_READS = ("rq_affinity", "nomerges")
"""Settings that a lone reader's rate shows."""
SEEN_BESIDE_WRITES = (SCHEDULER, NR_REQUESTS)
"""Settings that order and hold back requests, which only counts where several kinds wait."""
REQUESTS = (64, 256, 1024)
"""Numbers of requests to try with the scheduler in force, beside the profile's."""


class Candidate(Struct, frozen=True):
    """Values to set together, by setting; none at all is what is in force."""

    values: dict[str, Value]


def seen_by_reads(endpoint: Endpoint, rows: Iterable[Row]) -> tuple[Candidate, ...]:
    """Return what is in force first, then the profile's values and all others, one at a time.

    ``rows`` are the plan's for this endpoint. Fewer than two candidates are no tournament.
    """
    now = _now(endpoint, SEEN_BY_READS)
    wanted = _wanted(rows, now)
    others: list[dict[str, Value]] = [
        {name: value}
        for name in now
        for value in range(SETTINGS[name].low, (SETTINGS[name].high or 0) + 1)
        if value != now[name]
    ]
    return _distinct(endpoint, [{}, wanted, *others])


def seen_beside_writes(endpoint: Endpoint, rows: Iterable[Row]) -> tuple[Candidate, ...]:
    """Return what is in force first, then the profile's scheduler, the kernel's, and requests.

    Without a scheduler the number of requests is the adapter's tag set, which is never lowered and
    would stay low: a disk below it is left alone.
    """
    now = _now(endpoint, SEEN_BESIDE_WRITES)
    if SCHEDULER not in now:
        return (Candidate({}),)
    if now[SCHEDULER] == "none" and now.get(NR_REQUESTS) != endpoint.tags:
        return (Candidate({}),)
    wanted = _wanted(rows, now)
    found = endpoint.attributes[SCHEDULER_FILE]
    offered = choices(found.text) if isinstance(found, Attribute) else ()
    schedulers: list[dict[str, Value]] = [
        {SCHEDULER: name} for name in offered if name != now[SCHEDULER]
    ]
    numbers: list[dict[str, Value]] = [
        {NR_REQUESTS: number}
        for number in REQUESTS
        if now[SCHEDULER] != "none" and number != now.get(NR_REQUESTS, number)
    ]
    return _distinct(endpoint, [{}, wanted, *schedulers, *numbers])


def rate_score(iops: Figure, p99_us: Figure, objective_us: Figure | None) -> float:
    """Return a rate, lessened by the factor by which its p99 misses the objective."""
    return iops if objective_us is None else iops * min(1.0, objective_us / p99_us)


def _now(endpoint: Endpoint, names: Iterable[str]) -> dict[str, Value]:
    """Return the values in force of those of the settings that can be read and written."""
    found: dict[str, Value] = {}
    for name in names:
        attribute = endpoint.attributes.get(SETTINGS[name].path)
        if isinstance(attribute, Attribute) and attribute.writable:
            try:
                found[name] = SETTINGS[name].parse(attribute.text)
            except ValueError:
                continue
    return found


def _wanted(rows: Iterable[Row], now: Mapping[str, Value]) -> dict[str, Value]:
    """Return what the profile would change of these settings."""
    return {
        row.setting: row.value
        for row in rows
        if row.state is State.DRIFT and row.setting in now and row.value is not None
    }


def _distinct(endpoint: Endpoint, tried: Iterable[dict[str, Value]]) -> tuple[Candidate, ...]:
    """Return the first of those that are legal and differ, as many as a tournament takes."""
    legal = (values for values in tried if _legal(endpoint, values))
    found: list[Candidate] = []
    for values in legal:
        if Candidate(values) not in found:
            found.append(Candidate(values))
    return tuple(found[:MOST_CANDIDATES])


def _legal(endpoint: Endpoint, values: Mapping[str, Value]) -> bool:
    """Whether the device takes just these values."""
    now = _now(endpoint, values)
    scheduler = values.get(SCHEDULER, scheduler_of(endpoint.attributes))
    return all(
        resolve_endpoint(endpoint, name, value, now[name], scheduler) == Legal(value)
        for name, value in values.items()
    )


MOST_PROBES = 30
"""Probes of the rounds at most."""
HALVED = 2
"""Rounds after which the worse half of the candidates goes."""
LAST_ROUNDS = 4
"""Rounds of the last two, as far as there are probes for them."""
CLEAR = 4.0
"""Standard errors behind the leader from which on a candidate goes at once."""
MOST_CANDIDATES = 8
"""Of more, two rounds and two halvings do not fit into the probes."""
SECONDS = 2.0
LOOKS = (10, 16, 24, 36)
"""Pairs of leader and candidate in force after which they are judged, the last time at the end.

The last is for probes of which one in ten was held up by something else: of twice the score, 24
pairs tell three times in four, and 36 nine times in ten.
"""
AS_GOOD_ERROR = 0.05
"""How often a candidate in force may be called as good as the best and be worse."""


class Score(Struct, frozen=True):
    """What one probe gave a candidate: a positive figure of which more is better.

    Ratios of it count: it is a rate, or one over a latency.
    """

    candidate: Count
    score: Figure


class TournamentProbe(Struct, frozen=True):
    """The next probe to make: the candidate to set, and the seconds to measure for.

    With ``interference`` a bulk writer works on the same disk meanwhile.
    """

    candidate: Count
    seconds: Seconds
    interference: bool


class Tournament(Struct, frozen=True):
    """A tournament of candidates, numbered from 0, of which ``current`` is in force.

    ``interference`` says whether they are judged beside a bulk writer, as schedulers are: a lone
    reader says nothing about them. ``tolerance`` is the share of the score within which two are as
    good as each other. The same seed draws the same orders. ``scores`` are those of all probes, in
    the order in which they were asked for.
    """

    candidates: Annotated[int, Meta(ge=1, le=MOST_CANDIDATES)]
    current: Count
    interference: bool = False
    tolerance: Share = 0.05
    seed: Count = 0
    scores: tuple[Score, ...] = ()

    def __post_init__(self) -> None:
        if self.current >= self.candidates:
            raise ValueError(f"candidate {self.current} of {self.candidates} is none of them")


class TournamentConclusion(StrEnum):
    """The word of an answer."""

    BEST = "best"
    AS_GOOD = "as good as"  # the candidate in force is as good as the best
    CANNOT_TELL = "cannot tell"


class TournamentAnswer(Struct, frozen=True):
    """The answer: the leading candidate and the ratio of its score to that of the one in force.

    The ratio lies between ``low`` and ``high``, 99 % sure of all looks together; ``chance`` is how
    often chance alone has as large an effect. They are None where the leader was not compared: it
    is in force itself, or the tournament has not ended.
    """

    word: TournamentConclusion
    leader: Count
    probes: Count
    ratio: Figure | None = None
    low: Figure | None = None
    high: Figure | None = None
    chance: Figure | None = None


class _Stage(NamedTuple):
    """Where a tournament is: who is left, who is still to be probed in this round, and the pairs.

    A pair is the logarithm of the leader's score over that of the candidate in force.
    """

    left: tuple[int, ...]
    due: tuple[int, ...]
    pairs: tuple[float, ...] = ()


def add_score(tournament: Tournament, score: float) -> Tournament:
    """Return the tournament with the score of the probe that was asked for.

    Raises ``ValueError`` where none was, or where the score is not positive.
    """
    due = _stage(tournament).due
    if not due:
        raise ValueError("the tournament has ended")
    if not 0 < score < math.inf:
        raise ValueError(f"a score of {score} has no logarithm")
    return replace(tournament, scores=(*tournament.scores, Score(due[0], score)))


def next_candidate(tournament: Tournament) -> TournamentProbe | None:
    """Return the next probe, None where the tournament has ended."""
    due = _stage(tournament).due
    return TournamentProbe(due[0], SECONDS, tournament.interference) if due else None


def leader(tournament: Tournament) -> int | None:
    """Return the candidate that is left after the rounds, None where they have not ended."""
    left = _stage(tournament).left
    return left[0] if len(left) == 1 else None


def answer_tournament(tournament: Tournament) -> TournamentAnswer:
    """Return the answer; before the tournament has ended it is `cannot tell`."""
    stage, probes = _stage(tournament), len(tournament.scores)
    best = stage.left[0]
    if stage.due:
        return TournamentAnswer(TournamentConclusion.CANNOT_TELL, best, probes)
    if best == tournament.current:
        return TournamentAnswer(TournamentConclusion.AS_GOOD, best, probes)
    word, low, high, rare = _judge(stage.pairs, tournament.tolerance)
    ratio = statistics.fmean(stage.pairs)
    return TournamentAnswer(
        word, best, probes, math.exp(ratio), math.exp(low), math.exp(high), rare
    )


def _stage(tournament: Tournament) -> _Stage:
    """Replay the scores: rounds until one candidate is left, then its pairs."""
    random = Random(tournament.seed)
    logs = [math.log(score.score) for score in tournament.scores]
    left, alike, at = tuple(range(tournament.candidates)), 0, 0
    table: dict[int, list[float]] = {each: [] for each in left}
    order: list[int] = []
    while len(left) > 1:
        # Back the way it came: what changes evenly over two rounds falls on all alike.
        order = order[::-1] if alike % 2 else random.sample(left, len(left))
        done = logs[at : at + len(order)]
        if len(done) < len(order):
            return _Stage(left, tuple(order[len(done) :]))
        for candidate, log in zip(order, done, strict=True):
            table[candidate].append(log)
        at, alike = at + len(order), alike + 1
        enough = LAST_ROUNDS if len(left) == 2 and at + len(left) <= MOST_PROBES else HALVED
        halve = alike >= enough
        remaining = _remaining({each: table[each] for each in left}, halve)
        if len(remaining) < len(left):
            left, alike = remaining, 0
    if left[0] == tournament.current:
        return _Stage(left, ())
    return _final(tournament, left, logs[at:], random)


def _final(
    tournament: Tournament,
    left: tuple[int, ...],
    logs: Sequence[float],
    random: Random,
) -> _Stage:
    pairs: tuple[float, ...] = ()
    while len(pairs) not in LOOKS or (
        len(pairs) < LOOKS[-1]
        and _judge(pairs, tournament.tolerance)[0] is TournamentConclusion.CANNOT_TELL
    ):
        order = random.sample((left[0], tournament.current), 2)
        done = logs[2 * len(pairs) : 2 * len(pairs) + 2]
        if len(done) < 2:
            return _Stage(left, tuple(order[len(done) :]), pairs)
        pairs += ((done[0] - done[1]) * (1 if order[0] == left[0] else -1),)
    return _Stage(left, (), pairs)


@lru_cache(maxsize=4)
def _judge(
    pairs: tuple[float, ...], tolerance: float
) -> tuple[TournamentConclusion, float, float, float]:
    """Return the word of the pairs, the interval of their mean, and how often chance does as much.

    The errors allowed are shared out over the looks (Bonferroni).
    """
    alpha, error = ALPHA / len(LOOKS), AS_GOOD_ERROR / len(LOOKS)
    rare = chance([[pair] for pair in pairs])[0]
    low, high = bootstrap_interval(pairs, 1 - alpha)
    # Of an interval with twice the error, one side has just the error (Schuirmann 1987).
    if bootstrap_interval(pairs, 1 - 2 * error)[1] < math.log1p(tolerance):
        return TournamentConclusion.AS_GOOD, low, high, rare
    told = rare <= alpha and low > 0
    return TournamentConclusion.BEST if told else TournamentConclusion.CANNOT_TELL, low, high, rare


def _remaining(table: dict[int, list[float]], halve: bool) -> tuple[int, ...]:
    """Return who goes on after a round, the best first: all, all but the clearly worse, or half.

    ``table`` has the logarithms of each candidate's scores, one for each round.
    """
    means = {each: statistics.fmean(scores) for each, scores in table.items()}
    ranked = sorted(means, key=lambda each: -means[each])
    rounds = len(table[ranked[0]])
    if rounds > 1:
        behind = CLEAR * _noise(table) * math.sqrt(2 / rounds)
        ranked = [each for each in ranked if means[each] >= means[ranked[0]] - behind]
    # Where the clearly worse have gone, the others need not be halved as well.
    if halve and len(ranked) > len(table) / 2:
        ranked = ranked[: math.ceil(len(table) / 2)]
    return tuple(ranked)


def _noise(table: dict[int, list[float]]) -> float:
    """Return the noise of one probe: what neither the candidate nor the round explains."""
    rows = [[score - statistics.fmean(scores) for score in scores] for scores in table.values()]
    rounds = list(zip(*rows, strict=True))
    left = math.fsum((score - statistics.fmean(row)) ** 2 for row in rounds for score in row)
    return math.sqrt(left / ((len(rows) - 1) * (len(rounds) - 1)))


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
        return tuple(
            dict.fromkeys(name for candidate in self.candidates for name in candidate.values)
        )


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
        settings=tuple(
            _searched_settings(tournament) for tournament in tournaments if tournament is not None
        ),
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
