"""How much probing fits into a given time: shorter runs first, then fewer representatives. Pure."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.probe.model import Subject, Workload
from hbatune.probe.run import estimate

APPLY = 60.0
"""Seconds that the probes before and after an apply may take together."""
SHORTEST = 1.0
"""Seconds below which a run says too little."""


class Budget(Struct, frozen=True):
    """What is probed, how, and how long that takes; ``left_out`` did not fit."""

    subjects: tuple[Subject, ...]
    workload: Workload
    seconds: float
    left_out: tuple[Subject, ...] = ()


def fit(subjects: Sequence[Subject], workload: Workload, runs: int, limit: float) -> Budget:
    """Return how ``runs`` runs on each subject fit into ``limit`` seconds.

    Runs are made as short as need be, but not shorter than a second; then the last subjects go.
    """
    if not subjects:
        return Budget((), workload, 0.0)
    count = len(subjects)
    fixed = estimate(1, workload) - workload.runtime
    room = limit / (count * runs) - fixed
    if room < workload.runtime:
        workload = replace(workload, runtime=max(min(SHORTEST, workload.runtime), room))
        count = min(count, int(limit / (runs * estimate(1, workload)) + 1e-9))
    return Budget(
        tuple(subjects[:count]),
        workload,
        runs * estimate(count, workload),
        tuple(subjects[count:]),
    )
