"""Depth searches on the simulated devices, held against their truth and against the full sweep."""

import math
from collections.abc import Collection, Iterator, Sequence
from random import Random

from msgspec import Struct

from hbatune.probe.history import Measurement
from hbatune.search.curve import compute_log_error
from hbatune.search.depth import (
    DepthAnswer,
    DepthConclusion,
    DepthSearch,
    add_measurement,
    answer_depth,
    choose_next_probe,
)
from tests.zoo.devices import DEEPEST, GRID, ZOO, Device, at, truth

WINDOWS = 4
ENOUGH = 0.97
"""The share of the best rate within the objective that a depth has to reach."""
MISSED = 1.10
"""From this factor over the objective on, it is missed."""
SWEEP = tuple(1 << step for step in range(9))
_CURRENT = (1, 2, 8, 16, 32, 64, 128, 254)
_FACTORS = ((1.3, 3.0), (1.5, 5.0), (2.0, 4.0))


class Noise(Struct, frozen=True):
    """The noise of one probe, as shares of rate and p99.

    ``unseen`` is the share of its variance that a whole probe has in common, so that its windows do
    not show it.
    """

    iops: float
    p99: float
    unseen: float = 0.0


QUIET = Noise(0.02, 0.08)
NOISY = Noise(0.09, 0.21)
NOISIER_THAN_SEEN = Noise(0.09, 0.21, unseen=0.5)


class Case(Struct, frozen=True):
    """A device with an objective, a p99 in µs, and the I/Os that its truth is simulated from."""

    device: Device
    factor: float
    objective_us: float
    ios: int

    @property
    def name(self) -> str:
        """The device, and the objective as a factor of the p99 of one I/O."""
        return f"{self.device.name}, {self.factor} of idle p99"

    def share(self, depth: int) -> float:
        """Return the share that a depth has of the best rate within the objective."""
        behaviours = truth(self.device, self.ios)
        best = max(
            behaviour.iops for behaviour in behaviours if behaviour.p99_us <= self.objective_us
        )
        return at(self.device, depth, self.ios).iops / best

    def over(self, depth: int) -> float:
        """Return the p99 of a depth over the objective."""
        return at(self.device, depth, self.ios).p99_us / self.objective_us

    def right(self, depth: int) -> bool:
        """Whether a depth has enough of the best rate and does not miss the objective."""
        return self.share(depth) >= ENOUGH and self.over(depth) <= MISSED


class Counts(Struct):
    """What became of runs: ``strictly`` are right and not above the objective at all.

    ``stated`` is the sum of the chances that the told answers gave themselves. Beside the search
    stand a sweep of the powers of two, and one of all depths of which the truth was simulated.
    """

    runs: int = 0
    probes: int = 0
    most_probes: int = 0
    seconds: float = 0.0
    right: int = 0
    strictly: int = 0
    missed: int = 0
    as_good: int = 0
    told: int = 0
    told_right: int = 0
    told_missed: int = 0
    stated: float = 0.0
    sweep_right: int = 0
    sweep_missed: int = 0
    grid_right: int = 0
    grid_missed: int = 0


def cases(ios: int, devices: Collection[Device] = ZOO) -> Iterator[Case]:
    """Yield devices, each with a tight objective and a wide one."""
    for number, device in enumerate(ZOO):
        if device not in devices:
            continue
        idle = truth(device, ios)[0].p99_us
        for factor in _FACTORS[number % len(_FACTORS)]:
            yield Case(device, factor, factor * idle, ios)


def measure(case: Case, depth: int, noise: Noise, random: Random) -> Measurement:
    """Return what a probe of a depth measures."""
    true = at(case.device, depth, case.ios)
    iops, iops_error = _disturbed(true.iops, noise.iops, noise.unseen, random)
    p99, p99_error = _disturbed(true.p99_us, noise.p99, noise.unseen, random)
    return Measurement(depth, iops, p99, iops_error, p99_error)


def search(case: Case, noise: Noise, seed: int) -> tuple[DepthAnswer, float, DepthSearch]:
    """Return the answer of a search from a depth in force drawn by lot, and its seconds."""
    random = Random(f"{case.name} {noise} {seed}")
    searched = DepthSearch(random.choice(_CURRENT), DEEPEST, case.objective_us)
    seconds = 0.0
    while (probe := choose_next_probe(searched)) is not None:
        seconds += probe.seconds
        searched = add_measurement(searched, measure(case, probe.depth, noise, random))
    return answer_depth(searched), seconds, searched


def sweep(case: Case, noise: Noise, seed: int, depths: Sequence[int] = SWEEP) -> int:
    """Return the depth that a sweep would choose, by itself one of the powers of two."""
    random = Random(f"sweep {case.name} {noise} {seed}")
    measurements = [measure(case, depth, noise, random) for depth in depths]
    within = [
        measurement for measurement in measurements if measurement.p99_us <= case.objective_us
    ] or measurements[:1]
    return max(within, key=lambda measurement: measurement.iops).depth


def count(
    noise: Noise, seeds: range, ios: int, devices: Collection[Device] = ZOO
) -> tuple[Counts, dict[str, Counts]]:
    """Search all cases with all seeds; return the counts of all, and those of each case."""
    total, by_case = Counts(), dict[str, Counts]()
    for case in cases(ios, devices):
        case_counts = by_case[case.name] = Counts()
        for seed in seeds:
            answer, seconds, _ = search(case, noise, seed)
            swept, every = sweep(case, noise, seed), sweep(case, noise, seed, GRID)
            for counts in (total, case_counts):
                _add(counts, case, answer, seconds)
                counts.sweep_right += case.right(swept)
                counts.sweep_missed += case.over(swept) > MISSED
                counts.grid_right += case.right(every)
                counts.grid_missed += case.over(every) > MISSED
    return total, by_case


def _add(counts: Counts, case: Case, answer: DepthAnswer, seconds: float) -> None:
    right, missed = case.right(answer.depth), case.over(answer.depth) > MISSED
    conclusive = answer.word in (DepthConclusion.BEST, DepthConclusion.AS_GOOD)
    counts.runs += 1
    counts.probes += answer.probes
    counts.most_probes = max(counts.most_probes, answer.probes)
    counts.seconds += seconds
    counts.right += right
    counts.strictly += right and case.over(answer.depth) <= 1
    counts.missed += missed
    counts.as_good += answer.word is DepthConclusion.AS_GOOD
    counts.told += conclusive
    counts.told_right += conclusive and right
    counts.told_missed += conclusive and missed
    counts.stated += answer.chance if conclusive else 0


def _disturbed(true: float, noise: float, unseen: float, random: Random) -> tuple[float, float]:
    """Return a probe's value with its noise, and the error that its windows show."""
    common = random.gauss(0, noise * math.sqrt(unseen))
    spread = noise * math.sqrt((1 - unseen) * WINDOWS)
    windows = [math.exp(common + random.gauss(0, spread)) for _ in range(WINDOWS)]
    mean = math.exp(math.fsum(map(math.log, windows)) / WINDOWS)
    return true * mean, compute_log_error(windows)
