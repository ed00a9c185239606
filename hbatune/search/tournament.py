"""A tournament of candidate settings: which is the best, and is it better than what is in force.

Pure. Every round probes all candidates that are left, in an order drawn by lot, so that a drift, a
cache that warms up or a neighbour falls on all alike; only probes of one round are compared. After
the rounds of ``HALVED`` the worse half goes, and before that whoever is clearly behind (successive
elimination: Even-Dar, Mannor and Mansour, Journal of Machine Learning Research 7, 2006; successive
halving: Karnin, Koren and Somekh, ICML 2013).

The leader of many noisy candidates looks better than it is. So whether it is better than the
candidate in force is judged by fresh probes alone: pairs in an order drawn by lot, by the
randomisation test and the intervals of a verdict.
"""

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from random import Random
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from hbatune.loader import Count, Figure, Seconds
from hbatune.policy.model import Share
from hbatune.probe.verdict import ALPHA, bootstrap_interval, chance

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


class TournamentWord(StrEnum):
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

    word: TournamentWord
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
        return TournamentAnswer(TournamentWord.CANNOT_TELL, best, probes)
    if best == tournament.current:
        return TournamentAnswer(TournamentWord.AS_GOOD, best, probes)
    word, low, high, rare = _judge(stage.pairs, tournament.tolerance)
    ratio = statistics.fmean(stage.pairs)
    return TournamentAnswer(
        word, best, probes, math.exp(ratio), math.exp(low), math.exp(high), rare
    )


def _stage(tournament: Tournament) -> _Stage:
    """Replay the scores: rounds until one candidate is left, then its pairs."""
    random = Random(tournament.seed)
    logs = [math.log(each.score) for each in tournament.scores]
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
        and _judge(pairs, tournament.tolerance)[0] is TournamentWord.CANNOT_TELL
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
) -> tuple[TournamentWord, float, float, float]:
    """Return the word of the pairs, the interval of their mean, and how often chance does as much.

    The errors allowed are shared out over the looks (Bonferroni).
    """
    alpha, error = ALPHA / len(LOOKS), AS_GOOD_ERROR / len(LOOKS)
    rare = chance([[pair] for pair in pairs])[0]
    low, high = bootstrap_interval(pairs, 1 - alpha)
    # Of an interval with twice the error, one side has just the error (Schuirmann 1987).
    if bootstrap_interval(pairs, 1 - 2 * error)[1] < math.log1p(tolerance):
        return TournamentWord.AS_GOOD, low, high, rare
    told = rare <= alpha and low > 0
    return TournamentWord.BEST if told else TournamentWord.CANNOT_TELL, low, high, rare


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
