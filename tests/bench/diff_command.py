"""The command that the benchmarks time, and its exit code for drift."""

DRIFT = 1


DIFF = ("diff", "--profile", "oltp", "--json")
