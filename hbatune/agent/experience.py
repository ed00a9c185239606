"""What has come of earlier passes, as far as the next one has to know it."""

from collections.abc import Sequence

from msgspec.structs import replace

from hbatune.agent.damping import TWICE, Damping, Key
from hbatune.agent.orders import Change, Handled, Order, Reason, Report
from hbatune.rows import Outcome


class Experience:
    """Which settings others set back, which could not be set, and what was seen before.

    ``known`` are the ids that were seen before; None: all of them, by an earlier daemon of this
    boot. Times are seconds of the daemon's clock.
    """

    def __init__(self, audit_seconds: float, known: frozenset[str] | None) -> None:
        self._damping = Damping.every(audit_seconds)
        self._failing: dict[Key, int] = {}
        self._known = known
        self._outdated: Order | None = None

    def order(self, reason: Reason, names: tuple[str, ...] | None, now: float) -> Order:
        """Return the order of a pass; what is announced is new, whatever was known of it."""
        if reason is Reason.EVENT:
            return Order(reason, names, self._damping.left)
        failing = frozenset(key for key, times in self._failing.items() if times >= TWICE)
        return Order(reason, names, self._damping.to_leave(now), failing, self._known)

    def forgive(self, audit_seconds: float, under_way: Order | None) -> None:
        """Begin anew with what others have set back; a pass under way knows nothing of that yet."""
        self._damping, self._failing = Damping.every(audit_seconds), {}
        self._outdated = under_way

    def learn(self, order: Order, report: Report, now: float) -> Sequence[Change]:
        """Remember what came of a pass; return what is left from now on, set back once more."""
        self._known = (self._known or frozenset()) | report.ids
        if order is self._outdated:
            return ()
        if order.reason is Reason.AUDIT:
            self._damping = self._damping.put_right((each.key for each in report.written), now)
        for each in report.changes:
            if each.handled is Handled.FAILED:
                self._failing[each.key] = self._failing.get(each.key, 0) + 1
            elif each.handled is Handled.WRITTEN:
                self._failing.pop(each.key, None)
        left = [each for each in report.changes if each.handled is Handled.LEFT]
        new = [each for each in left if each.key not in self._damping.left]
        self._damping = self._damping.leave(each.key for each in new)
        return new

    def crossed(self, order: Order, report: Report) -> tuple[Order | None, Report]:
        """Return an order for what was set meanwhile, if anything was, and the report without it.

        The maker of an event may be at work still: multipathd loads a table, and the kernel raises
        the read-ahead with it.
        """
        crossed = {
            each.key: each.target
            for each in report.changes
            if order.reason is Reason.EVENT
            and each.outcome is Outcome.CONFLICT
            and self._failing.get(each.key, 0) < TWICE
        }
        if not crossed:
            return None, report
        others = tuple(each for each in report.changes if each.key not in crossed)
        again = replace(order, names=tuple(crossed.values()))
        return again, replace(report, changes=others)
