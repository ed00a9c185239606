"""The budget of time for short probes of new endpoints, and the result of one (``probing``)."""

import msgspec
from msgspec import Struct

from hbatune.agent.orders import UnwrittenFile

HOUR = 3600.0


class ProbeTime(Struct, frozen=True):
    """The times of probes on a monotonic clock, with the seconds that each was given."""

    probes: tuple[tuple[float, float], ...] = ()

    def left(self, budget: float, now: float) -> float:
        """Return the seconds that are left of the hour's budget."""
        return budget - sum(seconds for time, seconds in self.probes if now - time < HOUR)

    def plus(self, seconds: float, now: float) -> "ProbeTime":
        """Return a copy with a probe of so many seconds made now."""
        recent = tuple(each for each in self.probes if now - each[0] < HOUR)
        return ProbeTime((*recent, (now, seconds)))


class NewEndpointProbe(Struct, frozen=True):
    """The result: how many were measured, and why none could be kept, if so.

    ``unwritten`` is the history if it could not be written.
    """

    measured: int = 0
    seconds: float = 0.0
    error: str | None = None
    unwritten: tuple[UnwrittenFile, ...] = ()


decode = msgspec.json.Decoder(NewEndpointProbe).decode
