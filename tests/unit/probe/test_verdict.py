"""Verdicts of machines whose truth is known: what does nothing, and what does something."""

import math
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import ValidationError, convert

from hbatune.policy.config import ProbeConfig
from hbatune.policy.profile import Tolerance
from hbatune.probe import verdict
from hbatune.probe.result import Figures
from hbatune.probe.verdict import (
    ALPHA,
    DEFAULT_PAIRS,
    MAX_ADVICE_S,
    MAX_PAIRS,
    MIN_PAIRS,
    Conclusion,
    Design,
    Metric,
    Verdict,
    compute_chance,
    compute_noise_floor,
    describe_bursts,
    evaluate_blocks,
    evaluate_pairs,
)
from tests.unit.noisy_disks import NOISES, Noise, NoisyDisk, figures

SECONDS = 4.0
FALSE_ALARMS = {Conclusion.IMPROVED, Conclusion.REGRESSED}
TOLERANCE = Tolerance()


def judged(noise: str, seed: int, slower: float = 1.0, count: int = DEFAULT_PAIRS) -> Verdict:
    return evaluate_pairs(NoisyDisk(NOISES[noise], seed).pairs(count, slower), TOLERANCE, SECONDS)


@pytest.mark.parametrize("count", [MIN_PAIRS, DEFAULT_PAIRS])
@pytest.mark.parametrize("noise", NOISES)
def test_identical_settings_rarely_alarm(noise: str, count: int) -> None:
    # Of 400 with a rate of 1 % more than 10 would be one chance in a hundred.
    alarms = sum(judged(noise, seed, count=count).word in FALSE_ALARMS for seed in range(400))
    assert alarms <= 10


def test_apply_uses_fewest_pairs() -> None:
    fewer = compute_chance([[1.0]] * (MIN_PAIRS - 1))[0]
    assert compute_chance([[1.0]] * MIN_PAIRS)[0] <= ALPHA < fewer


@pytest.mark.parametrize(
    ("noise", "least"),
    [("quiet", 95), ("drifting", 95), ("a cache that warms up", 95), ("heavy-tailed", 90)],
)
def test_fewest_pairs_detect_fourfold_change(noise: str, least: int) -> None:
    # A depth raised from 32 to 128 on a disk that takes the same time for each I/O, and cut again.
    better = Counter(judged(noise, seed, 0.25, MIN_PAIRS).word for seed in range(100))
    worse = [judged(noise, seed, 4.0, MIN_PAIRS) for seed in range(100)]
    assert better[Conclusion.IMPROVED] >= least
    assert (
        sum(
            judgement.word is Conclusion.REGRESSED and bool(judgement.beyond) for judgement in worse
        )
        >= least
    )


def test_chance_alone_limits_false_alarms() -> None:
    rare = 0
    for seed in range(2000):
        pairs = NoisyDisk(NOISES["all of it"], seed).pairs(DEFAULT_PAIRS)
        gaps = [
            [metric.of(after) / metric.of(before) - 1 for metric in Metric]
            for before, after in pairs
        ]
        rare += min(verdict.compute_chance(gaps)) <= 0.01
    assert rare <= 32  # of 2,000 at 1 %: 20, and 2.7 standard deviations


@pytest.mark.parametrize("noise", ["quiet", "drifting"])
def test_fifteen_percent_is_detected(noise: str) -> None:
    slower = Counter(judged(noise, seed, 1.15).word for seed in range(100))
    faster = Counter(judged(noise, seed, 1 / 1.15).word for seed in range(100))
    assert slower[Conclusion.REGRESSED] >= 90
    assert faster[Conclusion.IMPROVED] >= 90
    assert not slower[Conclusion.IMPROVED] + faster[Conclusion.REGRESSED]


def test_eightfold_slowdown_survives_noise() -> None:
    for noise in NOISES:
        judgement = judged(noise, 1, 8.0)
        assert judgement.word is Conclusion.REGRESSED, noise
        assert judgement.beyond == tuple(Metric)


def test_quiet_machine_proves_no_change() -> None:
    judgement = judged("quiet", 1)
    assert (judgement.word, judgement.more_seconds, judgement.beyond) == (
        Conclusion.UNCHANGED,
        None,
        (),
    )
    assert all(change.low <= change.ratio <= change.high for change in judgement.changes)
    assert all(change.low > 0.9 and change.high < 1.1 for change in judgement.changes)


def test_noisy_verdict_estimates_time() -> None:
    conclusions, seconds = Counter[Conclusion](), 0.5
    for seed in range(20):
        first = evaluate_pairs(
            NoisyDisk(Noise(0.06), seed).pairs(DEFAULT_PAIRS), TOLERANCE, seconds
        )
        assert first.word is Conclusion.CANNOT_TELL
        assert first.more_seconds is not None
        assert first.more_seconds >= seconds
        # With so many more pairs it can, as a rule: the seconds are no mere phrase.
        count = DEFAULT_PAIRS + round(first.more_seconds / seconds)
        longer = evaluate_pairs(NoisyDisk(Noise(0.06), seed).pairs(count), TOLERANCE, SECONDS)
        conclusions[longer.word] += 1
    assert conclusions[Conclusion.UNCHANGED] >= 10


def test_profile_tolerates_small_regression() -> None:
    pairs = [
        (figures(1000, 400, 900), figures(957 + n % 3, 418 - n % 3, 945 + n % 3))
        for n in range(DEFAULT_PAIRS)
    ]
    strict = evaluate_pairs(pairs, Tolerance(iops=0.02, mean=0.02, p99=0.02), SECONDS)
    assert strict.word is Conclusion.REGRESSED
    assert strict.beyond == tuple(Metric)
    mild = evaluate_pairs(pairs, Tolerance(iops=0.02, mean=0.02, p99=0.10), SECONDS)
    assert mild.beyond == (Metric.IOPS, Metric.MEAN)
    assert evaluate_pairs(pairs, TOLERANCE, SECONDS).word is Conclusion.UNCHANGED


def test_better_rate_exposes_worse_tail() -> None:
    pairs = [
        (figures(1000 + n, 400, 900 + n), figures(1200 + n, 330, 1500 + n))
        for n in range(DEFAULT_PAIRS)
    ]
    judgement = evaluate_pairs(pairs, TOLERANCE, SECONDS)
    words = {change.metric: change.word for change in judgement.changes}
    assert words == {
        Metric.IOPS: Conclusion.IMPROVED,
        Metric.MEAN: Conclusion.IMPROVED,
        Metric.P99: Conclusion.REGRESSED,
    }
    assert (judgement.word, judgement.beyond) == (Conclusion.REGRESSED, (Metric.P99,))


def test_change_within_noise_is_inconclusive() -> None:
    # Every pair differs the same way, but runs of one setting differ twice as much.
    swing = [1.0, 1.5, 0.7, 1.4, 0.8, 1.6, 0.7, 1.5, 0.8, 1.4]
    pairs = [
        (figures(1000 * x, 400 / x, 900 / x), figures(1100 * x, 363 / x, 810 / x)) for x in swing
    ]
    judgement = evaluate_pairs(pairs, TOLERANCE, SECONDS)
    assert all(change.chance is not None and change.chance <= 0.01 for change in judgement.changes)
    assert judgement.word is Conclusion.CANNOT_TELL


def test_noise_floor_ignores_side_gap() -> None:
    assert compute_noise_floor([[1.0] * 5, [2.0] * 5]) == 0
    quiet = compute_noise_floor([[1.0, 1.01] * 5, [1.0, 1.01] * 5])
    assert compute_noise_floor([[1.0, 1.1] * 5, [1.0, 1.1] * 5]) > 5 * quiet


RUNS = st.tuples(*(st.floats(0, 1e12) for _ in Metric)).map(lambda values: figures(*values))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.tuples(RUNS, RUNS), max_size=14))
def test_any_figures_give_valid_verdict(
    pairs: list[tuple[Figures, Figures]],
) -> None:
    before, after = [first for first, _ in pairs], [second for _, second in pairs]
    for judgement in (
        evaluate_pairs(pairs, TOLERANCE, SECONDS),
        evaluate_blocks(before, after, TOLERANCE, SECONDS),
    ):
        assert msgspec.json.decode(msgspec.json.encode(judgement), type=Verdict) == judgement
        assert judgement.more_seconds is None or judgement.word is Conclusion.CANNOT_TELL
        assert judgement.runs + (judgement.more_runs or 0) <= MAX_PAIRS
        for change in judgement.changes:
            assert 0 < change.low <= change.high < math.inf


@pytest.mark.parametrize(
    ("count", "word"),
    [(DEFAULT_PAIRS, Conclusion.UNCHANGED), (DEFAULT_PAIRS - 1, Conclusion.CANNOT_TELL)],
)
def test_outlier_pair_decides_nothing(count: int, word: Conclusion) -> None:
    pairs = [(figures(1000, 400, 900), figures(1000 + n * 1e-6, 400, 900)) for n in range(count)]
    pairs[3] = (figures(1000, 400, 900), figures(5000, 80, 200))
    judgement = evaluate_pairs(pairs, TOLERANCE, SECONDS)
    assert judgement.word is word
    assert all(math.isfinite(change.high) for change in judgement.changes)
    if word is Conclusion.UNCHANGED:
        assert judgement.changes[0].after == pytest.approx(1000)


@pytest.mark.parametrize(("count", "more"), [(0, None), (1, 7)])
def test_too_few_pairs_are_inconclusive(count: int, more: int | None) -> None:
    pairs = NoisyDisk(NOISES["quiet"], 1).pairs(count, 8.0)
    judgement = evaluate_pairs(pairs, TOLERANCE, SECONDS)
    words = (Conclusion.CANNOT_TELL, Design.INTERLEAVED, count, ())
    assert judgement == Verdict(*words, more, None if more is None else more * SECONDS)


def test_excessive_advice_is_omitted() -> None:
    slow, fast = figures(1000, 400, 900), figures(1200, 333, 750)
    pairs = [(slow, fast), (fast, slow)] * 5
    usual = evaluate_pairs(pairs, TOLERANCE, 0.001)
    assert usual.more_runs is not None
    assert usual.runs + usual.more_runs <= MAX_PAIRS
    seconds = 1.1 * MAX_ADVICE_S / (usual.runs + usual.more_runs)
    narrow = Tolerance(0.001, 0.001, 0.001)
    for excessive in (
        evaluate_pairs(pairs, TOLERANCE, seconds),
        evaluate_pairs(pairs, narrow, 0.001),
    ):
        assert (excessive.word, excessive.more_runs) == (Conclusion.CANNOT_TELL, None)
        assert excessive.more_seconds is None


def test_advice_obeys_configuration() -> None:
    config = convert({"verify_pairs": MAX_PAIRS}, ProbeConfig)
    assert config.verify_limit == MAX_ADVICE_S
    with pytest.raises(ValidationError):
        convert({"verify_pairs": MAX_PAIRS + 1}, ProbeConfig)


def test_seven_pairs_are_inconclusive() -> None:
    judgement = evaluate_pairs(NoisyDisk(NOISES["quiet"], 1).pairs(7, 8.0), TOLERANCE, SECONDS)
    assert (judgement.word, judgement.more_seconds) == (Conclusion.CANNOT_TELL, SECONDS)


def in_blocks(noise: str, seed: int, slower: float = 1.0) -> Verdict:
    disk = NoisyDisk(NOISES[noise], seed)
    before = [disk.run() for _ in range(DEFAULT_PAIRS)]
    return evaluate_blocks(
        before, [disk.run(slower) for _ in range(DEFAULT_PAIRS)], TOLERANCE, SECONDS
    )


@pytest.mark.parametrize("noise", NOISES)
def test_drifting_blocks_raise_few_alarms(noise: str) -> None:
    alarms = sum(in_blocks(noise, seed).word in FALSE_ALARMS for seed in range(200))
    assert alarms <= 6


def test_blocks_detect_large_change() -> None:
    judgement = in_blocks("drifting", 1, 8.0)
    assert (judgement.word, judgement.design, judgement.beyond) == (
        Conclusion.REGRESSED,
        Design.BLOCKS,
        tuple(Metric),
    )
    assert all(change.chance is None for change in judgement.changes)


def test_three_runs_form_no_block() -> None:
    runs = [figures(1000, 400, 900)] * 3
    assert evaluate_blocks(runs, runs, TOLERANCE, SECONDS).word is Conclusion.CANNOT_TELL


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ((800, 900), Conclusion.REGRESSED),
        ((800, 970), Conclusion.CANNOT_TELL),
        ((990, 1010), Conclusion.UNCHANGED),
        ((1200, 1300), Conclusion.IMPROVED),
    ],
)
def test_bursts_need_agreeing_pairs(rates: tuple[int, int], word: Conclusion) -> None:
    before = figures(1000, 400, 900)
    pairs = [(before, figures(rate, 400_000 / rate, 900_000 / rate)) for rate in rates]
    burst = describe_bursts(pairs, TOLERANCE, SECONDS)
    assert (burst.changes[0].word, burst.design) == (word, Design.BURSTS)
    low, high = burst.changes[0].low, burst.changes[0].high
    assert (low, high) == pytest.approx((rates[0] / 1000, rates[1] / 1000))
    assert describe_bursts(pairs[:1], TOLERANCE, SECONDS).changes == ()
