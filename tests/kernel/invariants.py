"""The invariants that must hold after each step of a sequence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

ALL = (
    "no_shrink",  # hbatune never takes tags from an adapter
    "no_path_below",  # no write of hbatune brings a path's max_sectors_kb below its live map's
    "hands_off",  # a target rolled back is not written to until an apply lifts that
    "excluded",  # a target that the site excludes is not tuned
    "restored",  # after a rollback a value is its baseline again, or its row says why not
    "reconciled",  # after an apply no value of an earlier profile is left
    "one_outcome",  # each row has one outcome, and no row is there twice
    "truthful",  # a value reported as written is really in the file
    "exit_code",  # 0 only if every planned value is in force; a refusal says why
    "nothing_dropped",  # every write has a row
    "rollback_runs",  # a rollback of everything is never refused
    "identity",  # no write goes to a disk that appeared after the run had looked
    "policy",  # the daemon leaves drift that it is to ignore or report
    "no_fault",  # no traceback
)
"""Every invariant, by name."""

PENDING: tuple[str, ...] = ()
"""The invariants that do not hold yet, each with the reason as a comment."""

ASSERTED = tuple(name for name in ALL if name not in PENDING)
"""The invariants whose violation fails the tests."""


@dataclass(frozen=True)
class Violation:
    """A violated invariant, the step after which it was violated, and the evidence."""

    invariant: str
    step: str
    what: str


def asserted(violations: Iterable[Violation]) -> Iterator[Violation]:
    """Yield the violations that fail a test."""
    return (violation for violation in violations if violation.invariant in ASSERTED)
