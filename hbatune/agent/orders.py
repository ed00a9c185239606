"""The orders that passes get and the reports that they return, as frozen values."""

from enum import StrEnum

from msgspec import Struct

from hbatune.agent.events import DeviceEvent
from hbatune.facts.sampler import SampledPlaces
from hbatune.plan.rows import Outcome
from hbatune.policy.config import Unmatched
from hbatune.settings.table import Value
from hbatune.watch.watched import Subjects

SettingKey = tuple[str, str]
"""A target's id and a setting."""


class PassReason(StrEnum):
    """Why a pass is made."""

    START = "start"
    EVENT = "event"
    AUDIT = "audit"
    OVERRUN = "overrun"  # udev's events came faster than they were read: some are lost
    CONFIGURED = "configured"  # a file of the configuration has changed
    RELOAD = "reload"  # requested: settings that the profile no longer wants go back, too


class DepthLevel(Struct, frozen=True, gc=False):
    """A queue depth, and the errors of its target's LUNs at this look and at the previous one.

    ``ramping`` is whether the kernel had lowered it.
    """

    depth: int
    errors: int
    earlier: int
    ramping: bool = False


class Order(Struct, frozen=True):
    """The scope of a pass: the devices of the ``events``, or everything for any other reason.

    ``left`` are settings that are left alone for good because others keep setting them back,
    ``fought`` those that have been repaired as often as is allowed. ``due`` could not be set at an
    earlier look and is tried again now, ``waiting`` later. ``levels`` are by endpoint id the levels
    of queue depths that a full queue lowers, as last seen.
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
        """The names of the devices in its scope, None for everything."""
        if self.reason is not PassReason.EVENT:
            return None
        return tuple(dict.fromkeys(event.name for event in self.events))

    @property
    def unmarked(self) -> frozenset[str]:
        """The names of the disks of which nothing is saved in udev's database, by all events."""
        marked = {event.name for event in self.events if not event.unmarked}
        return frozenset(event.name for event in self.events) - marked


class Handled(StrEnum):
    """How a setting that was not as the profile wants it was handled."""

    WRITTEN = "written"
    FAILED = "failed"  # ``outcome`` says how, ``retry`` when it is tried again
    WAITING = "waiting"  # it could not be set, and is tried again later
    RAMPING = "ramping"  # the kernel lowered it after a full queue, and raises it again
    REPORTED = "reported"  # the site wants drift reported and not repaired
    LEFT = "left"  # others keep setting it back, so it is left alone
    HELD = "held"  # a run is switching it for its measurements


class ChangeOrigin(StrEnum):
    """The origin of a value that is not as the profile wants it."""

    NEW = "new"  # its device is new, and was never tuned
    RESET = "reset"  # the kernel or the driver has reset it
    UNSET = "unset"  # it could not be set at an earlier look
    SHARE = "share"  # it is as hbatune has set it: its share of an array's limit is another now
    DRIFT = "drift"  # an administrator or another tool has changed it


class Retry(Struct, frozen=True, gc=False):
    """The time when a setting first could not be set, the number of tries, and the next try.

    Times are in seconds since the epoch.
    """

    since: float
    tries: int
    next: float


class SettingChange(Struct, frozen=True, gc=False):
    """One setting that was not as the profile wants it, and how it was handled.

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
        """Whether it needs attention: a ramp ends by itself."""
        return self.handled not in (Handled.WRITTEN, Handled.RAMPING)


class UnwrittenFile(Struct, frozen=True):
    """A file that the daemon could not write, and the reason."""

    path: str
    reason: str


class LaterLook(Struct, frozen=True):
    """A look at the devices of some events, so many seconds from now."""

    seconds: float
    events: tuple[DeviceEvent, ...]


class PassReport(Struct, frozen=True):
    """The result of a pass on a machine of ``endpoints``; ``unreadable`` counts unread settings.

    ``looked`` are the ids of endpoints that events named, ``new`` of those the new ones, and
    ``levels`` the queue depths that a full queue lowers. ``resettable`` are the values to which the
    driver puts queue depths back without an event, where the profile wants another, by target.

    ``locked`` says that another hbatune was at work, so that nothing was looked at; ``error`` and
    ``hint`` describe a failure that ended the pass early or accompanied it. ``subjects`` are
    what is to be watched of what was looked at, None where nothing was, and ``places`` where its
    counters are: of everything or only of a part (``whole``), as ``resettable`` is. ``unmatched``
    are the names in [site] that match nothing on the machine. ``later`` are the looks to take
    after this pass. ``unwritten`` are hbatune's own files that could not be written.
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
    subjects: Subjects | None = None
    places: SampledPlaces = SampledPlaces()
    whole: bool = True
    levels: dict[str, DepthLevel] = {}
    resettable: dict[str, int] = {}
    unmatched: tuple[Unmatched, ...] = ()
    later: tuple[LaterLook, ...] = ()
    unwritten: tuple[UnwrittenFile, ...] = ()

    @property
    def written(self) -> list[SettingChange]:
        """The settings that were repaired."""
        return [each for each in self.changes if each.handled is Handled.WRITTEN]

    @property
    def open(self) -> tuple[SettingChange, ...]:
        """The settings that are still not as they should be."""
        return tuple(each for each in self.changes if each.handled is not Handled.WRITTEN)
