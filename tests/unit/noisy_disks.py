"""A machine that measures with noise of a known kind, for tests of what is made of it."""

import math
from random import Random

from msgspec import Struct

from hbatune.probe.result import Figures


class Noise(Struct, frozen=True):
    """What disturbs runs, all in shares: ``near`` of one run's noise is left in the next.

    ``tail`` is how often a run meets a burst, ``drift`` how much slower each run is than the last.
    ``cold`` is how much slower the first run is than one from a warm cache, which half of that is
    left of two runs later, and so on. ``neighbour`` is how much slower runs are from the ninth on.
    """

    spread: float
    near: float = 0.0
    tail: float = 0.0
    drift: float = 0.0
    cold: float = 0.0
    neighbour: float = 0.0


NOISES = {
    "quiet": Noise(0.01),
    "autocorrelated": Noise(0.08, near=0.8),
    "heavy-tailed": Noise(0.05, near=0.3, tail=0.15),
    "drifting": Noise(0.02, near=0.2, drift=0.02),
    "all of it": Noise(0.05, near=0.7, tail=0.1, drift=0.01),
    "a cache that warms up": Noise(0.03, near=0.3, cold=6.0),
    "a neighbour from halfway": Noise(0.05, near=0.5, tail=0.1, neighbour=1.5),
}


class NoisyDisk:
    """A disk of 60,000 IOPS at depth 24; runs follow each other and share their noise."""

    def __init__(self, noise: Noise, seed: int) -> None:
        self.random = Random(seed)
        self._noise = noise
        self._state = self.random.gauss(0, noise.spread)
        self._runs = 0

    def run(self, slower: float = 1.0) -> Figures:
        """Return the figures of one run in which an I/O takes ``slower`` times as long."""
        noise, random = self._noise, self.random
        fresh = math.sqrt(1 - noise.near**2) * random.gauss(0, noise.spread)
        self._state = noise.near * self._state + fresh
        cold = noise.cold * 0.5 ** (self._runs / 2)
        beside = noise.neighbour if self._runs >= 8 else 0.0
        self._runs += 1
        mean = slower * math.exp(self._state + noise.drift * self._runs + self._burst())
        mean *= 1 + cold + beside
        p99 = mean * math.exp(random.gauss(0, noise.spread) + self._burst())
        return figures(60_000 / mean, 400 * mean, 900 * p99)

    def pairs(self, count: int, slower: float = 1.0) -> list[tuple[Figures, Figures]]:
        """Return pairs of runs before and after a change, each pair run in random order."""
        run_pairs = []
        for _ in range(count):
            if self.random.random() < 0.5:
                before = self.run()
                run_pairs.append((before, self.run(slower)))
            else:
                after = self.run(slower)
                run_pairs.append((self.run(), after))
        return run_pairs

    def _burst(self) -> float:
        if self.random.random() >= self._noise.tail:
            return 0.0
        return 6 * self._noise.spread * self.random.expovariate(1)


def figures(iops: float, mean_us: float, p99_us: float) -> Figures:
    """Return figures of which only these count."""
    return Figures(
        iops=iops,
        bandwidth=iops * 4096,
        mean_us=mean_us,
        p50_us=mean_us,
        p95_us=p99_us,
        p99_us=p99_us,
        p999_us=p99_us,
        cpu_us_per_io=1.0,
        ios=round(iops),
        runtime=1.0,
        job_iops=(iops,),
    )
