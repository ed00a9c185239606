"""Numbers of things in words, and what `status` says in every case: light enough for it."""

import time


def quantity(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number of things in words: ``1 adapter``, ``2 adapters``, ``2 passes``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def second(seconds: float) -> str:
    """Return date and time of a moment to the second, given in seconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def tuned(profile: str, endpoints: int) -> str:
    """Return which profile is in force, and for how much."""
    return f"profile {profile}, {quantity(endpoints, 'endpoint')}"


def running(since: float, passes: int, written: int) -> str:
    """Return since when the daemon runs, and what it has done."""
    what = f"{quantity(passes, 'pass', 'passes')}, {quantity(written, 'value')} set"
    return f"Running since {second(since)}, {what}."


def last_pass(moment: float, reason: str) -> str:
    """Return when the last pass was, and why."""
    return f"Last pass {second(moment)} ({reason})."
