"""What the daemon has still to look at, and when: events, audits, what is to be tried again.

Times are seconds of the daemon's clock.
"""

from collections.abc import Iterable

from hbatune.agent.events import Event
from hbatune.agent.orders import Order, Reason

SETTLE = 0.05
"""Seconds after an event in which its companions are waited for: they are tuned together."""


class Agenda:
    """What waits for a pass: events, or everything, which is more than any of them names."""

    def __init__(self, now: float) -> None:
        self._events: dict[Event, None] = {}
        self._everything: Reason | None = Reason.START
        self._due = now
        self._audit = float("inf")

    @property
    def announced(self) -> bool:
        """Whether something that was announced waits."""
        return bool(self._events)

    @property
    def due(self) -> float:
        """When there is something to look at, if nothing happens until then."""
        return self._due if self._waiting else max(self._audit, self._due)

    def hear(self, events: Iterable[Event], now: float) -> None:
        """Look at what was announced; what comes later does not put it off."""
        soon = now + SETTLE
        self._due = min(self._due, soon) if self._waiting else soon
        self._events.update(dict.fromkeys(events))

    def everything(self, reason: Reason, at: float) -> None:
        """Look at everything."""
        # A reload that was asked for does more than any other reason.
        self._everything = reason if reason is Reason.RELOAD else self._everything or reason
        self._due = at

    def again(self, order: Order, at: float) -> None:
        """Look at the same once more."""
        self._events = dict.fromkeys((*order.events, *self._events))
        if order.names is None:
            self._everything = self._everything or order.reason
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

    def take(self) -> tuple[Reason, tuple[Event, ...]]:
        """Return why a pass is made and the events that led to it."""
        reason, events = self._everything or Reason.EVENT, tuple(self._events)
        self._events, self._everything = {}, None
        return reason, events

    @property
    def _waiting(self) -> bool:
        return bool(self._events) or self._everything is not None
