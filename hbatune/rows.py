"""What a plan consists of: rows, how each stands, and what came of it. Values only."""

from enum import StrEnum

from msgspec import Struct

from hbatune.settings.table import Value


class State(StrEnum):
    """How a row stands before anything is done; only ``drift`` is drift."""

    OK = "ok"
    DRIFT = "drift"
    FIXED = "fixed"  # this kernel or driver lets nobody set it
    PENDING = "pending"  # rendered; takes effect when the module is loaded next
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    EXCLUDED = "excluded"


class Outcome(StrEnum):
    """What came of a row that was applied or rolled back."""

    KEPT = "kept"  # nothing to do
    WRITTEN = "written"  # and read back
    REFUSED = "refused"  # by the kernel, with an errno; ECANCELED where it was not tried
    IGNORED = "ignored"  # the write succeeded, the value is not what was asked for
    CONFLICT = "conflict"  # somebody changed it since the plan
    STUCK = "stuck"  # the deadline passed: in doubt until the worker is gone
    VANISHED = "vanished"
    REVERTED = "reverted"


class Row(Struct, frozen=True):
    """One setting on one target: what it is, what it should be, what it will be, and why.

    ``wanted`` is what the rule says and ``value`` what hbatune sets; where they differ, ``limit``
    says why. ``found`` is what was read back, where that is not ``value``.
    """

    target: str
    id: str
    adapter: str | None
    setting: str
    current: Value | None
    wanted: Value
    value: Value | None
    state: State
    limit: str | None
    why: str
    source: str
    rule: str
    outcome: Outcome | None = None
    errno: int | None = None
    found: Value | None = None


class Reverted(Struct, frozen=True):
    """A value that was tried on a target and put back, since it cost more than is tolerated."""

    id: str
    setting: str
    value: Value


class Plan(Struct, frozen=True):
    """All rows of a profile on a machine, in the order in which they are written.

    ``memory`` is what the planned nr_requests cost beyond today's, in bytes.
    """

    profile: str
    rows: tuple[Row, ...]
    memory: int

    @property
    def drift(self) -> tuple[Row, ...]:
        """The rows that are to be written."""
        return tuple(row for row in self.rows if row.state is State.DRIFT)
