"""Single system calls of each command fail in many ways: what the commands claim is true."""

import pytest

from tests.kernel.faults import SCENARIOS, Results, machine, one_of_each

FAULTS = 60
"""Of each command; `make soak` has all."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_failed_call_is_never_success(name: str) -> None:
    results = Results()
    with machine(name) as made:
        faults = one_of_each(made.faults(), seed=1, most=FAULTS)
        made.fail(faults, results)
    assert not results.problems, "\n".join(results.problems)
    injected = sum(results.outcomes.values()) - results.outcomes["not reached"]
    assert injected >= len(faults) * 9 // 10, results.outcomes
