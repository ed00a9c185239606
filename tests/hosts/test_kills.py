"""Commands killed at random system calls: a rollback restores everything or names it."""

from tests.kernel.kills import SCENARIOS, kill

KILLS = 40


def test_rollback_recovers_killed_commands() -> None:
    report = kill(KILLS, seed=1)
    assert not report.problems, "\n".join(report.problems)
    killed = sum(count for outcome, count in report.counts.items() if outcome.endswith(": killed"))
    assert killed >= KILLS * 3 // 4, report.counts
    assert report.counts["restored"] == KILLS + len(SCENARIOS)
