"""SIGKILL at hundreds of instants spread evenly over a run: rollback restores, every time."""

import time
from collections import Counter

import pytest

from tests.lab.guest.command import Forked, hbatune
from tests.lab.guest.values import everything
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
INSTANTS = 200
FEWER = 100
APPLY = ("apply", "--profile", "oltp", "--no-probe")
SWITCH = ("apply", "--profile", "throughput", "--no-probe")


@pytest.mark.deadline(3600)
def test_rollback_recovers_200_kills() -> None:
    before = everything()
    began = time.monotonic()
    assert hbatune(*APPLY).code == 0
    seconds = time.monotonic() - began
    assert hbatune("rollback").code == 0
    assert everything() == before
    outcomes: Counter[str] = Counter()
    for instant in range(INSTANTS):
        run = Forked(*APPLY)
        run.kill_after(seconds * instant / INSTANTS)
        ended = run.wait()
        half_way = everything()
        changed = sum(half_way[name] != text for name, text in before.items() if name in half_way)
        diff = hbatune("diff", "--profile", "oltp")
        interrupted = "was interrupted" in diff.err
        done = not ended.killed or diff.code == 0
        assert done or not changed or interrupted, f"instant {instant}: changed in silence"
        outcomes["ended before" if done else "with changes" if changed else "before changes"] += 1
        restored(before, f"instant {instant}")
        outcomes["restored"] += 1
    save_results(
        "SIGKILL at instants spread evenly over an apply, rollback after each",
        name="killed_anywhere",
        instants=INSTANTS,
        apply_seconds=round(seconds, 2),
        **{outcome.replace(" ", "_"): count for outcome, count in sorted(outcomes.items())},
    )


@pytest.mark.deadline(3600)
@pytest.mark.parametrize("killed", [("rollback",), SWITCH], ids=["rollback", "switch"])
def test_killed_rollback_or_switch_recovers(
    killed: tuple[str, ...],
) -> None:
    before = everything()
    assert hbatune(*APPLY).code == 0
    began = time.monotonic()
    assert hbatune(*killed).code == 0
    seconds = time.monotonic() - began
    restored(before, "not killed")
    outcomes: Counter[str] = Counter()
    for instant in range(FEWER):
        assert hbatune(*APPLY).code == 0, f"instant {instant}"
        run = Forked(*killed)
        run.kill_after(seconds * instant / FEWER)
        outcomes["killed" if run.wait().killed else "ended before"] += 1
        restored(before, f"instant {instant}")
        outcomes["restored"] += 1
    name = "rollback" if killed == ("rollback",) else "switch"
    save_results(
        f"SIGKILL at instants spread evenly over a {name}, rollback after each",
        name=f"killed_in_{name}",
        instants=FEWER,
        seconds=round(seconds, 2),
        **{outcome.replace(" ", "_"): count for outcome, count in sorted(outcomes.items())},
    )


def restored(before: dict[str, str], where: str) -> None:
    """Roll back: every value is what it was."""
    back = hbatune("rollback")
    assert back.code == 0, f"{where}: {back.err}"
    assert everything() == before, where
