"""What the daemon has still to look at, and when: events, audits, what is to be tried again.

Times are seconds of the daemon's clock.
"""

from collections.abc import Iterable

from hbatune.agent.orders import Order, Reason

SETTLE = 0.05
"""Seconds after an event in which its companions are waited for: they are tuned together."""


class Agenda:
    """What waits for a pass: names, or everything, which is more than any names."""

    def __init__(self, now: float) -> None:
        self._names: dict[str, None] = {}
        self._everything: Reason | None = Reason.START
        self._due = now
        self._audit = float("inf")

    @property
    def announced(self) -> bool:
        """Whether something that has appeared waits."""
        return bool(self._names)

    @property
    def due(self) -> float:
        """When there is something to look at, if nothing happens until then."""
        return self._due if self._waiting else max(self._audit, self._due)

    def hear(self, names: Iterable[str], now: float) -> None:
        """Look at what has appeared; what comes later does not put it off."""
        soon = now + SETTLE
        self._due = min(self._due, soon) if self._waiting else soon
        self._names.update(dict.fromkeys(names))

    def everything(self, reason: Reason, at: float) -> None:
        """Look at everything."""
        self._everything = self._everything or reason
        self._due = at

    def again(self, order: Order, at: float) -> None:
        """Look at the same once more."""
        if order.names is None:
            self.everything(order.reason, at)
        else:
            self._names = dict.fromkeys((*order.names, *self._names))
            self._due = at

    def audit(self, at: float) -> None:
        """Look at everything then, should nothing have led to it before."""
        self._audit = at

    def ripe(self, now: float) -> bool:
        """Whether a pass is to be made now."""
        if now < self._due:
            return False
        if now >= self._audit:
            self._everything = self._everything or Reason.AUDIT
        return self._waiting

    def take(self) -> tuple[Reason, tuple[str, ...] | None]:
        """Return why a pass is made and the names that it is about, None for everything."""
        reason, names = self._everything or Reason.EVENT, tuple(self._names)
        whole = self._everything is not None
        self._names, self._everything = {}, None
        return reason, None if whole else names

    @property
    def _waiting(self) -> bool:
        return bool(self._names) or self._everything is not None
