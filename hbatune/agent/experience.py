"""What has come of earlier passes, as far as the next one has to know it."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from hbatune.agent.damping import Damping, Key
from hbatune.agent.events import Event
from hbatune.agent.orders import Change, Handled, Order, Origin, Reason, Report
from hbatune.agent.ramps import Level
from hbatune.agent.retries import Retries
from hbatune.plan.rows import Outcome


class Experience:
    """Which settings others set back, which could not be set, and which the kernel has lowered.

    ``open`` is what an earlier daemon of this boot has left open. Times are seconds of the daemon's
    clock, and beside it since the epoch, for people.
    """

    def __init__(
        self, audit_seconds: float, open: Iterable[Change] = (), *, now: float, epoch: float
    ) -> None:
        before = tuple(open)
        self._damping = Damping.every(audit_seconds)
        self._retries = Retries.resumed(audit_seconds, before, now, epoch)
        self._levels: Mapping[str, Level] = dict(_lowered(before))
        self._crossed: frozenset[Key] = frozenset()
        self._outdated: Order | None = None

    def order(self, reason: Reason, events: tuple[Event, ...], now: float) -> Order:
        """Return the order of a pass."""
        return Order(
            reason,
            events,
            left=self._damping.left,
            fought=self._damping.fought(now),
            due=self._retries.due(now),
            waiting=self._retries.waiting(now),
            levels=dict(self._levels),
        )

    def forgive(self, audit_seconds: float, under_way: Order | None) -> None:
        """Begin again with what others set back, and try now what could not be set.

        A pass under way knows nothing of that yet.
        """
        self._damping = Damping.every(audit_seconds)
        self._retries = Retries(audit_seconds)
        self._outdated = under_way

    def learn(
        self, order: Order, report: Report, now: float, epoch: float
    ) -> tuple[Sequence[Change], Report]:
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
        if order.reason in (Reason.AUDIT, Reason.EVENT):
            drifted = (each.key for each in report.written if each.origin is Origin.DRIFT)
            self._damping = self._damping.put_right(drifted, now)
        if report.machine is not None:
            self._retries = self._retries.after(report.changes, now, epoch, whole=whole)
        left = [each for each in report.changes if each.handled is Handled.LEFT]
        new = [each for each in left if each.key not in self._damping.left]
        self._damping = self._damping.leave(each.key for each in new)
        return new, replace(report, changes=self._retries.dated(report.changes))

    def crossed(self, order: Order, report: Report) -> tuple[Order | None, Report]:
        """Return an order for what was set meanwhile, if anything was, and the report without it.

        The maker of an event may be at work still: multipathd loads a table, and the kernel raises
        the read-ahead with it. What is crossed twice in a row has failed.
        """
        crossed = {
            each.key: each.target
            for each in report.changes
            if order.reason is Reason.EVENT
            and each.outcome in (Outcome.CONFLICT, Outcome.CANCELLED)
            and each.key not in self._crossed
        }
        self._crossed = frozenset(crossed)
        if not crossed:
            return None, report
        others = tuple(each for each in report.changes if each.key not in crossed)
        names = set(crossed.values())
        # Its own events again where they name it: what they have reset is reset still.
        events = (*order.events, *(Event(name) for name in sorted(names)))
        return replace(order, events=events), replace(report, changes=others)


def _lowered(changes: Iterable[Change]) -> Iterable[tuple[str, Level]]:
    """Yield the levels of depths that the kernel was raising; their errors are not known."""
    for each in changes:
        if each.handled is Handled.RAMPING and isinstance(each.before, int):
            yield each.id, Level(each.before, 0, 0, ramping=True)
