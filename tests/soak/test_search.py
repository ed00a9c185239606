"""Searches on simulated devices and candidates whose truth is known, and how often they find it."""

import time
from collections import Counter
from collections.abc import Iterable

from msgspec import to_builtins

from tests.soak.kept import save_results
from tests.zoo.candidates import play
from tests.zoo.devices import GRID
from tests.zoo.referees import latency_target, optuna_search
from tests.zoo.runs import (
    MISSED,
    NOISIER_THAN_SEEN,
    NOISY,
    QUIET,
    Case,
    Counts,
    Noise,
    cases,
    count,
    search,
)

IOS = 20_000
SEEDS = 60
SEEDS_BESIDE_OTHERS = 20
TOURNAMENTS = 200
NOISES = {"quiet": QUIET, "noisy": NOISY, "noisier than its windows show": NOISIER_THAN_SEEN}


def test_best_depth_takes_six_probes() -> None:
    began = time.monotonic()
    counts = {name: count(noise, range(SEEDS), IOS) for name, noise in NOISES.items()}
    save_results(
        "depth searches on 14 simulated devices, with two objectives and 60 seeds each",
        name="depth_search",
        seconds=round(time.monotonic() - began),
        noises={
            name: _account(NOISES[name], total, by_case)
            for name, (total, by_case) in counts.items()
        },
    )
    for total, _ in counts.values():
        assert total.most_probes <= 8
        assert total.probes <= 6 * total.runs
        assert total.told >= 0.75 * total.runs
        # No worse than the sweep of nine depths, over all answers and over those that are told.
        assert total.right >= total.sweep_right
        assert total.told_right / total.told >= total.sweep_right / total.runs
    quiet, noisy = counts["quiet"][0], counts["noisy"][0]
    assert noisy.told_missed / noisy.told <= noisy.sweep_missed / noisy.runs
    assert quiet.right >= 0.90 * quiet.runs
    assert quiet.missed <= 0.02 * quiet.runs


def test_search_beats_alternatives() -> None:
    began = time.monotonic()
    shares = {name: _beside(noise) for name, noise in (("quiet", QUIET), ("noisy", NOISY))}
    save_results(
        "depth searches beside fio's latency_target and Optuna's TPE, on the same 28 cases",
        name="depth_search_beside_others",
        runs_each=len(list(cases(IOS))) * SEEDS_BESIDE_OTHERS,
        seconds=round(time.monotonic() - began),
        noises=shares,
    )
    for ways in shares.values():
        ours = ways.pop("autotune")
        assert all(ours["probes"] < way["probes"] for way in ways.values())
        assert all(ours["right"] > way["right"] for way in ways.values())


def _beside(noise: Noise) -> dict[str, dict[str, float]]:
    """Return what each way needs and finds, in percent of its runs."""
    ways: dict[str, list[tuple[Case, int, int]]] = {}
    for case in cases(IOS):
        for seed in range(SEEDS_BESIDE_OTHERS):
            answer, _, _ = search(case, noise, seed)
            ways.setdefault("autotune", []).append((case, answer.depth, answer.probes))
            ways.setdefault("latency_target", []).append((case, *latency_target(case, noise, seed)))
            for probes in (8, 16):
                depth = optuna_search(case, noise, seed, probes)
                ways.setdefault(f"Optuna, {probes} probes", []).append((case, depth, probes))
    return {name: _shares(runs) for name, runs in ways.items()}


def _shares(runs: Iterable[tuple[Case, int, int]]) -> dict[str, float]:
    run_list = list(runs)
    return {
        "probes": round(sum(probes for _, _, probes in run_list) / len(run_list), 2),
        "right": round(
            100 * sum(case.right(depth) for case, depth, _ in run_list) / len(run_list), 1
        ),
        "missed": round(
            100 * sum(case.over(depth) > MISSED for case, depth, _ in run_list) / len(run_list), 1
        ),
    }


def test_best_candidate_takes_thirty_probes() -> None:
    began = time.monotonic()
    played = {
        "one of eight is better by 10 %, noise 5 %, drift 10 %": _play(0.10, 0.05),
        "one of eight is better by 10 %, noise 2 %, drift 10 %": _play(0.10, 0.02),
        "all alike, noise 5 %, drift 10 %": _play(0.0, 0.05),
        "all alike, noise 2 %, drift 10 %": _play(0.0, 0.02),
    }
    save_results(
        "tournaments of eight simulated candidates",
        name="tournament",
        count=TOURNAMENTS,
        seconds=round(time.monotonic() - began),
        tournaments=played,
    )
    for outcomes in played.values():
        assert outcomes["most_probes_to_the_leader"] <= 30
        assert outcomes["a_wrong_best"] <= 0.01 * TOURNAMENTS
    better = played["one of eight is better by 10 %, noise 5 %, drift 10 %"]
    assert better["leader_right"] >= 0.98 * TOURNAMENTS
    assert better["word_right"] >= 0.98 * TOURNAMENTS


def _account(noise: Noise, total: Counts, by_case: dict[str, Counts]) -> dict[str, object]:
    """Return the counts, shares in percent: of all runs, or of the answers that were told."""

    def share(count: float, of: int = total.runs) -> float:
        return round(100 * count / of, 1)

    return {
        "noise": to_builtins(noise),
        "runs": total.runs,
        "probes": round(total.probes / total.runs, 2),
        "most_probes": total.most_probes,
        "seconds_of_probes": round(total.seconds / total.runs, 1),
        "right": share(total.right),
        "right_and_within_the_objective": share(total.strictly),
        "missed": share(total.missed),
        "as_good": share(total.as_good),
        "cannot_tell": share(total.runs - total.told),
        "right_of_told": share(total.told_right, total.told),
        "missed_of_told": share(total.told_missed, total.told),
        "chance_stated_by_told": share(total.stated, total.told),
        "sweep_of_9_right": share(total.sweep_right),
        "sweep_of_9_missed": share(total.sweep_missed),
        f"sweep_of_{len(GRID)}_right": share(total.grid_right),
        f"sweep_of_{len(GRID)}_missed": share(total.grid_missed),
        "right_by_case": {
            name: share(case_counts.right, case_counts.runs)
            for name, case_counts in by_case.items()
        },
    }


def _play(gap: float, noise: float) -> dict[str, int]:
    outcomes = Counter[str]()
    most = 0
    for seed in range(TOURNAMENTS):
        best, current = seed % 8, seed // 8 % 8
        scores = tuple(1.0 if candidate == best else 1.0 - gap for candidate in range(8))
        leading, probes, answer = play(scores, current, noise, seed, drift=0.10)
        most = max(most, probes)
        outcomes["leader_right"] += not gap or leading == best
        right = "as good as" if not gap or best == current else "best"
        outcomes["word_right"] += answer.word == right and (not gap or leading == best)
        outcomes["a_wrong_best"] += answer.word == "best" and (not gap or leading != best)
        outcomes[answer.word.value] += 1
        outcomes["probes"] += answer.probes
    counts = {
        name: outcomes[name] for name in ("best", "as good as", "cannot tell", "a_wrong_best")
    }
    return {
        "leader_right": outcomes["leader_right"],
        "word_right": outcomes["word_right"],
        "most_probes_to_the_leader": most,
        "probes": outcomes["probes"],
        **counts,
    }
