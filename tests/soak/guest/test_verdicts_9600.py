"""Default applies of `oltp` on a disk of an emulated 9600: the share of each verdict.

The disk is a file. This machine and its emulator decide its times.
"""

from collections import Counter

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.soak.guest.results import save_results

KERNELS = ("6.12",)
TOPOLOGY = "tri-mode"
TIMES = 10


@pytest.mark.deadline(3600)
def test_default_applies_are_judged() -> None:
    disk = tri_mode.of("SEAGATE")[0]
    words: Counter[str] = Counter()
    for _ in range(TIMES):
        done = hbatune("apply", "--profile", "oltp", "--once", "--json", disk)
        assert done.code in (0, 1), done.err
        for proof in done.json["verdicts"]:
            assert proof["last"]["workload"]["depth"] == 24
            words[proof["verdict"]["word"]] += 1
        hbatune("rollback")
    save_results(
        "default applies of oltp on an emulated 9600",
        name="verdicts_9600",
        comparisons=TIMES,
        words=dict(words),
    )
    assert words.total() >= TIMES
