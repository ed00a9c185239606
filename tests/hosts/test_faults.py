"""Single system calls of each command fail in many ways: what the commands claim is true."""

import re

import pytest

from tests.kernel.faults import SCENARIOS, Results, machine, one_of_each

FAULTS = 30
"""Of each command; `make soak` has all."""

ONCE_SUCCESS = (
    ("apply", r"block/sdc #1: EMFILE"),  # its protocol and id were not read, and it was left alone
    ("apply", r"sas_address #1: EIO"),
    ("switch", r"open\(read\) state/journal.json #2: EIO"),  # the values to restore were not read
    ("pass", r"open\(read\) state/rollbacks #2: EIO"),  # everything counted as rolled back
)
"""Faults with which a command once ended as if all was well, by scenario and pattern."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_failed_call_is_never_success(name: str) -> None:
    results = Results()
    with machine(name) as simulated_machine:
        faults = one_of_each(simulated_machine.faults(), seed=1, most=FAULTS)
        simulated_machine.fail(faults, results)
    assert not results.problems, "\n".join(results.problems)
    injected = sum(results.outcomes.values()) - results.outcomes["not reached"]
    assert injected >= len(faults) * 9 // 10, results.outcomes


@pytest.mark.parametrize(("name", "pattern"), ONCE_SUCCESS)
def test_past_fault_is_never_success(name: str, pattern: str) -> None:
    results = Results()
    with machine(name) as simulated_machine:
        simulated_machine.fail(
            [fault for fault in simulated_machine.faults() if re.search(pattern, str(fault))],
            results,
        )
    assert not results.problems, "\n".join(results.problems)
    assert results.outcomes["named"] + results.outcomes["refused"] >= 1, results.outcomes
