"""Tournaments of simulated candidates, whose scores are known."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbatune.search import tournament as rules
from hbatune.search.tournament import (
    MAX_CANDIDATES,
    MAX_ROUND_PROBES,
    Tournament,
    TournamentConclusion,
    add_score,
    answer_tournament,
    choose_next_candidate,
    estimate_probes,
)
from tests.zoo.candidates import find_leader, play

ALIKE = (1.0,) * 8


def better_by(gap: float, best: int) -> tuple[float, ...]:
    return tuple(1.0 if candidate == best else 1.0 - gap for candidate in range(8))


def test_clearly_better_candidate_wins() -> None:
    right, words = 0, Counter[TournamentConclusion]()
    for seed in range(60):
        best = seed % 8
        winner, probes, answer = play(better_by(0.10, best), (best + 3) % 8, 0.05, seed, drift=0.1)
        assert probes <= MAX_ROUND_PROBES
        right += winner == best
        words[answer.word] += 1
        if answer.word is TournamentConclusion.BEST:
            assert answer.leader == best
            assert answer.low is not None
            assert answer.ratio is not None
            assert answer.high is not None
            assert 1 < answer.low <= answer.ratio <= answer.high
    assert right >= 59
    assert words[TournamentConclusion.BEST] >= 57


def test_winner_survives_delayed_probes() -> None:
    words = Counter(play((1.0, 2.0), 0, 0.25, seed, held_up=0.1)[2].word for seed in range(40))
    assert words[TournamentConclusion.BEST] >= 35, words


def test_equal_candidates_have_no_winner() -> None:
    words = Counter(play(ALIKE, seed % 8, 0.05, seed, drift=0.1)[2].word for seed in range(40))
    assert words[TournamentConclusion.BEST] == 0
    assert words[TournamentConclusion.AS_GOOD] >= 28


def test_tolerated_gain_does_not_win() -> None:
    words = Counter(play(better_by(0.02, 3), 0, 0.005, seed)[2].word for seed in range(20))
    assert words == {TournamentConclusion.AS_GOOD: 20}


def test_current_leader_is_as_good() -> None:
    _, probes, answer = play(better_by(0.3, 5), 5, 0.02, 1)
    assert (answer.word, answer.leader) == (TournamentConclusion.AS_GOOD, 5)
    assert answer.probes == probes  # nothing is left to compare


def test_dominant_noise_is_inconclusive() -> None:
    words = Counter(play(better_by(0.10, 2), 0, 0.5, seed)[2].word for seed in range(20))
    assert words[TournamentConclusion.BEST] <= 1
    assert words[TournamentConclusion.CANNOT_TELL] >= 15


def test_drift_favours_no_candidate() -> None:
    # Without noise, half of everything is lost on the way: whoever is probed first would win.
    winners = [play(better_by(0.01, seed % 8), 0, 0.0, seed, drift=0.5)[0] for seed in range(16)]
    assert winners == [seed % 8 for seed in range(16)]


def test_weak_candidates_drop_out() -> None:
    tournament = Tournament(candidates=8, current=7, seed=1)
    scores = (1.0, 0.9995, 0.5, 0.6, 0.7, 0.5, 0.4, 0.3)
    order = []
    for _ in range(18):
        candidate = choose_next_candidate(tournament)
        assert candidate is not None
        order.append(candidate)
        noise = 1 + 0.001 * (len(order) % 3)
        tournament = add_score(tournament, scores[candidate] * noise)
    assert sorted(order[:8]) == sorted(order[8:16]) == list(range(8))
    assert sorted(order[16:]) == [0, 1]


def test_second_round_reverses_first() -> None:
    tournament = Tournament(candidates=8, current=0, seed=7)
    order = []
    for _ in range(16):
        candidate = choose_next_candidate(tournament)
        assert candidate is not None
        order.append(candidate)
        tournament = add_score(tournament, 1.0 + candidate / 100)
    assert sorted(order[:8]) == list(range(8))
    assert order[8:] == order[7::-1]


def test_seed_draws_candidate_order() -> None:
    assert play(ALIKE, 0, 0.05, 5) == play(ALIKE, 0, 0.05, 5)
    tournaments = [Tournament(candidates=8, current=0, seed=seed) for seed in range(40)]
    first = set(map(choose_next_candidate, tournaments))
    assert first == set(range(8))


def test_single_candidate_ends_at_once() -> None:
    tournament = Tournament(candidates=1, current=0)
    assert choose_next_candidate(tournament) is None
    assert find_leader(tournament) == 0
    assert answer_tournament(tournament).word is TournamentConclusion.AS_GOOD
    with pytest.raises(ValueError, match="ended"):
        add_score(tournament, 1.0)


def test_equal_pair_ends_at_limit() -> None:
    _, probes, _ = play((1.0, 1.0), 0, 0.05, 2)
    assert probes == 2 * rules.LAST_ROUNDS


def test_unfinished_tournament_is_inconclusive() -> None:
    tournament = Tournament(candidates=3, current=0)
    assert find_leader(tournament) is None
    assert answer_tournament(tournament).word is TournamentConclusion.CANNOT_TELL


def test_current_must_be_candidate() -> None:
    with pytest.raises(ValueError, match="candidate 3 of 3 does not exist"):
        Tournament(candidates=3, current=3)


@pytest.mark.parametrize("score", [0.0, -1.0, math.nan, math.inf])
def test_score_without_logarithm_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="logarithm"):
        add_score(Tournament(candidates=2, current=0), score)


@settings(max_examples=50, deadline=None)
@given(
    candidates=st.integers(1, MAX_CANDIDATES),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_any_tournament_ends(candidates: int, seed: int, data: st.DataObject) -> None:
    current = data.draw(st.integers(0, candidates - 1))
    scores = tuple(data.draw(st.floats(0.001, 1000)) for _ in range(candidates))
    winner, probes, answer = play(scores, current, data.draw(st.floats(0, 1)), seed)
    assert winner == answer.leader
    assert probes <= MAX_ROUND_PROBES
    assert answer.probes <= MAX_ROUND_PROBES + 2 * rules.COMPARISON_PAIRS[-1]


@pytest.mark.parametrize("candidates", range(2, MAX_CANDIDATES + 1))
def test_estimate_counts_all_rounds(candidates: int) -> None:
    """No candidate is clearly worse, so all rounds are played."""
    for seed in range(5):
        expected = estimate_probes(Tournament(candidates, 0, seed=seed))
        _, probes, _ = play(ALIKE[:candidates], 0, 0.5, seed)
        assert expected == probes


def test_estimate_follows_each_probe() -> None:
    tournament, made = Tournament(2, 0), 0
    while (candidate := choose_next_candidate(tournament)) is not None:
        assert estimate_probes(tournament) > 0
        # The scores of pairs alternate, so the first look cannot tell.
        score = 2.0 if candidate == (made // 2) % 2 else 1.0
        if made < 2 * rules.LAST_ROUNDS:
            score = 1.0 + candidate / 100 + made / 1000
        tournament, made = add_score(tournament, score), made + 1
    assert made > 2 * (rules.LAST_ROUNDS + rules.COMPARISON_PAIRS[0])
    assert estimate_probes(tournament) == 0
