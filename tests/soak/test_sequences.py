"""A hundred thousand random sequences on modelled kernels: no invariant is violated."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context

from tests.kernel.invariants import ASSERTED, asserted
from tests.kernel.sequences import described, sequence, violations
from tests.soak.kept import save_results

SEQUENCES = 100_000
_AT_ONCE = 100
_SHOWN = 20


def _run(first: int) -> list[tuple[int, str, str]]:
    """Run some seeds; return the seed, the invariant and the account of each violation."""
    return list(_violated(range(first, first + _AT_ONCE)))


def _violated(seeds: range) -> Iterator[tuple[int, str, str]]:
    for seed in seeds:
        scenario = sequence(seed)
        for violation in asserted(violations(scenario)):
            yield seed, violation.invariant, "\n".join(described(scenario, [violation]))


def test_random_sequences_violate_no_invariant() -> None:
    began = time.monotonic()
    with get_context("fork").Pool(os.cpu_count()) as pool:
        parts = pool.imap_unordered(_run, range(0, SEQUENCES, _AT_ONCE))
        all_violations = [violation for part in parts for violation in part]
    counts = Counter(invariant for _, invariant, _ in all_violations)
    save_results(
        "random sequences of commands, administrators, events and failures on modelled kernels",
        name="sequences",
        count=SEQUENCES,
        seconds=round(time.monotonic() - began),
        invariants=list(ASSERTED),
        violations=dict(counts),
        seeds=sorted({seed for seed, _, _ in all_violations})[:_SHOWN],
    )
    assert not all_violations, "\n\n".join(account for _, _, account in all_violations[:_SHOWN])
