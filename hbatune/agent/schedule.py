"""The daemon's schedule: events, audits and repetitions that wait for a pass.

Times are seconds of the daemon's clock.
"""

from collections.abc import Iterable

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import Order, PassReason

SETTLE = 0.05
"""Seconds to wait after an event for others that belong to it, so that one pass tunes them all."""


class Schedule:
    """The time and the reason of the next pass: the endpoints of some events, or everything."""

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
        """The time of the next pass, if nothing happens until then."""
        return self._due if self._waiting else max(self._audit, self._due)

    def add_events(self, events: Iterable[DeviceEvent], now: float) -> None:
        """Look at the devices of these events; later events do not put it off."""
        soon = now + SETTLE
        self._due = min(self._due, soon) if self._waiting else soon
        self._events.update(dict.fromkeys(events))

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
