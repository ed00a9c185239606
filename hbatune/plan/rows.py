"""The rows of a plan and of a restore, with their states before and outcomes after a write."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Endpoint, Link, Protocol, fold_heads
from hbatune.loader import ErrorNumber, ShortText
from hbatune.settings.setting import Value
from hbatune.text.limit_text import Limit, LimitReason

RowKey = tuple[str, str]
"""A target's id and a setting."""


class State(StrEnum):
    """The state of a row before any write. Only ``drift`` is drift."""

    OK = "ok"
    DRIFT = "drift"
    FIXED = "fixed"  # this kernel or driver does not allow a change
    PENDING = "pending"  # rendered; takes effect when the module is loaded next
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    EXCLUDED = "excluded"


class Outcome(StrEnum):
    """The result of a row that was applied or rolled back."""

    KEPT = "kept"  # nothing to do
    WRITTEN = "written"  # and read back
    # By the kernel, with an errno. ECHILD: the writing process died, so the current value may be
    # the new or the previous one.
    REFUSED = "refused"
    IGNORED = "ignored"  # the write succeeded, but another value was read back
    CONFLICT = "conflict"  # the value, or an assumption of the plan, has changed since the plan
    CANCELLED = "cancelled"  # not tried: a step it depends on failed, or the run was stopped
    BLOCKED = "blocked"  # not tried, since a command hangs and the write would wait for it
    STUCK = "stuck"  # the deadline passed: unconfirmed until the worker exits
    VANISHED = "vanished"
    REVERTED = "reverted"


DONE_OUTCOMES = frozenset({Outcome.KEPT, Outcome.WRITTEN})
"""Outcomes after which the setting has its planned value."""

UNTRIED_OUTCOMES = frozenset({Outcome.BLOCKED, Outcome.CANCELLED})
"""Outcomes of settings that nothing was written to."""

BASELINE_RULE = "baseline"
"""The rule of a row that restores the original value."""


class Row(Struct, frozen=True):
    """One setting of one target: its current value, profile value, value to set, and reason.

    ``text.documents.PrintedRow`` describes the fields. ``limit`` is a reason, or the text of a
    device, a family or a writer.
    """

    target: str
    id: str
    adapter: str | None
    setting: str
    current: Value | None
    wanted: Value
    value: Value | None
    state: State
    limit: LimitReason | str | None
    why: LimitReason | str
    source: str
    rule: str
    outcome: Outcome | None = None
    errno: ErrorNumber | None = None
    found: Value | None = None

    @property
    def key(self) -> RowKey:
        """The target's id and the setting."""
        return self.id, self.setting

    @property
    def taken_over(self) -> bool:
        """Whether the row is not restored because the value changed after hbatune set it."""
        return self.rule == BASELINE_RULE and self.state is State.EXCLUDED


class ServingAdapter(Struct, frozen=True):
    """An adapter with the numbers of its disks, by their kind (``facts.model.Kind``)."""

    target: ShortText
    product: ShortText
    disks: dict[ShortText, int]
    link: Link | None = None
    driver: ShortText | None = None
    firmware: ShortText | None = None


class HostLook(Struct, frozen=True, kw_only=True):
    """The tuning of this host, by the daemon's last pass or by a scan without the daemon.

    ``mistake`` is the error in the configuration, ``hidden`` the record that only root can read.
    ``counts`` are the settings by state, ``skipped`` describes the excluded ones. ``unfinished`` is
    whether an earlier run was interrupted or lost original values. ``values`` is the number of
    original values, and ``findings`` counts by severity. None means unknown. The daemon ``checked``
    them at this time. ``drift`` are the rows to write, if this scan read them. ``installed`` is
    whether systemd has the daemon's unit, ``failed`` whether the unit has failed. ``lost_rules``
    describes the udev rules of others that did not take effect.
    """

    profile: str | None = None
    mistake: str | None = None
    hidden: str | None = None
    counts: Mapping[str, int] = {}
    skipped: tuple[str, ...] = ()
    rolled_back: bool = False
    unfinished: bool = False
    values: int | None = None
    findings: dict[str, int] | None = None
    lost_rules: tuple[str, ...] = ()
    checked: float | None = None
    drift: tuple[Row, ...] = ()
    adapters: tuple[ServingAdapter, ...] = ()
    installed: bool = True
    failed: bool = False


def count_settings(
    rows: Collection[Row], endpoints: Iterable[Endpoint], handled: Collection[RowKey] = ()
) -> Counter[str]:
    """Return the number of settings by state, and of disks without a rule as ``unmatched``.

    A map counts instead of its paths. Drift that the caller has ``handled``, by id and setting,
    counts as ok.
    """
    counts = Counter(str(State.OK if row.key in handled else row.state) for row in rows)
    ids = {row.id for row in rows}
    counts["unmatched"] = sum(not (d.map or d.id in ids) for d in fold_heads(endpoints))
    return counts


class RevertedValue(Struct, frozen=True):
    """A value that was tried on a target and reverted because it cost more than tolerated."""

    id: ShortText
    setting: ShortText
    value: Value


class SkippedDisk(Struct, frozen=True):
    """A disk that no rule may change, with the reason and the evidence.

    ``unread`` is whether this is a failure: the data that identifies the disk could not be read.
    """

    target: str
    id: str
    adapter: str | None
    reason: LimitReason | str
    evidence: tuple[str, ...]
    unread: bool = False


def explain_unidentified(endpoint: Endpoint) -> LimitReason | None:
    """Return the reason why a disk cannot be identified, or None."""
    if endpoint.unread is not None:
        return LimitReason(Limit.UNREAD_DISK, (endpoint.unread,))
    return LimitReason(Limit.UNIDENTIFIED) if endpoint.protocol is Protocol.UNKNOWN else None


def find_skipped_disks(
    endpoints: Iterable[Endpoint], excluded: Collection[str] = ()
) -> Iterator[SkippedDisk]:
    """Yield the disks that cannot be identified. It is not a failure for ``excluded`` ids."""
    for disk in endpoints:
        if (reason := explain_unidentified(disk)) is not None:
            unread = disk.unread is not None and disk.id not in excluded
            yield SkippedDisk(disk.target, disk.id, disk.adapter, reason, disk.evidence, unread)


class RequestMemory(Struct, frozen=True):
    """The memory of the requests of all disks, in bytes, and the ``allowed`` maximum.

    ``total`` counts the bytes beyond the kernel's defaults after the plan. ``added`` counts the
    bytes that the plan adds, on the endpoints with the ids in ``growing``.
    """

    added: int = 0
    total: int = 0
    allowed: int = 0
    growing: frozenset[str] = frozenset()


class Plan(Struct, frozen=True):
    """All rows of a profile on a machine, in the order of the writes.

    ``left_alone`` are the unidentified disks, which may have no rows.
    """

    profile: str
    rows: tuple[Row, ...]
    memory: RequestMemory = RequestMemory()
    left_alone: tuple[SkippedDisk, ...] = ()

    @property
    def drift(self) -> tuple[Row, ...]:
        """The rows to write."""
        return tuple(row for row in self.rows if row.state is State.DRIFT)


class Restored(Struct, frozen=True):
    """The result of restoring one setting to ``before``. ``found`` is the value read last.

    ``outcome`` is None if nothing was tried yet and the value would be restored. ``current`` is the
    value at the beginning of the rollback. ``limit`` is the reason why the write was not tried or
    did not reach the baseline, or the name of the device that replaced this one. ``gone`` means
    that the value no longer exists because its disk, interrupt or scheduler was removed.
    """

    target: str
    id: str
    adapter: str | None
    setting: str
    current: Value | None
    before: Value
    outcome: Outcome | None
    errno: ErrorNumber | None = None
    found: Value | None = None
    limit: str | None = None
    gone: bool = False

    @property
    def key(self) -> RowKey:
        """The target's id and the setting."""
        return self.id, self.setting

    @property
    def done(self) -> bool:
        """Whether nothing remains to restore."""
        return self.gone or self.outcome in DONE_OUTCOMES
