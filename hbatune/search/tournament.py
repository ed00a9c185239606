"""Find the best candidate settings of a disk and compare them with the current ones. Pure.

Each round probes all remaining candidates in random order, so drift, cache warm-up and other load
affect all of them equally. Only probes of one round are compared. The leader of many noisy
candidates looks better than it is. Only fresh probes therefore compare it with the current
candidate: pairs in random order, evaluated with the randomisation test of a verdict.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from random import Random
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from hbatune.facts.model import Attribute, Endpoint, Missing
from hbatune.loader import Count, ErrorNumber, Figure
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.profile import Share
from hbatune.probe import history, verdict
from hbatune.probe.result import Failed, ProbeResult, Skipped
from hbatune.search.depth import DepthAnswer
from hbatune.settings.limits import SCHEDULER_FILE, find_scheduler, make_device, resolve_value
from hbatune.settings.setting import LegalValue, Value, parse_choices
from hbatune.settings.table import NR_REQUESTS, SCHEDULER, SETTINGS

READ_SETTINGS = ("rq_affinity", "nomerges")
"""Settings whose effect the rate of a single reader shows: where a request completes, and whether
it is merged. Reads that bypass the page cache show neither read-ahead nor writeback. Both settings
take 0, 1 and 2."""
WRITE_SETTINGS = (SCHEDULER, NR_REQUESTS)
"""Settings that order or delay requests. They only matter if several types of requests wait."""
REQUEST_NUMBERS = (64, 256, 1024)
"""Numbers of requests to try with the current scheduler, in addition to the profile's."""


class Candidate(Struct, frozen=True):
    """Values to set together, by setting; an empty dict represents the current values."""

    values: dict[str, Value]


def list_read_candidates(endpoint: Endpoint, rows: Iterable[Row]) -> tuple[Candidate, ...]:
    """Return the candidates: the current values, the profile's, then each other value by itself.

    ``rows`` are the plan's for this endpoint. A tournament needs at least two candidates.
    """
    current = read_current(endpoint, READ_SETTINGS)
    tried: list[dict[str, Value]] = [{}, _find_wanted(rows, current)]
    for name, value in current.items():
        tried += _list_others(name, range(3), value)
    return _select_distinct(endpoint, tried)


def list_write_candidates(endpoint: Endpoint, rows: Iterable[Row]) -> tuple[Candidate, ...]:
    """Return the candidates: the current values, the profile's, other schedulers, then requests.

    Without a scheduler, the number of requests is the adapter's tag set. It is never lowered, since
    it would stay low. A disk below it has no other candidates.
    """
    current = read_current(endpoint, WRITE_SETTINGS)
    is_below_tags = current.get(NR_REQUESTS) != endpoint.tags
    if SCHEDULER not in current or (current[SCHEDULER] == "none" and is_below_tags):
        return (Candidate({}),)
    tried: list[dict[str, Value]] = [{}, _find_wanted(rows, current)]
    attribute = endpoint.attributes[SCHEDULER_FILE]
    if isinstance(attribute, Attribute):
        tried += _list_others(SCHEDULER, parse_choices(attribute.text), current[SCHEDULER])
    requests = current.get(NR_REQUESTS)
    if current[SCHEDULER] != "none" and requests is not None:
        tried += _list_others(NR_REQUESTS, REQUEST_NUMBERS, requests)
    return _select_distinct(endpoint, tried)


def _list_others(name: str, values: Iterable[Value], current: Value) -> list[dict[str, Value]]:
    return [{name: value} for value in values if value != current]


def compute_score(iops: Figure, p99_us: Figure, objective_us: Figure | None) -> float:
    """Return a rate, divided by the ratio of its p99 to the objective if the p99 misses it."""
    return iops if objective_us is None else iops * min(1.0, objective_us / p99_us)


def read_current(endpoint: Endpoint, names: Iterable[str]) -> dict[str, Value]:
    """Return the current values of the settings that can be read and written."""
    values: dict[str, Value] = {}
    for name in names:
        attribute = endpoint.attributes.get(SETTINGS[name].find_path(endpoint.attributes))
        value = SETTINGS[name].read(endpoint.attributes)
        is_writable = isinstance(attribute, Attribute) and attribute.writable
        if is_writable and not isinstance(value, Missing):
            values[name] = value
    return values


def _find_wanted(rows: Iterable[Row], current: Mapping[str, Value]) -> dict[str, Value]:
    """Return the profile's values for the settings that it would change."""
    wanted = {}
    for row in rows:
        if row.state is State.DRIFT and row.setting in current and row.value is not None:
            wanted[row.setting] = row.value
    return wanted


def _select_distinct(
    endpoint: Endpoint, tried: Iterable[dict[str, Value]]
) -> tuple[Candidate, ...]:
    """Return the distinct candidates that the device takes exactly, at most ``MAX_CANDIDATES``."""
    candidates: list[Candidate] = []
    for values in tried:
        if Candidate(values) not in candidates and _is_legal(endpoint, values):
            candidates.append(Candidate(values))
    return tuple(candidates[:MAX_CANDIDATES])


def _is_legal(endpoint: Endpoint, values: Mapping[str, Value]) -> bool:
    current = read_current(endpoint, values)
    device = make_device(endpoint, values.get(SCHEDULER, find_scheduler(endpoint.attributes)))
    for name, value in values.items():
        if resolve_value(SETTINGS[name], value, current[name], device) != LegalValue(value):
            return False
    return True


MAX_ROUND_PROBES = 30
"""The maximum number of probes in all rounds."""
HALVING_ROUNDS = 2
"""The number of rounds after which the worse half of the candidates is eliminated (successive
halving: Karnin, Koren and Somekh, ICML 2013)."""
LAST_ROUNDS = 4
"""The number of rounds for the last two candidates, if enough probes remain."""
ELIMINATION_ERRORS = 4.0
"""The standard errors behind the leader at which a candidate is eliminated immediately (successive
elimination: Even-Dar, Mannor and Mansour, Journal of Machine Learning Research 7, 2006)."""
MAX_CANDIDATES = 8
"""With more candidates, two rounds and two halvings do not fit into the probes."""
PROBE_S = 2.0
"""The seconds to measure a candidate for."""
COMPARISON_PAIRS = (10, 16, 24, 36)
"""Numbers of pairs, leader and current candidate, after which both are compared.

The last number is for runs in which something else delays one probe in ten. Then 24 pairs detect
twice the score in three of four cases, and 36 pairs in nine of ten.
"""
AS_GOOD_ERROR = 0.05
"""The error rate of ``AS_GOOD``: the current candidate is worse than the best."""


class Score(Struct, frozen=True):
    """The score of a candidate in one probe: a positive figure, the higher the better.

    It is a rate, or the inverse of a latency, so scores are compared by their ratio.
    """

    candidate: Count
    score: Figure


class Tournament(Struct, frozen=True):
    """A tournament of candidates, numbered from 0; ``current`` is the current one.

    Two candidates are equally good if their scores differ by no more than the fraction
    ``tolerance``. The same seed draws the same orders. ``scores`` has the scores of all probes, in
    the order of their requests.
    """

    candidates: Annotated[int, Meta(ge=1, le=MAX_CANDIDATES)]
    current: Count
    tolerance: Share = 0.05
    seed: Count = 0
    scores: tuple[Score, ...] = ()

    def __post_init__(self) -> None:
        if self.current >= self.candidates:
            raise ValueError(f"candidate {self.current} of {self.candidates} does not exist")


class TournamentConclusion(StrEnum):
    """The conclusion of a tournament."""

    BEST = "best"
    AS_GOOD = "as good as"  # the current candidate is as good as the best
    CANNOT_TELL = "cannot tell"


class TournamentAnswer(Struct, frozen=True):
    """The answer: the leader, and the ratio of its score to the current candidate's score.

    ``low`` and ``high`` are the 99 % interval of the ratio, joint for all looks. ``chance`` is the
    probability of as large an effect by chance. They are None if the leader was not compared: it is
    the current candidate, or the tournament has not ended.
    """

    word: TournamentConclusion
    leader: Count
    probes: Count
    ratio: Figure | None = None
    low: Figure | None = None
    high: Figure | None = None
    chance: Figure | None = None


class _Stage(NamedTuple):
    """The state of a tournament: remaining candidates, those due in this round, and the pairs.

    A pair is the logarithm of the ratio of the leader's score to the current candidate's score.
    ``rounds`` counts the completed rounds since the last elimination.
    """

    left: tuple[int, ...]
    due: tuple[int, ...]
    pairs: tuple[float, ...] = ()
    rounds: int = 0


def add_score(tournament: Tournament, score: float) -> Tournament:
    """Return the tournament with the score of the requested probe.

    Raises ``ValueError`` if no probe was requested or the score is not positive.
    """
    due = _replay_scores(tournament).due
    if not due:
        raise ValueError("the tournament has ended")
    if not 0 < score < math.inf:
        raise ValueError(f"a score of {score} has no logarithm")
    return replace(tournament, scores=(*tournament.scores, Score(due[0], score)))


def choose_next_candidate(tournament: Tournament) -> int | None:
    """Return the candidate to set for the next probe, or None if the tournament has ended."""
    due = _replay_scores(tournament).due
    return due[0] if due else None


def answer_tournament(tournament: Tournament) -> TournamentAnswer:
    """Return the answer, which is `cannot tell` until the tournament has ended."""
    stage, probes = _replay_scores(tournament), len(tournament.scores)
    best = stage.left[0]
    if stage.due:
        return TournamentAnswer(TournamentConclusion.CANNOT_TELL, best, probes)
    if best == tournament.current:
        return TournamentAnswer(TournamentConclusion.AS_GOOD, best, probes)
    conclusion, low, high, chance = _judge(stage.pairs, tournament.tolerance)
    ratio, low, high = map(math.exp, (statistics.fmean(stage.pairs), low, high))
    return TournamentAnswer(conclusion, best, probes, ratio, low, high, chance)


def estimate_probes(tournament: Tournament) -> int:
    """Estimate the probes to come: of the rounds, or until the next look at the pairs."""
    stage, made = _replay_scores(tournament), len(tournament.scores)
    if not stage.due:
        return 0
    left, rounds, pairs = len(stage.left), stage.rounds, len(stage.pairs)
    if left == 1:
        look = min(number for number in COMPARISON_PAIRS if number > pairs)
        return 2 * (look - pairs - 1) + len(stage.due)
    position = made + len(stage.due) - left
    while left > 1:
        position, rounds = position + left, rounds + 1
        if _is_halved(left, rounds, position):
            left, rounds = math.ceil(left / 2), 0
    return position - made


def _is_halved(left: int, rounds: int, position: int) -> bool:
    """Whether the worse half is eliminated after these rounds and probes."""
    is_last = left == 2 and position + left <= MAX_ROUND_PROBES
    return rounds >= (LAST_ROUNDS if is_last else HALVING_ROUNDS)


def _replay_scores(tournament: Tournament) -> _Stage:
    """Replay the scores: rounds until one candidate remains, then its pairs."""
    random = Random(tournament.seed)
    logs = [math.log(score.score) for score in tournament.scores]
    remaining, rounds, position = tuple(range(tournament.candidates)), 0, 0
    table: dict[int, list[float]] = defaultdict(list)
    order: list[int] = []
    while len(remaining) > 1:
        # In reverse order: a steady change over two rounds affects all candidates equally.
        order = order[::-1] if rounds % 2 else random.sample(remaining, len(remaining))
        done = logs[position : position + len(order)]
        if len(done) < len(order):
            return _Stage(remaining, tuple(order[len(done) :]), rounds=rounds)
        for candidate, log in zip(order, done, strict=True):
            table[candidate].append(log)
        position, rounds = position + len(order), rounds + 1
        halve = _is_halved(len(remaining), rounds, position)
        ranked = _rank_remaining({candidate: table[candidate] for candidate in remaining}, halve)
        if len(ranked) < len(remaining):
            remaining, rounds = ranked, 0
    if remaining[0] == tournament.current:
        return _Stage(remaining, ())
    return _replay_pairs(tournament, remaining, logs[position:], random)


def _replay_pairs(
    tournament: Tournament, remaining: tuple[int, ...], logs: Sequence[float], random: Random
) -> _Stage:
    pairs: tuple[float, ...] = ()
    while len(pairs) < COMPARISON_PAIRS[-1]:
        if len(pairs) in COMPARISON_PAIRS:
            conclusion = _judge(pairs, tournament.tolerance)[0]
            if conclusion is not TournamentConclusion.CANNOT_TELL:
                break
        order = random.sample((remaining[0], tournament.current), 2)
        done = logs[2 * len(pairs) : 2 * len(pairs) + 2]
        if len(done) < 2:
            return _Stage(remaining, tuple(order[len(done) :]), pairs)
        pairs += ((done[0] - done[1]) * (1 if order[0] == remaining[0] else -1),)
    return _Stage(remaining, (), pairs)


@lru_cache(maxsize=4)
def _judge(
    pairs: tuple[float, ...], tolerance: float
) -> tuple[TournamentConclusion, float, float, float]:
    """Return the conclusion, the interval of the pairs' mean, and the chance of such an effect.

    The allowed errors are divided among the looks (Bonferroni).
    """
    alpha, error = verdict.ALPHA / len(COMPARISON_PAIRS), AS_GOOD_ERROR / len(COMPARISON_PAIRS)
    chance = verdict.compute_chance([[pair] for pair in pairs])[0]
    low, high = verdict.compute_interval([pairs], 1 - alpha)
    conclusion = TournamentConclusion.CANNOT_TELL
    # One side of an interval with twice the error has exactly the error (Schuirmann 1987).
    if verdict.compute_interval([pairs], 1 - 2 * error)[1] < math.log1p(tolerance):
        conclusion = TournamentConclusion.AS_GOOD
    elif chance <= alpha and low > 0:
        conclusion = TournamentConclusion.BEST
    return conclusion, low, high, chance


def _rank_remaining(table: dict[int, list[float]], halve: bool) -> tuple[int, ...]:
    """Return the candidates that remain after a round, the best first.

    These are all but the clearly worse, and with ``halve`` at most the better half. ``table`` has
    the logarithms of each candidate's scores, one for each round.
    """
    means = dict(zip(table, map(statistics.fmean, table.values()), strict=True))
    ranked = sorted(means, key=lambda candidate: -means[candidate])
    best, rounds = means[ranked[0]], len(table[ranked[0]])
    if rounds > 1:
        behind = ELIMINATION_ERRORS * _estimate_noise(table) * math.sqrt(2 / rounds)
        while means[ranked[-1]] < best - behind:
            ranked.pop()
    # If enough candidates were eliminated as clearly worse, the others need not be halved.
    if halve and len(ranked) > len(table) / 2:
        ranked = ranked[: math.ceil(len(table) / 2)]
    return tuple(ranked)


def _estimate_noise(table: dict[int, list[float]]) -> float:
    """Return the noise of one probe: the deviation not explained by candidate or round."""
    rows, squares = [], []
    for scores in table.values():
        mean = statistics.fmean(scores)
        rows.append([score - mean for score in scores])
    rounds = list(zip(*rows, strict=True))
    for row in rounds:
        mean = statistics.fmean(row)
        squares += [(score - mean) ** 2 for score in row]
    return math.sqrt(math.fsum(squares) / ((len(rows) - 1) * (len(rounds) - 1)))


class Unjudged(StrEnum):
    """The reason why settings of a disk were not evaluated."""

    FIXED = "fixed"  # it cannot be set; detail: why
    NO_CHOICE = "no choice"  # no other value can be set
    NEEDS_WRITES = "needs writes"  # a single reader does not show its effect
    NOT_WRITABLE = "not writable"  # outcome: why nothing may be written to the disk
    ENDED = "ended"  # the search of the disk ended before


class NotJudged(Struct, frozen=True):
    """Settings that were not evaluated, and the reason."""

    settings: tuple[str, ...]
    reason: Unjudged
    detail: str | None = None
    outcome: Skipped | None = None


class End(StrEnum):
    """The reason why a search ended early, other than a probe without figures."""

    STOPPED = "stopped"
    NO_TIME = "no time"
    UNTRUSTED = "untrusted"  # a probe broke Little's law, or did no I/O
    NOT_SET = "not set"  # a value was not taken
    STUCK = "stuck"  # a write to a setting did not return
    CONFLICT = "conflict"  # another process changed a setting during the search


class NotRestored(Struct, frozen=True):
    """A setting that does not have its value from ``before`` the search, and the value found.

    It is a conflict if another process has changed it: it then keeps that value.
    """

    setting: str
    before: Value | None
    outcome: Outcome
    errno: ErrorNumber | None = None
    found: Value | None = None


class FoundDepth(Struct, frozen=True):
    """A depth search: the current depth, the deepest to try, all probes, and the answer.

    ``current`` is the effective depth: the number of requests, if it is below the disk's own depth.
    ``answer`` is None if the search ended early. ``compared`` is a tournament between the current
    depth and the answer. It was necessary if the answer was not likely enough to be better.
    """

    current: Count
    deepest: Count
    measured: tuple[history.Measurement, ...]
    answer: DepthAnswer | None = None
    compared: TournamentAnswer | None = None


class FoundSettings(Struct, frozen=True):
    """A tournament of candidates at a depth; number 0 has the values ``in_force``.

    With ``interference``, the scores are from a reader's p99 with a bulk writer, and ``written``
    has the writer's bytes/s with each candidate.
    """

    candidates: tuple[Candidate, ...]
    depth: Count
    scores: tuple[Score, ...]
    answer: TournamentAnswer
    in_force: dict[str, Value] = {}
    interference: bool = False
    written: tuple[Figure, ...] = ()


class DiskSearchResult(Struct):
    """The search on one disk, filled in during the search. ``alike`` are the disks it represents.

    ``objective_us`` is the maximum p99 that the profile allows. ``better`` are the values that are
    better than the current ones, and ``result`` is the probe nearest to them. If the search ended
    early, ``ended`` or ``outcome`` has the reason, and ``doubtful`` is the untrusted probe.
    ``blank`` is from the first probe.
    """

    target: str
    id: str
    objective_us: Figure | None = None
    alike: tuple[str, ...] = ()
    depth: FoundDepth | None = None
    settings: FoundSettings | None = None
    schedulers: FoundSettings | None = None
    not_judged: list[NotJudged] = []
    better: list[history.ValueChange] = []
    result: ProbeResult | None = None
    ended: End | None = None
    outcome: Skipped | Failed | None = None
    doubtful: ProbeResult | None = None
    blank: bool | None = None
    not_restored: tuple[NotRestored, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the search is complete and every value was restored."""
        return self.ended is None and self.outcome is None and not self.not_restored

    @property
    def counts(self) -> bool:
        """Whether its answers count: if it is complete or ran out of time, but not after errors."""
        timed_out = self.ended is End.NO_TIME and bool(self.better)
        return (self.whole or timed_out) and not self.not_restored


def make_stored_search(search: DiskSearchResult) -> history.Searched:
    """Return the part of a search that the history stores."""
    depth, found = None, search.depth
    if found is not None and (answer := found.answer) is not None:
        depth = history.SearchedDepth(
            found.current, found.measured, answer.word, answer.depth, answer.chance
        )
    tournaments = map(_summarise_settings, filter(None, (search.settings, search.schedulers)))
    return history.Searched(search.objective_us, depth, tuple(tournaments))


def _summarise_settings(search: FoundSettings) -> history.SearchedSettings:
    candidates = []
    for number, candidate in enumerate(search.candidates):
        figures = [score.score for score in search.scores if score.candidate == number]
        if search.interference:  # a score is the inverse of the p99 in seconds: more is better
            figures = [1e6 / score for score in figures]
        written = search.written[number] if search.written else None
        candidates.append(history.CandidateTried(candidate.values, tuple(figures), written))
    return history.SearchedSettings(
        tuple(candidates),
        search.in_force,
        search.depth,
        search.interference,
        search.answer.word,
        search.answer.leader,
    )
