"""Five hundred random sequences on modelled kernels; ``make soak`` runs a hundred thousand.

``python -m tests.kernel SEED`` runs one again and shows the shortest form of what fails.
"""

import pytest

from tests.kernel.invariants import asserted
from tests.kernel.sequences import described, sequence, violations

SEQUENCES = 500


@pytest.mark.parametrize("first", range(0, SEQUENCES, 50))
def test_random_sequences_violate_no_invariant(first: int) -> None:
    for seed in range(first, first + 50):
        made = sequence(seed)
        found = list(asserted(violations(made)))
        assert not found, "\n".join(described(made, found))


def test_seed_repeats_sequence() -> None:
    assert sequence(7) == sequence(7)
    assert sequence(7) != sequence(8)
    assert violations(sequence(7)) == violations(sequence(7))
