"""What the daemon has yet to look at, and when: events, audits, what is to be tried again.

Times are seconds of the daemon's clock.
"""

from collections.abc import Iterable

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import Order, PassReason

SETTLE = 0.05
"""Seconds after an event in which its companions are waited for: they are tuned together."""


class Schedule:
    """When the next pass is due, and what for: the endpoints of some events, or everything."""

    def __init__(self, now: float) -> None:
        self._events: dict[DeviceEvent, None] = {}
        self._everything: PassReason | None = PassReason.START
        self._due = now
        self._audit = float("inf")

    @property
    def has_events(self) -> bool:
        """Whether an event waits for a pass."""
        return bool(self._events)

    @property
    def due(self) -> float:
        """When there is something to look at, if nothing happens until then."""
        return self._due if self._waiting else max(self._audit, self._due)

    def add_events(self, events: Iterable[DeviceEvent], now: float) -> None:
        """Look at what these events name; later ones do not put it off."""
        soon = now + SETTLE
        self._due = min(self._due, soon) if self._waiting else soon
        self._events.update(dict.fromkeys(events))

    def add_everything(self, reason: PassReason, at: float) -> None:
        """Look at everything."""
        # A reload that was asked for does more than any other reason.
        self._everything = reason if reason is PassReason.RELOAD else self._everything or reason
        self._due = at

    def repeat(self, order: Order, at: float) -> None:
        """Look at the same once more."""
        self._events = dict.fromkeys((*order.events, *self._events))
        if order.names is None:
            self._everything = self._everything or order.reason
        self._due = at

    def set_audit(self, at: float) -> None:
        """Look at everything at this time, unless something leads to it before."""
        self._audit = at

    def is_due(self, now: float) -> bool:
        """Whether a pass is to be made now."""
        if now < self._due:
            return False
        if now >= self._audit:
            self._everything = self._everything or PassReason.AUDIT
        return self._waiting

    def take(self) -> tuple[PassReason, tuple[DeviceEvent, ...]]:
        """Return why a pass is made and the events that led to it."""
        reason, events = self._everything or PassReason.EVENT, tuple(self._events)
        self._events, self._everything = {}, None
        return reason, events

    @property
    def _waiting(self) -> bool:
        return bool(self._events) or self._everything is not None
