"""Commands killed at random system calls: a rollback restores everything or names it."""

from tests.kernel.kills import SCENARIOS, kill

KILLS = 40


def test_rollback_recovers_killed_commands() -> None:
    found = kill(KILLS, seed=1)
    assert not found.problems, "\n".join(found.problems)
    killed = sum(count for what, count in found.counts.items() if what.endswith(": killed"))
    assert killed >= KILLS * 3 // 4, found.counts
    assert found.counts["restored"] == KILLS + len(SCENARIOS)
