"""What a pass is told and what it reports, as frozen values."""

from enum import StrEnum

from msgspec import Struct

from hbatune.agent.damping import Key
from hbatune.facts.model import Machine
from hbatune.rows import Outcome
from hbatune.settings.table import Value


class Reason(StrEnum):
    """Why a pass is made."""

    START = "start"
    EVENT = "event"
    AUDIT = "audit"
    OVERRUN = "overrun"  # udev's events came faster than they were read: some are lost
    RELOAD = "reload"


class Order(Struct, frozen=True):
    """What a pass is to look at: these names, or everything where there are none.

    ``left`` is what others keep setting back, ``failing`` what could not be set time and again.
    ``known`` are the ids that were seen before: what is not among them is new, and nobody has
    changed it. None: all of it is known.
    """

    reason: Reason
    names: tuple[str, ...] | None
    left: frozenset[Key] = frozenset()
    failing: frozenset[Key] = frozenset()
    known: frozenset[str] | None = frozenset()


class Handled(StrEnum):
    """What was done about a setting that was not as the profile wants it."""

    WRITTEN = "written"
    FAILED = "failed"  # ``outcome`` says how
    REPORTED = "reported"  # the site wants it told and not touched
    LEFT = "left"  # others keep setting it back
    GIVEN_UP = "given_up"  # it could not be set, twice
    HELD = "held"  # somebody is measuring with it


class Change(Struct, frozen=True):
    """One setting that was not as the profile wants it, and what was done about it."""

    target: str
    id: str
    setting: str
    before: Value | None
    value: Value
    rule: str
    handled: Handled
    outcome: Outcome | None = None
    errno: int | None = None

    @property
    def key(self) -> Key:
        """The target's id and the setting."""
        return self.id, self.setting


class Report(Struct, frozen=True):
    """What came of a pass over ``endpoints`` endpoints; ``unreadable`` rows could not be told.

    ``appeared`` are the ids of endpoints that were named, ``ids`` those of everything.

    ``locked`` says that another hbatune was at work, so that nothing was looked at; ``error`` and
    ``hint`` what ended the pass before its time, or went wrong beside it. ``machine`` is what was
    seen, without its attributes; ``depths`` and ``knees`` are by endpoint id the queue depths that
    were set and the knees that probes have found.
    """

    profile: str | None = None
    endpoints: int = 0
    changes: tuple[Change, ...] = ()
    unreadable: int = 0
    appeared: tuple[str, ...] = ()
    locked: bool = False
    error: str | None = None
    hint: str | None = None
    machine: Machine | None = None
    ids: frozenset[str] = frozenset()
    depths: dict[str, int] = {}
    knees: dict[str, int] = {}

    @property
    def written(self) -> list[Change]:
        """What was put right."""
        return [each for each in self.changes if each.handled is Handled.WRITTEN]

    @property
    def open(self) -> tuple[Change, ...]:
        """What is still not as it should be."""
        return tuple(each for each in self.changes if each.handled is not Handled.WRITTEN)
