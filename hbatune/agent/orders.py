"""What a pass is told and what it reports, as frozen values."""

from enum import StrEnum

from msgspec import Struct

from hbatune.agent.events import DeviceEvent
from hbatune.facts.model import Machine
from hbatune.plan.rows import Outcome
from hbatune.settings.table import Value

SettingKey = tuple[str, str]
"""A target's id and a setting."""


class PassReason(StrEnum):
    """Why a pass is made."""

    START = "start"
    EVENT = "event"
    AUDIT = "audit"
    OVERRUN = "overrun"  # udev's events came faster than they were read: some are lost
    CONFIGURED = "configured"  # a file of the configuration has changed
    RELOAD = "reload"  # asked for: what the profile no longer wants goes back, too


class DepthLevel(Struct, frozen=True):
    """A queue depth, and the errors of its target's LUNs at this look and at the one before.

    ``ramping`` is whether the kernel had lowered it.
    """

    depth: int
    errors: int
    earlier: int
    ramping: bool = False


class Order(Struct, frozen=True):
    """What a pass is to look at: what the ``events`` name, or for any other reason everything.

    ``left`` is what others keep setting back for good, ``fought`` what has been put right as often
    as it may be. ``due`` could not be set at an earlier look and is tried again now, ``waiting``
    later. ``levels`` are by endpoint id what was seen of queue depths that a full queue lowers.
    """

    reason: PassReason
    events: tuple[DeviceEvent, ...] = ()
    left: frozenset[SettingKey] = frozenset()
    fought: frozenset[SettingKey] = frozenset()
    due: frozenset[SettingKey] = frozenset()
    waiting: frozenset[SettingKey] = frozenset()
    levels: dict[str, DepthLevel] = {}

    @property
    def names(self) -> tuple[str, ...] | None:
        """What it is about, None for everything."""
        if self.reason is not PassReason.EVENT:
            return None
        return tuple(dict.fromkeys(event.name for event in self.events))


class Handled(StrEnum):
    """What was done about a setting that was not as the profile wants it."""

    WRITTEN = "written"
    FAILED = "failed"  # ``outcome`` says how, ``retry`` when it is tried again
    WAITING = "waiting"  # it could not be set, and is tried again later
    RAMPING = "ramping"  # the kernel lowered it after a full queue, and raises it again
    REPORTED = "reported"  # the site wants it reported and not touched
    LEFT = "left"  # others keep setting it back
    HELD = "held"  # a run is measuring with it


class ChangeOrigin(StrEnum):
    """Why a setting was not as the profile wants it."""

    NEW = "new"  # its device is new, and was never tuned
    RESET = "reset"  # the kernel or the driver has reset it
    UNSET = "unset"  # it could not be set at an earlier look
    DRIFT = "drift"  # it was changed since


class Retry(Struct, frozen=True):
    """Since when a setting cannot be set, how often that was tried, and when it is tried next.

    Times are in seconds since the epoch.
    """

    since: float
    tries: int
    next: float


class SettingChange(Struct, frozen=True):
    """One setting that was not as the profile wants it, and what was done about it.

    ``step_seconds`` is how long the kernel takes to raise a lowered queue depth by one.
    """

    target: str
    id: str
    setting: str
    before: Value | None
    value: Value
    rule: str
    handled: Handled
    outcome: Outcome | None = None
    errno: int | None = None
    origin: ChangeOrigin = ChangeOrigin.DRIFT
    retry: Retry | None = None
    step_seconds: float | None = None

    @property
    def key(self) -> SettingKey:
        """The target's id and the setting."""
        return self.id, self.setting

    @property
    def amiss(self) -> bool:
        """Whether it is something to look at: a ramp ends by itself."""
        return self.handled not in (Handled.WRITTEN, Handled.RAMPING)


class PassReport(Struct, frozen=True):
    """What came of a pass over ``endpoints`` endpoints; ``unreadable`` rows could not be told.

    ``looked`` are the ids of endpoints that events named, ``new`` those of new endpoints, and
    ``levels`` what was seen of queue depths that a full queue lowers.

    ``locked`` says that another hbatune was at work, so that nothing was looked at; ``error`` and
    ``hint`` what ended the pass before its time, or went wrong beside it. ``machine`` is what was
    seen, without its attributes; ``depths`` and ``knees`` are by endpoint id the queue depths that
    were set and the knees that probes have found.
    """

    profile: str | None = None
    endpoints: int = 0
    changes: tuple[SettingChange, ...] = ()
    unreadable: int = 0
    looked: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    locked: bool = False
    error: str | None = None
    hint: str | None = None
    machine: Machine | None = None
    levels: dict[str, DepthLevel] = {}
    depths: dict[str, int] = {}
    knees: dict[str, int] = {}

    @property
    def written(self) -> list[SettingChange]:
        """What was put right."""
        return [each for each in self.changes if each.handled is Handled.WRITTEN]

    @property
    def open(self) -> tuple[SettingChange, ...]:
        """What is still not as it should be."""
        return tuple(each for each in self.changes if each.handled is not Handled.WRITTEN)
