"""What has to hold after each step of a sequence. ``ASSERTED`` names what is asserted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

ALL = (
    "no_shrink",  # hbatune never takes tags from an adapter
    "no_path_below",  # no write of hbatune's brings a path below its live map
    "hands_off",  # what was rolled back is not written to until an apply lifts that
    "excluded",  # what the site excludes is not tuned
    "restored",  # after a rollback a value is as it was, or its row says why not
    "reconciled",  # after an apply nothing is left of a profile before it
    "one_outcome",  # a row has one outcome, and no row is there twice
    "truthful",  # what a row or a report says was written is so
    "exit_code",  # 0 only if every planned thing is so; a refusal says why
    "nothing_dropped",  # whatever was written has a row
    "rollback_runs",  # a rollback of everything is never refused
    "identity",  # nothing is written to a disk that the run has not seen
    "policy",  # the daemon leaves drift that it is to ignore or report
    "no_fault",  # no traceback
)
"""Every invariant, by name."""

PENDING: tuple[str, ...] = ()
"""Those that do not hold yet, and why."""

ASSERTED = tuple(name for name in ALL if name not in PENDING)
"""Those that a violation fails the tests for."""


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold, after which step, and how that showed."""

    invariant: str
    step: str
    what: str


def asserted(found: Iterable[Violation]) -> Iterator[Violation]:
    """Yield those of the violations that fail a test."""
    return (each for each in found if each.invariant in ASSERTED)
