"""The daemon's schedule: the next pass, and the history that it needs of earlier passes.

``Schedule`` contains waiting events, audits and repetitions. ``Repairs`` detects settings that
others keep changing, which are then skipped. ``Retries`` tries failed settings again at growing
intervals, without end. Times are seconds of the daemon's clock.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.agent import orders
from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import ChangeOrigin, Handled, Order, PassReason, PassReport, SettingChange
from hbatune.plan.rows import Outcome, RowKey

REPAIR_WINDOW_S = 600.0
"""Seconds in which a setting is repaired at most twice. After the third change it is skipped."""
MAX_REPAIRS = 2
MIN_AUDITS_IN_WINDOW = 2.5
"""Minimum audits in the window: two repairs, and the audit that finds the third change."""
MAX_RETRY_DELAY_S = 3600.0
"""Maximum seconds between two tries, unless the audit interval is longer."""


class Schedule:
    """The time and the reason of the next pass: the endpoints of some events, or everything."""

    def __init__(self, current_time: float) -> None:
        self._events: dict[DeviceEvent, None] = {}
        self._everything: PassReason | None = PassReason.START
        self._due = current_time
        self.audit = float("inf")  # the time of a full scan, unless an earlier pass makes one
        self._later: list[tuple[float, tuple[DeviceEvent, ...]]] = []

    @property
    def due(self) -> float:
        """The time of the next pass, if nothing happens until then."""
        next_pass = self._due if self._has_work else max(self.audit, self._due)
        return min((next_pass, *(due for due, _ in self._later)))

    def add_events(
        self, events: Iterable[DeviceEvent], current_time: float, pause: float = 0.0
    ) -> None:
        """Scan the devices of these events after a pause. Later events do not postpone it."""
        soon = current_time + pause
        self._due = min(self._due, soon) if self._has_work else soon
        self._events.update(dict.fromkeys(events))

    def add_later(self, events: Iterable[DeviceEvent], due: float) -> None:
        """Scan the devices of these events at this time, regardless of earlier scans."""
        self._later.append((due, tuple(events)))

    def add_everything(self, reason: PassReason, due: float) -> None:
        """Scan everything."""
        # A reload has priority: only it restores settings that the profile no longer requires.
        self._everything = reason if reason is PassReason.RELOAD else self._everything or reason
        self._due = due

    def repeat(self, order: Order, due: float) -> None:
        """Scan the same devices again."""
        # In their original order, before events that have arrived since.
        self._events = dict.fromkeys((*order.events, *self._events))
        if order.names is None:
            self._everything = self._everything or order.reason
        self._due = due

    def is_due(self, current_time: float) -> bool:
        """Return whether a pass is due now."""
        for due, events in [entry for entry in self._later if entry[0] <= current_time]:
            self._later.remove((due, events))
            self.add_events(events, current_time)
        # Even for an audit: after a pass that failed, ``_due`` is the time of the next try.
        if current_time < self._due:
            return False
        if current_time >= self.audit:
            self._everything = self._everything or PassReason.AUDIT
        return self._has_work

    def take(self) -> tuple[PassReason, tuple[DeviceEvent, ...]]:
        """Return the reason of the starting pass, and its events."""
        reason, events = self._everything or PassReason.EVENT, tuple(self._events)
        self._events, self._everything = {}, None
        return reason, events

    @property
    def _has_work(self) -> bool:
        return bool(self._events) or self._everything is not None


class PassHistory:
    """The settings that others change, that could not be set, or that the kernel has lowered.

    ``open`` are the settings that an earlier daemon of this boot has left open. Times are seconds
    of the daemon's clock, and for people also since the epoch.
    """

    def __init__(
        self,
        audit_seconds: float,
        open: Iterable[SettingChange] = (),
        *,
        current_time: float,
        epoch: float,
    ) -> None:
        changes = tuple(open)
        self._repairs, self._retries = Repairs(audit_seconds), Retries(audit_seconds)
        self._retries.resume(changes, current_time, epoch)
        self._levels: dict[str, orders.DepthLevel] = {}
        for change in changes:  # the depths that the kernel was raising
            if change.handled is Handled.RAMPING and isinstance(change.before, int):
                self._levels[change.id] = orders.DepthLevel(change.before, 0, 0, ramping=True)
        self._conflicts: frozenset[RowKey] = frozenset()
        self._outdated: Order | None = None

    def order(
        self, reason: PassReason, events: tuple[DeviceEvent, ...], current_time: float
    ) -> Order:
        """Return the order of a pass."""
        due = self._retries.find_due(current_time)
        return Order(
            reason,
            events,
            left=self._repairs.left,
            fought=self._repairs.find_exhausted(current_time),
            due=due,
            waiting=frozenset(self._retries.failures) - due,
            levels=self._levels,
        )

    def reset(self, audit_seconds: float, current_order: Order | None) -> None:
        """Forget which settings others change, and try failed settings now."""
        self._repairs, self._retries = Repairs(audit_seconds), Retries(audit_seconds)
        self._outdated = current_order  # its results do not count

    def record(
        self, order: Order, report: PassReport, current_time: float, epoch: float
    ) -> tuple[Sequence[SettingChange], PassReport]:
        """Record a pass. Return the settings that are now skipped, and the report with retries."""
        is_complete = order.names is None
        if report.subjects is not None:
            # A partial pass does not read the levels of other devices.
            retained = {} if is_complete else self._levels
            self._levels = {**retained, **report.levels}
        if order is self._outdated:
            return (), report
        # A start, a reload or a new configuration changes many values in one pass, without another
        # tool.
        if order.reason in (PassReason.AUDIT, PassReason.EVENT):
            drift = (change.key for change in report.written if change.origin is ChangeOrigin.DRIFT)
            self._repairs.add(drift, current_time)
        if report.subjects is not None:
            self._retries.record(report.changes, current_time, epoch, is_complete=is_complete)
        new: dict[RowKey, SettingChange] = {}
        for change in report.changes:
            if change.handled is Handled.LEFT and change.key not in self._repairs.left:
                new[change.key] = change
        self._repairs.left = self._repairs.left.union(new)
        changes = tuple(self._retries.add_times(report.changes))
        return tuple(new.values()), replace(report, changes=changes)

    def retry_conflicts(self, order: Order, report: PassReport) -> tuple[Order | None, PassReport]:
        """Return an order for settings changed since the plan, if any, and the report without them.

        The program behind an event may still be running: multipathd loads a table, and the kernel
        then raises the read-ahead. A conflict in two consecutive passes is a failure.
        """
        conflicts, other_changes = dict[RowKey, str](), list[SettingChange]()
        for change in report.changes:
            is_conflict = change.outcome in (Outcome.CONFLICT, Outcome.CANCELLED)
            is_first = order.reason is PassReason.EVENT and change.key not in self._conflicts
            if is_conflict and is_first:
                conflicts[change.key] = change.target
            else:
                other_changes.append(change)
        self._conflicts = frozenset(conflicts)
        if not conflicts:
            return None, report
        # Repeat the order's events: the settings that they have reset are still reset.
        events = (*order.events, *map(DeviceEvent, sorted(set(conflicts.values()))))
        return replace(order, events=events), replace(report, changes=tuple(other_changes))


class Repairs:
    """The monotonic times of each setting's latest repairs, and the skipped settings (``left``)."""

    def __init__(self, audit_seconds: float = 0.0) -> None:
        self.times: dict[RowKey, tuple[float, ...]] = {}
        self.left: frozenset[RowKey] = frozenset()
        self._window = max(REPAIR_WINDOW_S, MIN_AUDITS_IN_WINDOW * audit_seconds)

    def add(self, keys: Iterable[RowKey], current_time: float) -> None:
        """Record that these settings were repaired now."""
        self._forget_old(current_time)
        for key in keys:
            self.times[key] = (*self.times.get(key, ()), current_time)

    def find_exhausted(self, current_time: float) -> frozenset[RowKey]:
        """Return the settings that must not be repaired again if they change."""
        self._forget_old(current_time)
        return frozenset(key for key, times in self.times.items() if len(times) >= MAX_REPAIRS)

    def _forget_old(self, current_time: float) -> None:
        times_by_key, self.times = self.times, {}
        for key, times in times_by_key.items():
            if recent := tuple(time for time in times if current_time - time < self._window):
                self.times[key] = recent


class FailedSetting(Struct, frozen=True):
    """The time of the next try on the daemon's clock, and the same time for people."""

    due: float
    retry: orders.Retry


class Retries:
    """The settings that could not be set. ``first`` is the time until the second try in seconds."""

    def __init__(self, first: float) -> None:
        self.failures: dict[RowKey, FailedSetting] = {}
        self._first, self._longest = first, max(first, MAX_RETRY_DELAY_S)

    def resume(self, changes: Iterable[SettingChange], current_time: float, epoch: float) -> None:
        """Add the settings that an earlier daemon was still trying, from its open changes."""
        for change in changes:
            if change.retry is not None:
                # Limited, in case the wall clock was set back between the two daemons.
                pause = min(change.retry.next - epoch, self._longest)
                self.failures[change.key] = FailedSetting(current_time + pause, change.retry)

    def find_due(self, current_time: float) -> frozenset[RowKey]:
        """Return the settings to try now. The others are tried later."""
        return frozenset(key for key, entry in self.failures.items() if entry.due <= current_time)

    def record(
        self,
        changes: Collection[SettingChange],
        current_time: float,
        epoch: float,
        *,
        is_complete: bool,
    ) -> None:
        """Record a pass. A setting that a full pass does not report is correct or removed."""
        if is_complete:
            for key in self.failures.keys() - {change.key for change in changes}:
                del self.failures[key]
        # Settings that failed together are tried again together, and thousands share one object.
        next_try: dict[FailedSetting | None, FailedSetting] = {}
        for change in changes:
            if change.handled is Handled.FAILED:
                previous = self.failures.get(change.key)
                # Nothing was tried, so the next audit tries it, however long a command hangs.
                if change.outcome is Outcome.BLOCKED:
                    previous = None
                if previous not in next_try:
                    next_try[previous] = self._record_failure(previous, current_time, epoch)
                self.failures[change.key] = next_try[previous]
            elif change.handled is Handled.WRITTEN:
                self.failures.pop(change.key, None)

    def add_times(self, changes: Iterable[SettingChange]) -> Iterator[SettingChange]:
        """Yield the changes, each with the time of its next try, if any."""
        for change in changes:
            failure = self.failures.get(change.key)
            if failure is not None and change.handled in (Handled.FAILED, Handled.WAITING):
                change = replace(change, retry=failure.retry)
            yield change

    def _record_failure(
        self, previous: FailedSetting | None, current_time: float, epoch: float
    ) -> FailedSetting:
        tries, since = 1, epoch
        if previous is not None:
            tries, since = previous.retry.tries + 1, previous.retry.since
        # The doubled pause reaches the maximum long before the power could overflow.
        pause = min(self._first * 2.0 ** min(tries - 1, 32), self._longest)
        return FailedSetting(current_time + pause, orders.Retry(since, tries, epoch + pause))
