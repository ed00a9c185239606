"""Simulated candidate settings with known scores, measured one after another on one machine."""

import math
from random import Random

from hbatune.search.tournament import (
    Tournament,
    TournamentAnswer,
    _replay_scores,
    add_score,
    answer_tournament,
    choose_next_candidate,
)


def find_leader(tournament: Tournament) -> int | None:
    """Return the winner of the rounds, or None if they have not ended."""
    remaining = _replay_scores(tournament).left
    return remaining[0] if len(remaining) == 1 else None


def play(
    scores: tuple[float, ...],
    current: int,
    noise: float,
    seed: int,
    drift: float = 0.0,
    held_up: float = 0.0,
) -> tuple[int | None, int, TournamentAnswer]:
    """Play a tournament; return its leader, the probes until it was found, and the answer.

    ``noise`` and ``drift`` are shares: of one score, and of what every 28 probes lose. ``held_up``
    is the share of probes during which the machine does nothing for a while: they score a fifth.
    """
    random = Random(seed)
    tournament = Tournament(candidates=len(scores), current=current, seed=seed)
    leader, probes = find_leader(tournament), 0
    while (candidate := choose_next_candidate(tournament)) is not None:
        slower = drift * len(tournament.scores) / 28
        score = scores[candidate] * math.exp(random.gauss(0, noise) - slower)
        if held_up and random.random() < held_up:
            score /= 5
        tournament = add_score(tournament, score)
        if leader is None:
            leader, probes = find_leader(tournament), len(tournament.scores)
    return leader, probes, answer_tournament(tournament)
