"""Ten thousand commands killed at random system calls: a rollback restores or names everything."""

import os
import time
from collections import Counter
from multiprocessing import get_context

from tests.kernel.kills import Killings, kill
from tests.soak.kept import save_results

KILLS = 10_000
_AT_ONCE = 250


def _kill(seed: int) -> Killings:
    return kill(_AT_ONCE, seed)


def test_rollback_recovers_10000_kills() -> None:
    began = time.monotonic()
    counts: Counter[str] = Counter()
    problems: list[str] = []
    with get_context("fork").Pool(os.cpu_count()) as pool:
        for killings in pool.imap_unordered(_kill, range(KILLS // _AT_ONCE)):
            counts += killings.counts
            problems += killings.problems
    save_results(
        "SIGKILL at random system calls of commands on modelled disks, a rollback after each",
        name="kills",
        count=KILLS,
        seconds=round(time.monotonic() - began),
        outcomes=dict(sorted(counts.items())),
        problems=problems[:20],
    )
    assert not problems, "\n".join(problems[:20])
