"""Other searches for a depth on the same devices, with the same noise: fio's own, and Optuna's.

Only `make soak` uses them. Optuna is an extra of its own, since it takes 140 MB.
"""

from random import Random

from hbatune.probe.history import Measurement
from tests.zoo.devices import DEEPEST
from tests.zoo.runs import Case, Noise, measure

_LONGEST = 64
"""Windows after which fio's search is ended: with noise it may go back and forth for long."""


def latency_target(case: Case, noise: Noise, seed: int) -> tuple[int, int]:
    """Return the depth that fio's ``latency_target`` settles at, and its windows.

    It doubles the depth until a window's percentile is above the target, halves the way back to the
    last good depth, and half the way up again; where a good window changes nothing any more, it is
    done. A failure at depth 1 ends fio. (fio, io_u.c: lat_target_success, lat_target_failed)
    """
    random = Random(f"latency_target {case.name} {noise} {seed}")
    depth, low, high = 1, 1, DEEPEST
    for windows in range(1, _LONGEST + 1):
        if measure(case, depth, noise, random).p99_us <= case.objective_us:
            low = depth
            deeper = (depth + high) // 2 if high != DEEPEST else min(2 * depth, DEEPEST)
            if deeper == depth:
                return depth, windows
            depth = deeper
        elif depth == 1:
            return depth, windows
        else:
            high = depth
            if depth == low:
                low -= 1
            depth = max((depth + low) // 2, 1)
    return depth, _LONGEST


def optuna_search(case: Case, noise: Noise, seed: int, probes: int) -> int:
    """Return the depth that Optuna's TPE sampler finds best, with the objective as a constraint.

    Depths are drawn on a logarithmic scale. If no probe was within the objective, the answer is the
    depth with the lowest p99.
    """
    import optuna  # 0.6 s, and an extra

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    random = Random(f"optuna {case.name} {noise} {seed}")
    measurements = list[Measurement]()

    def rate(trial: "optuna.Trial") -> float:
        measurement = measure(case, trial.suggest_int("depth", 1, DEEPEST, log=True), noise, random)
        measurements.append(measurement)
        trial.set_constraint("p99", measurement.p99_us / case.objective_us - 1)
        return measurement.iops

    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=probes // 2)
    optuna.create_study(direction="maximize", sampler=sampler).optimize(rate, n_trials=probes)
    within = [
        measurement for measurement in measurements if measurement.p99_us <= case.objective_us
    ]
    if not within:
        return min(measurements, key=lambda measurement: measurement.p99_us).depth
    return max(within, key=lambda measurement: measurement.iops).depth
