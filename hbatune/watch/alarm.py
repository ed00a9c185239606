"""One alarm: raised once, cleared once, and calm about what flickers. Pure.

It is raised where a value has been over its limit for so long, and cleared where it has been well
below it for so long; in the band between, it stays what it is. Time is that of the monotonic
clock: what steps back is not looked at, and a time that nobody watched proves nothing.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class Stand(StrEnum):
    """How a value stands to its limit at one look."""

    OVER = "over"
    BETWEEN = "between"  # in the band of the hysteresis
    CALM = "calm"
    UNKNOWN = "unknown"  # it could not be had


class Pace(Struct, frozen=True):
    """Seconds for which a value is over before an alarm is raised, and calm before it is cleared.

    Looks further apart than ``gap`` seconds do not say what was in between.
    """

    raise_after: float
    clear_after: float
    gap: float


class Change(StrEnum):
    """What became of an alarm at a look."""

    RAISED = "raised"
    CLEARED = "cleared"


class Alarm(Struct, frozen=True):
    """What is remembered of one alarm: since when its value is over or calm without a break."""

    raised: bool = False
    over_since: float | None = None
    calm_since: float | None = None
    looked: float | None = None

    @property
    def worth_keeping(self) -> bool:
        """Whether it is not as if nobody had ever looked."""
        return self.raised or self.over_since is not None


def look(alarm: Alarm, stand: Stand, now: float, pace: Pace) -> tuple[Alarm, Change | None]:
    """Return the alarm after one more look, and what became of it."""
    if alarm.looked is not None:
        if now <= alarm.looked:
            return alarm, None
        if now - alarm.looked > pace.gap:
            alarm = replace(alarm, over_since=None, calm_since=None)
    alarm = replace(
        alarm,
        looked=now,
        over_since=_since(alarm.over_since, stand, Stand.OVER, now),
        calm_since=_since(alarm.calm_since, stand, Stand.CALM, now),
    )
    if (
        stand is Stand.OVER
        and not alarm.raised
        and _lasted(alarm.over_since, now, pace.raise_after)
    ):
        return replace(alarm, raised=True), Change.RAISED
    if stand is Stand.CALM and alarm.raised and _lasted(alarm.calm_since, now, pace.clear_after):
        return replace(alarm, raised=False), Change.CLEARED
    return alarm, None


def _since(since: float | None, stand: Stand, wanted: Stand, now: float) -> float | None:
    """Return since when the value stands so; what is unknown neither begins it nor ends it."""
    if stand is Stand.UNKNOWN:
        return since
    if stand is not wanted:
        return None
    return now if since is None else since


def _lasted(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since >= seconds


def stands(value: float | None, limit: float, hysteresis: float) -> Stand:
    """Return how a value stands to a limit; it is calm once ``hysteresis`` of it lies between."""
    if value is None:
        return Stand.UNKNOWN
    if value > limit:
        return Stand.OVER
    return Stand.CALM if value <= limit * (1 - hysteresis) else Stand.BETWEEN
