"""What earlier passes have led to, as far as the next one has to know it.

Settings that others keep changing back are left alone in the end (``Repairs``); what could not be
set is tried again, ever more seldom and without end (``Retries``).
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
"""Seconds in which a setting is repaired twice; set back once more, it is left alone."""
TWICE = 2
AUDITS = 2.5
"""Audits that the window has at least: two repairs and the look that finds the third time."""
LONGEST = 3600.0
"""Seconds between two tries at most, unless the audits themselves are further apart."""


class PassHistory:
    """Which settings others set back, which could not be set, and which the kernel has lowered.

    ``open`` is what an earlier daemon of this boot has left open. Times are seconds of the daemon's
    clock, and beside it since the epoch, for people.
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
        """Begin again with what others set back, and try now what could not be set.

        A pass under way knows nothing of that yet.
        """
        self._repairs = Repairs.every(audit_seconds)
        self._retries = Retries(audit_seconds)
        self._outdated = under_way

    def record(
        self, order: Order, report: PassReport, now: float, epoch: float
    ) -> tuple[Sequence[SettingChange], PassReport]:
        """Remember what came of a pass.

        Return what is left from now on, set back once more, and the report with the time at which
        what could not be set is tried again.
        """
        whole = order.names is None
        if report.machine is not None:
            kept = {} if whole else self._levels
            self._levels = {**kept, **report.levels}
        if order is self._outdated:
            return (), report
        if order.reason in (PassReason.AUDIT, PassReason.EVENT):
            drifted = (each.key for each in report.written if each.origin is ChangeOrigin.DRIFT)
            self._repairs = self._repairs.repaired(drifted, now)
        if report.machine is not None:
            self._retries = self._retries.after(report.changes, now, epoch, whole=whole)
        left = [each for each in report.changes if each.handled is Handled.LEFT]
        new = [each for each in left if each.key not in self._repairs.left]
        self._repairs = self._repairs.leave(each.key for each in new)
        return new, replace(report, changes=self._retries.dated(report.changes))

    def retry_conflicts(self, order: Order, report: PassReport) -> tuple[Order | None, PassReport]:
        """Return an order for what was set meanwhile, if anything was, and the report without it.

        The maker of an event may be at work still: multipathd loads a table, and the kernel raises
        the read-ahead with it. What conflicts twice in a row has failed.
        """
        conflicts = {
            each.key: each.target
            for each in report.changes
            if order.reason is PassReason.EVENT
            and each.outcome in (Outcome.CONFLICT, Outcome.CANCELLED)
            and each.key not in self._conflicts
        }
        self._conflicts = frozenset(conflicts)
        if not conflicts:
            return None, report
        others = tuple(each for each in report.changes if each.key not in conflicts)
        names = set(conflicts.values())
        # Its own events again where they name it: what they have reset is reset still.
        events = (*order.events, *(DeviceEvent(name) for name in sorted(names)))
        return replace(order, events=events), replace(report, changes=others)


class Repairs(Struct, frozen=True):
    """When each setting was last repaired, in seconds of a monotonic clock, and what is left alone.

    What lies further back than the window is forgotten, so that this stays small.
    """

    times: Mapping[SettingKey, tuple[float, ...]] = {}
    left: frozenset[SettingKey] = frozenset()
    window: float = WINDOW

    @classmethod
    def every(cls, audit: float) -> "Repairs":
        """Return one for audits that are so many seconds apart."""
        return cls(window=max(WINDOW, AUDITS * audit))

    def repaired(self, keys: Iterable[SettingKey], now: float) -> "Repairs":
        """Return it with these settings repaired now."""
        recent = self._recent(now)
        for key in keys:
            recent[key] = (*recent.get(key, ()), now)
        return replace(self, times=recent)

    def exhausted(self, now: float) -> frozenset[SettingKey]:
        """Return what is not to be repaired once more should it have been set back."""
        return frozenset(key for key, times in self._recent(now).items() if len(times) >= TWICE)

    def leave(self, keys: Iterable[SettingKey]) -> "Repairs":
        """Return it with these settings left alone for good."""
        return replace(self, left=self.left | frozenset(keys))

    def _recent(self, now: float) -> dict[SettingKey, tuple[float, ...]]:
        found = {
            key: tuple(time for time in times if now - time < self.window)
            for key, times in self.times.items()
        }
        return {key: times for key, times in found.items() if times}


class FailedSetting(Struct, frozen=True):
    """When to try next, on the daemon's clock, and the same for people."""

    due: float
    retry: Retry


class Retries(Struct, frozen=True):
    """What could not be set. ``first`` is how many seconds pass until the second try."""

    first: float
    failures: Mapping[SettingKey, FailedSetting] = {}

    @classmethod
    def resumed(
        cls, first: float, changes: Iterable[SettingChange], now: float, epoch: float
    ) -> "Retries":
        """Return what an earlier daemon was still trying, by the changes that it left open.

        ``now`` is the daemon's clock at ``epoch`` seconds since the epoch.
        """
        failures = {
            each.key: FailedSetting(
                now + min(each.retry.next - epoch, max(first, LONGEST)), each.retry
            )
            for each in changes
            if each.retry is not None
        }
        return cls(first, failures)

    def due(self, now: float) -> frozenset[SettingKey]:
        """Return what is to be tried now."""
        return frozenset(key for key, each in self.failures.items() if each.due <= now)

    def waiting(self, now: float) -> frozenset[SettingKey]:
        """Return what is to be tried later."""
        return frozenset(key for key, each in self.failures.items() if each.due > now)

    def after(
        self, changes: Collection[SettingChange], now: float, epoch: float, *, whole: bool
    ) -> "Retries":
        """Return it after a pass that made these changes, ``whole`` where it was over everything.

        What a whole pass does not speak of is as it should be, or gone.
        """
        spoken = {each.key for each in changes}
        failures = {key: each for key, each in self.failures.items() if not whole or key in spoken}
        for each in changes:
            if each.handled is Handled.FAILED:
                failures[each.key] = self._failed(failures.get(each.key), now, epoch)
            elif each.handled is Handled.WRITTEN:
                failures.pop(each.key, None)
        return replace(self, failures=failures)

    def dated(self, changes: Iterable[SettingChange]) -> tuple[SettingChange, ...]:
        """Return the changes, those that are tried again with when."""
        return tuple(
            replace(each, retry=self.failures[each.key].retry)
            if each.handled in (Handled.FAILED, Handled.WAITING) and each.key in self.failures
            else each
            for each in changes
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
    for each in changes:
        if each.handled is Handled.RAMPING and isinstance(each.before, int):
            yield each.id, DepthLevel(each.before, 0, 0, ramping=True)
