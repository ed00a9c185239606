"""The daemon's schedule: what waits for a pass, and what the next one needs of earlier ones.

Events, audits and repetitions wait (``Schedule``). Settings that others keep setting back are left
alone in the end (``Repairs``); settings that could not be set are tried again at growing intervals,
without end (``Retries``). Times are seconds of the daemon's clock.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import (
    ChangeOrigin,
    DepthLevel,
    Handled,
    Order,
    PassReason,
    PassReport,
    Retry,
    SettingChange,
    SettingKey,
)
from hbatune.plan.rows import Outcome

WINDOW = 600.0
"""Seconds in which a setting is repaired at most twice; at the third change it is left alone."""
TWICE = 2
AUDITS = 2.5
"""Audits that fit in the window at least: two repairs, and the look that finds the third change."""
LONGEST = 3600.0
"""Seconds between two tries at most, unless the audits themselves are further apart."""


class Schedule:
    """The time and the reason of the next pass: the endpoints of some events, or everything."""

    def __init__(self, now: float) -> None:
        self._events: dict[DeviceEvent, None] = {}
        self._everything: PassReason | None = PassReason.START
        self._due = now
        self._audit = float("inf")
        self._later: list[tuple[float, tuple[DeviceEvent, ...]]] = []

    @property
    def has_events(self) -> bool:
        """Whether an event waits for a pass."""
        return bool(self._events)

    @property
    def due(self) -> float:
        """The time of the next pass, if nothing happens until then."""
        waiting = self._due if self._waiting else max(self._audit, self._due)
        return min((waiting, *(at for at, _ in self._later)))

    def add_events(self, events: Iterable[DeviceEvent], now: float, pause: float = 0.0) -> None:
        """Look at the devices of these events after a pause; later events do not put it off.

        Those that come while a pass is under way are looked at together in the next one.
        """
        soon = now + pause
        self._due = min(self._due, soon) if self._waiting else soon
        self._events.update(dict.fromkeys(events))

    def add_later(self, events: Iterable[DeviceEvent], at: float) -> None:
        """Look at the devices of these events at this time, whatever is looked at before."""
        self._later.append((at, tuple(events)))

    def add_everything(self, reason: PassReason, at: float) -> None:
        """Look at everything."""
        # A reload outranks the others: only it puts back settings that the profile no longer wants.
        self._everything = reason if reason is PassReason.RELOAD else self._everything or reason
        self._due = at

    def repeat(self, order: Order, at: float) -> None:
        """Look again at the same devices."""
        # In the order in which they came, before those that arrived meanwhile.
        self._events = dict.fromkeys((*order.events, *self._events))
        if order.names is None:
            self._everything = self._everything or order.reason
        self._due = at

    def set_audit(self, at: float) -> None:
        """Look at everything at this time, unless a pass over everything comes first."""
        self._audit = at

    def is_due(self, now: float) -> bool:
        """Whether a pass is to be made now."""
        for at, events in [each for each in self._later if each[0] <= now]:
            self._later.remove((at, events))
            self.add_events(events, now)
        # Even for an audit: after a pass that failed, ``_due`` is the time of the next try.
        if now < self._due:
            return False
        if now >= self._audit:
            self._everything = self._everything or PassReason.AUDIT
        return self._waiting

    def take(self) -> tuple[PassReason, tuple[DeviceEvent, ...]]:
        """Return the reason of the pass that begins, and its events."""
        reason, events = self._everything or PassReason.EVENT, tuple(self._events)
        self._events, self._everything = {}, None
        return reason, events

    @property
    def _waiting(self) -> bool:
        return bool(self._events) or self._everything is not None


class PassHistory:
    """The settings that others set back, that could not be set, or that the kernel has lowered.

    ``open`` are the settings that an earlier daemon of this boot has left open. Times are seconds
    of the daemon's clock, and for people also since the epoch.
    """

    def __init__(
        self, audit_seconds: float, open: Iterable[SettingChange] = (), *, now: float, epoch: float
    ) -> None:
        before = tuple(open)
        self._repairs = Repairs.every(audit_seconds)
        self._retries = Retries.resumed(audit_seconds, before, now, epoch)
        self._levels: Mapping[str, DepthLevel] = dict(_lowered(before))
        self._conflicts: frozenset[SettingKey] = frozenset()
        self._outdated: Order | None = None

    def order(self, reason: PassReason, events: tuple[DeviceEvent, ...], now: float) -> Order:
        """Return the order of a pass."""
        return Order(
            reason,
            events,
            left=self._repairs.left,
            fought=self._repairs.exhausted(now),
            due=self._retries.due(now),
            waiting=self._retries.waiting(now),
            levels=dict(self._levels),
        )

    def reset(self, audit_seconds: float, under_way: Order | None) -> None:
        """Forget which settings others set back, and try those now that could not be set.

        A pass under way was ordered before, so its results do not count.
        """
        self._repairs = Repairs.every(audit_seconds)
        self._retries = Retries(audit_seconds)
        self._outdated = under_way

    def record(
        self, order: Order, report: PassReport, now: float, epoch: float
    ) -> tuple[Sequence[SettingChange], PassReport]:
        """Remember the results of a pass.

        Return the settings that are left alone from now on, and the report with the time of the
        next try for each setting that could not be set.
        """
        whole = order.names is None
        if report.subjects is not None:
            # A pass over a part does not see the others' levels.
            kept = {} if whole else self._levels
            self._levels = {**kept, **report.levels}
        if order is self._outdated:
            return (), report
        # A start, a reload or another configuration changes many values at once, without another
        # tool behind it.
        if order.reason in (PassReason.AUDIT, PassReason.EVENT):
            drifted = (each.key for each in report.written if each.origin is ChangeOrigin.DRIFT)
            self._repairs = self._repairs.repaired(drifted, now)
        if report.subjects is not None:
            self._retries = self._retries.after(report.changes, now, epoch, whole=whole)
        left = [change for change in report.changes if change.handled is Handled.LEFT]
        new = [each for each in left if each.key not in self._repairs.left]
        self._repairs = self._repairs.leave(each.key for each in new)
        return new, replace(report, changes=self._retries.dated(report.changes))

    def retry_conflicts(self, order: Order, report: PassReport) -> tuple[Order | None, PassReport]:
        """Return an order for settings changed since the plan, if any, and the report without them.

        The program behind an event may still be at work: multipathd loads a table, and the kernel
        raises the read-ahead with it. A conflict in two passes in a row is a failure.
        """
        conflicts = {
            change.key: change.target
            for change in report.changes
            if order.reason is PassReason.EVENT
            and change.outcome in (Outcome.CONFLICT, Outcome.CANCELLED)
            and change.key not in self._conflicts
        }
        self._conflicts = frozenset(conflicts)
        if not conflicts:
            return None, report
        others = tuple(change for change in report.changes if change.key not in conflicts)
        names = set(conflicts.values())
        # The order's own events again: the settings that they have reset are still reset.
        events = (*order.events, *(DeviceEvent(name) for name in sorted(names)))
        return replace(order, events=events), replace(report, changes=others)


class Repairs(Struct, frozen=True):
    """The times of the latest repairs of each setting (monotonic), and the settings left alone.

    Repairs before the window are forgotten, so that this stays small.
    """

    times: Mapping[SettingKey, tuple[float, ...]] = {}
    left: frozenset[SettingKey] = frozenset()
    window: float = WINDOW

    @classmethod
    def every(cls, audit: float) -> "Repairs":
        """Return one for audits at this interval in seconds."""
        return cls(window=max(WINDOW, AUDITS * audit))

    def repaired(self, keys: Iterable[SettingKey], now: float) -> "Repairs":
        """Return a copy with these settings repaired now."""
        recent = self._recent(now)
        for key in keys:
            recent[key] = (*recent.get(key, ()), now)
        return replace(self, times=recent)

    def exhausted(self, now: float) -> frozenset[SettingKey]:
        """Return the settings that must not be repaired again if they are set back."""
        return frozenset(key for key, times in self._recent(now).items() if len(times) >= TWICE)

    def leave(self, keys: Iterable[SettingKey]) -> "Repairs":
        """Return a copy with these settings left alone for good."""
        return replace(self, left=self.left | frozenset(keys))

    def _recent(self, now: float) -> dict[SettingKey, tuple[float, ...]]:
        found = {
            key: tuple(time for time in times if now - time < self.window)
            for key, times in self.times.items()
        }
        return {key: times for key, times in found.items() if times}


class FailedSetting(Struct, frozen=True):
    """The time of the next try on the daemon's clock, and the same for people."""

    due: float
    retry: Retry


class Retries(Struct, frozen=True):
    """The settings that could not be set; ``first`` are the seconds until the second try."""

    first: float
    failures: Mapping[SettingKey, FailedSetting] = {}

    @classmethod
    def resumed(
        cls, first: float, changes: Iterable[SettingChange], now: float, epoch: float
    ) -> "Retries":
        """Return the settings that an earlier daemon was still trying, from its open changes.

        ``now`` is the daemon's clock at ``epoch`` seconds since the epoch.
        """
        failures = {
            change.key: FailedSetting(
                # Limited, in case the wall clock was set back between the two daemons.
                now + min(change.retry.next - epoch, max(first, LONGEST)),
                change.retry,
            )
            for change in changes
            if change.retry is not None
        }
        return cls(first, failures)

    def due(self, now: float) -> frozenset[SettingKey]:
        """Return the settings to try now."""
        return frozenset(key for key, each in self.failures.items() if each.due <= now)

    def waiting(self, now: float) -> frozenset[SettingKey]:
        """Return the settings to try later."""
        return frozenset(key for key, each in self.failures.items() if each.due > now)

    def after(
        self, changes: Collection[SettingChange], now: float, epoch: float, *, whole: bool
    ) -> "Retries":
        """Return a copy after a pass that made these changes, ``whole`` for one over everything.

        A setting that a whole pass does not report is as it should be, or gone.
        """
        spoken = {change.key for change in changes}
        failures = {key: each for key, each in self.failures.items() if not whole or key in spoken}
        # What has failed together is tried again together, and thousands of settings share it.
        next_try: dict[FailedSetting | None, FailedSetting] = {}
        for change in changes:
            if change.handled is Handled.FAILED:
                before = failures.get(change.key)
                if before not in next_try:
                    next_try[before] = self._failed(before, now, epoch)
                failures[change.key] = next_try[before]
            elif change.handled is Handled.WRITTEN:
                failures.pop(change.key, None)
        return replace(self, failures=failures)

    def dated(self, changes: Iterable[SettingChange]) -> tuple[SettingChange, ...]:
        """Return the changes, with the time of the next try where there is one."""
        return tuple(
            replace(change, retry=self.failures[change.key].retry)
            if change.handled in (Handled.FAILED, Handled.WAITING) and change.key in self.failures
            else change
            for change in changes
        )

    def _failed(self, before: FailedSetting | None, now: float, epoch: float) -> FailedSetting:
        tries = 1 if before is None else before.retry.tries + 1
        longest = max(self.first, LONGEST)
        # The doubled pause is past the longest long before the power could overflow.
        pause = min(self.first * 2.0 ** min(tries - 1, 32), longest)
        since = epoch if before is None else before.retry.since
        return FailedSetting(now + pause, Retry(since, tries, epoch + pause))


def _lowered(changes: Iterable[SettingChange]) -> Iterable[tuple[str, DepthLevel]]:
    """Yield the levels of depths that the kernel was raising; their errors are not known."""
    for change in changes:
        if change.handled is Handled.RAMPING and isinstance(change.before, int):
            yield change.id, DepthLevel(change.before, 0, 0, ramping=True)
