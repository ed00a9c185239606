"""Orders that passes get, and reports that they return in pieces.

The orders that passes get and the reports that they return, as frozen values.

The reports of passes on their way to the daemon: in pieces, so that it stays small.

A report on thousands of disks repeats their names and ids. Decoded at once, it would take the
daemon's memory to a size that it never needs again, and that the allocator keeps.

The budget of time for short probes of new endpoints, and the result of one (``probing``).
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune.agent.events import DeviceEvent
from hbatune.facts.sampler import SampledPlaces
from hbatune.plan.rows import Outcome
from hbatune.policy.config import Unmatched
from hbatune.settings.table import Value
from hbatune.watch.readings import Subjects, WatchedDisk

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


class DelayedScan(Struct, frozen=True):
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
    later: tuple[DelayedScan, ...] = ()
    unwritten: tuple[UnwrittenFile, ...] = ()

    @property
    def written(self) -> list[SettingChange]:
        """The settings that were repaired."""
        return [change for change in self.changes if change.handled is Handled.WRITTEN]

    @property
    def open(self) -> tuple[SettingChange, ...]:
        """The settings that are still not as they should be."""
        return tuple(change for change in self.changes if change.handled is not Handled.WRITTEN)


SIZE = 64
"""Disks in a piece, and changes."""


class _Piece(Struct, frozen=True, array_like=True):
    """A report's part on some disks: the fields of ``PassReport`` that grow with the machine."""

    changes: tuple[SettingChange, ...]
    disks: tuple[WatchedDisk, ...]
    names: dict[str, str]
    scsi: tuple[str, ...]
    levels: dict[str, DepthLevel]
    resettable: dict[str, int]


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(PassReport).decode
_decode_piece = msgspec.json.Decoder(_Piece).decode


def encode_report(report: PassReport) -> bytes:
    """Return a report as bytes: a line of JSON for what is left of it without its disks' parts,
    and one for each piece of those.
    """
    known = report.subjects
    head = replace(
        report,
        changes=(),
        subjects=None if known is None else replace(known, disks=()),
        places=SampledPlaces(ways=report.places.ways),
        levels={},
        resettable={},
    )
    return b"\n".join((_encode(head), *map(_encode, _pieces(report))))


def decode_report(sent: bytes, known: Iterable[WatchedDisk] = ()) -> PassReport:
    """Return the report; equal texts in it are one object, and so are disks ``known`` before."""
    before = {disk.id: disk for disk in known}
    texts = _Texts()
    for disk in before.values():
        texts.share_of(disk)
    lines = _lines(sent)
    head = _decode_head(next(lines))
    changes, disks, scsi = list[SettingChange](), list[WatchedDisk](), list[str]()
    names, levels, resettable = dict[str, str](), dict[str, DepthLevel](), dict[str, int]()
    for line in lines:
        piece = _decode_piece(line)
        for disk in piece.disks:
            former = before.get(disk.id)
            disks.append(former if former == disk else texts.share_of(disk))
        changes += map(texts.share_of_change, piece.changes)
        scsi += map(texts.one, piece.scsi)
        names.update((texts.one(name), texts.one(id)) for name, id in piece.names.items())
        levels.update((texts.one(id), each) for id, each in piece.levels.items())
        resettable.update((texts.one(name), each) for name, each in piece.resettable.items())
    return replace(
        head,
        changes=tuple(changes),
        subjects=None if head.subjects is None else replace(head.subjects, disks=tuple(disks)),
        places=replace(head.places, disks=names, scsi=tuple(scsi)),
        levels=levels,
        resettable=resettable,
    )


class _Texts:
    """Texts of which each is kept once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def one(self, text: str) -> str:
        """Return the equal text that was seen first."""
        return self._known.setdefault(text, text)

    def share_of(self, disk: WatchedDisk) -> WatchedDisk:
        """Return a disk with texts that others have, too."""
        adapter = None if disk.adapter is None else self.one(disk.adapter)
        source = None if disk.knee_source is None else self.one(disk.knee_source)
        return replace(
            disk,
            id=self.one(disk.id),
            target=self.one(disk.target),
            adapter=adapter,
            knee_source=source,
            paths=tuple(map(self.one, disk.paths)),
        )

    def share_of_change(self, change: SettingChange) -> SettingChange:
        """Return a change with texts that others have, too."""
        before, value = change.before, change.value
        return replace(
            change,
            target=self.one(change.target),
            id=self.one(change.id),
            setting=self.one(change.setting),
            before=self.one(before) if isinstance(before, str) else before,
            value=self.one(value) if isinstance(value, str) else value,
            rule=self.one(change.rule),
        )


def _pieces(report: PassReport) -> Iterator[_Piece]:
    disks = () if report.subjects is None else report.subjects.disks
    names, scsi = iter(report.places.disks.items()), report.places.scsi
    levels, resettable = iter(report.levels.items()), iter(report.resettable.items())
    longest = max(
        map(len, (report.changes, disks, report.places.disks, report.levels, report.resettable))
    )
    for start in range(0, longest, SIZE):
        some = slice(start, start + SIZE)
        yield _Piece(
            changes=report.changes[some],
            disks=disks[some],
            names=dict(islice(names, SIZE)),
            scsi=scsi[some],
            levels=dict(islice(levels, SIZE)),
            resettable=dict(islice(resettable, SIZE)),
        )


def _lines(sent: bytes) -> Iterator[memoryview]:
    """Yield the lines; JSON that msgspec makes has no line break of its own."""
    whole, start = memoryview(sent), 0
    while start <= len(sent):
        end = sent.find(b"\n", start)
        end = len(sent) if end < 0 else end
        yield whole[start:end]
        start = end + 1


HOUR = 3600.0


class ProbeTime(Struct, frozen=True):
    """The times of probes on a monotonic clock, with the seconds that each was given."""

    probes: tuple[tuple[float, float], ...] = ()

    def left(self, budget: float, now: float) -> float:
        """Return the seconds that are left of the hour's budget."""
        return budget - sum(seconds for time, seconds in self.probes if now - time < HOUR)

    def plus(self, seconds: float, now: float) -> "ProbeTime":
        """Return a copy with a probe of so many seconds made now."""
        recent = tuple(probe for probe in self.probes if now - probe[0] < HOUR)
        return ProbeTime((*recent, (now, seconds)))


class NewEndpointProbe(Struct, frozen=True):
    """The result: how many were measured, and why none could be kept, if so.

    ``unwritten`` is the history if it could not be written.
    """

    measured: int = 0
    seconds: float = 0.0
    error: str | None = None
    unwritten: tuple[UnwrittenFile, ...] = ()


decode_probe = msgspec.json.Decoder(NewEndpointProbe).decode
