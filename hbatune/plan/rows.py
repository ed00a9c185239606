"""The rows of a plan and of a way back, the state of each before a write, the outcome after."""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Endpoint, Protocol
from hbatune.settings.table import Value


class State(StrEnum):
    """The state of a row before any write; only ``drift`` is drift."""

    OK = "ok"
    DRIFT = "drift"
    FIXED = "fixed"  # this kernel or driver does not let it be set
    PENDING = "pending"  # rendered; takes effect when the module is loaded next
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    EXCLUDED = "excluded"


class Outcome(StrEnum):
    """The result of a row that was applied or rolled back."""

    KEPT = "kept"  # nothing to do
    WRITTEN = "written"  # and read back
    # By the kernel, with an errno. ECHILD: the process that wrote it died, so that the value may be
    # the new one or the old one.
    REFUSED = "refused"
    IGNORED = "ignored"  # the write succeeded, but another value was read back
    CONFLICT = "conflict"  # the value, or an assumption of the plan, has changed since the plan
    CANCELLED = "cancelled"  # not tried: a step that it hangs on failed, or the run was stopped
    STUCK = "stuck"  # the deadline passed: in doubt until the worker is gone
    VANISHED = "vanished"
    REVERTED = "reverted"


DONE = frozenset({Outcome.KEPT, Outcome.WRITTEN})
"""Outcomes after which the setting has the value that it was to have."""

BASELINE = "baseline"
"""The rule of a row that goes back to the value from before hbatune."""


class Row(Struct, frozen=True):
    """One setting on one target: its current value, the wanted one, the one to be set, and why.

    ``wanted`` is the rule's value and ``value`` the one that hbatune sets; where they differ,
    ``limit`` says why. ``found`` is the value read back, if it is not ``value``. A setting that
    hbatune has set and that no rule asks for any more has the rule ``baseline``: it goes back,
    unless it was changed since.
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

    @property
    def to_baseline(self) -> bool:
        """Whether it goes back to the value from before hbatune."""
        return self.rule == BASELINE and self.state is State.DRIFT

    @property
    def taken_over(self) -> bool:
        """Whether it would go back, but stays because it was changed after hbatune had set it."""
        return self.rule == BASELINE and self.state is State.EXCLUDED


class Reverted(Struct, frozen=True):
    """A value that was tried on a target and put back because it cost more than is tolerated."""

    id: str
    setting: str
    value: Value


class LeftAlone(Struct, frozen=True):
    """A disk that no rule may touch, with the reason and what there is to see of it.

    ``unread`` is whether that is a failure: the system could not read what identifies the disk.
    """

    target: str
    id: str
    adapter: str | None
    reason: str
    evidence: tuple[str, ...]
    unread: bool = False


NOT_KNOWN = "not known what it is"
"""The reason why a disk that cannot be classified is left alone."""


def unidentified(endpoint: Endpoint) -> str | None:
    """Return the reason why a disk cannot be identified, or None if it is."""
    if endpoint.unread is not None:
        return f"cannot be identified: {endpoint.unread} cannot be read"
    return NOT_KNOWN if endpoint.protocol is Protocol.UNKNOWN else None


def left_alone(
    endpoints: Iterable[Endpoint], excluded: Collection[str] = ()
) -> Iterator[LeftAlone]:
    """Yield the disks that cannot be identified. For ``excluded`` ids that is no failure."""
    for endpoint in endpoints:
        if (reason := unidentified(endpoint)) is not None:
            unread = endpoint.unread is not None and endpoint.id not in excluded
            evidence = endpoint.evidence
            name, id = endpoint.target, endpoint.id
            yield LeftAlone(name, id, endpoint.adapter, reason, evidence, unread)


class RequestMemory(Struct, frozen=True):
    """The memory of the requests of all disks, in bytes, and how much they may take.

    ``total`` counts the bytes beyond the kernel's own defaults once the plan is carried out,
    ``added`` those that the plan itself adds, on the endpoints with the ids in ``growing``.
    """

    added: int = 0
    total: int = 0
    allowed: int = 0
    growing: frozenset[str] = frozenset()

    @property
    def affordable(self) -> bool:
        """Whether the plan adds nothing, or the total is then within the share."""
        return self.added <= 0 or self.total <= self.allowed

    @property
    def roomy(self) -> bool:
        """Whether the share would still suffice if as many disks again appeared."""
        return 2 * self.total <= self.allowed


class Plan(Struct, frozen=True):
    """All rows of a profile on a machine, in the order in which they are written.

    ``left_alone`` are the disks that are not known, of which there may be no row at all.
    """

    profile: str
    rows: tuple[Row, ...]
    memory: RequestMemory = RequestMemory()
    left_alone: tuple[LeftAlone, ...] = ()

    @property
    def drift(self) -> tuple[Row, ...]:
        """The rows that are to be written."""
        return tuple(row for row in self.rows if row.state is State.DRIFT)

    @property
    def taken_over(self) -> tuple[Row, ...]:
        """The rows that no rule asks for any more and that were changed since hbatune set them."""
        return tuple(row for row in self.rows if row.taken_over)


class Restored(Struct, frozen=True):
    """The result of putting one setting back to ``before``; ``found`` is the value read last.

    ``outcome`` is None where nothing was tried yet and the value would be put back. ``current`` is
    the value at the beginning of the rollback; ``limit`` says why the write was not tried or
    stopped short of the baseline, or which device is there instead. ``gone`` says that the value
    went with its holder: the disk, the interrupt, or the scheduler that it belonged to.
    """

    target: str
    id: str
    adapter: str | None
    setting: str
    current: Value | None
    before: Value
    outcome: Outcome | None
    errno: int | None = None
    found: Value | None = None
    limit: str | None = None
    gone: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to put back."""
        return self.gone or self.outcome in DONE
