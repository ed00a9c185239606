"""Every system call of the commands that change values fails once in every way in which it can."""

import os
import time
from collections import Counter
from multiprocessing import get_context

from tests.kernel.faults import SCENARIOS, Fault, Results, machine
from tests.soak.kept import save_results

_AT_ONCE = 50
# More than there are CPUs: a run whose call hangs mostly waits.
_PROCESSES = 2 * (os.cpu_count() or 1)


def _faults(name: str) -> tuple[str, int, list[Fault]]:
    with machine(name) as simulated_machine:
        return name, len(simulated_machine.calls), simulated_machine.faults()


def _fail(part: tuple[str, list[Fault]]) -> tuple[str, Results]:
    name, faults = part
    results = Results()
    with machine(name) as simulated_machine:
        simulated_machine.fail(faults, results)
    return name, results


def test_no_failed_call_is_success() -> None:
    began = time.monotonic()
    problems: list[str] = []
    counts: dict[str, dict[str, object]] = {}
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in SCENARIOS}
    values: Counter[str] = Counter()
    with get_context("fork").Pool(_PROCESSES, maxtasksperchild=1) as pool:
        parts = []
        for name, calls, faults in pool.map(_faults, SCENARIOS, chunksize=1):
            counts[name] = {
                "calls": calls,
                "failures": dict(sorted(Counter(fault.kind for fault in faults).items())),
            }
            starts = range(0, len(faults), _AT_ONCE)
            parts += [(name, faults[start : start + _AT_ONCE]) for start in starts]
        for name, results in pool.imap_unordered(_fail, parts, chunksize=1):
            outcomes[name] += results.outcomes
            problems += results.problems
            values[name] += results.restored
    save_results(
        "Each system call of a command on its files, devices and processes failed once in each way",
        name="faults",
        kernel=os.uname().release,
        seconds=round(time.monotonic() - began),
        commands={
            name: {
                **counts[name],
                "outcomes": dict(sorted(outcomes[name].items())),
                "values_restored_afterwards": values[name],
            }
            for name in SCENARIOS
        },
        problems=sorted(problems)[:100],
    )
    assert not problems, "\n".join(problems[:20])
