"""SIGKILL at two hundred instants spread evenly over an apply: rollback restores, every time."""

import time
from collections import Counter

import pytest

from tests.lab.guest.command import Forked, hbatune
from tests.lab.guest.values import everything
from tests.soak.guest.results import kept

INSTANTS = 200
APPLY = ("apply", "--profile", "oltp", "--no-probe")


@pytest.mark.deadline(3600)
def test_killed_at_two_hundred_instants_rollback_restores() -> None:
    before = everything()
    began = time.monotonic()
    assert hbatune(*APPLY).code == 0
    seconds = time.monotonic() - began
    assert hbatune("rollback").code == 0
    assert everything() == before
    found: Counter[str] = Counter()
    for instant in range(INSTANTS):
        run = Forked(*APPLY)
        run.kill_after(seconds * instant / INSTANTS)
        ended = run.wait()
        half_way = everything()
        changed = sum(half_way[name] != text for name, text in before.items() if name in half_way)
        seen = hbatune("diff", "--profile", "oltp")
        interrupted = "was interrupted" in seen.err
        done = not ended.killed or seen.code == 0
        assert done or not changed or interrupted, f"instant {instant}: changed in silence"
        found["ended before" if done else "with changes" if changed else "before changes"] += 1
        back = hbatune("rollback")
        assert back.code == 0, f"instant {instant}: {back.err}"
        assert everything() == before, f"instant {instant}"
        found["restored"] += 1
    kept(
        "SIGKILL at instants spread evenly over an apply, rollback after each",
        name="killed_anywhere",
        instants=INSTANTS,
        apply_seconds=round(seconds, 2),
        **{word.replace(" ", "_"): count for word, count in sorted(found.items())},
    )
