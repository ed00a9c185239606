"""Orders for passes, their reports, and the time budget and results of short probes (``probing``).

Passes send reports to the daemon in pieces to save its memory. A report on thousands of disks
repeats their names and ids. Decoded as a unit, it would require memory that the daemon never needs
again but that the allocator keeps.
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
from hbatune.policy.config import UnmatchedName
from hbatune.settings.table import Value
from hbatune.watch.readings import Subjects, WatchedDisk

SettingKey = tuple[str, str]
"""A target's id and a setting."""


class PassReason(StrEnum):
    """The reason for a pass."""

    START = "start"
    EVENT = "event"
    AUDIT = "audit"
    OVERRUN = "overrun"  # udev events arrived faster than they were read, and some are lost
    CONFIGURED = "configured"  # a file of the configuration has changed
    RELOAD = "reload"  # requested: also restores settings that the profile no longer requires


class DepthLevel(Struct, frozen=True, gc=False):
    """A queue depth, and the errors of its target's LUNs at this pass and at the previous pass.

    ``ramping`` is whether the kernel has lowered it.
    """

    depth: int
    errors: int
    earlier: int
    ramping: bool = False


class Order(Struct, frozen=True):
    """The scope of a pass: the devices of the ``events``, or everything for any other reason.

    ``left`` are settings that are skipped permanently because others keep changing them. ``fought``
    are settings with the maximum number of repairs. ``due`` are settings that an earlier pass could
    not set and that are tried again now, ``waiting`` later. ``levels`` are by endpoint id the
    latest levels of queue depths that a full queue lowers.
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
        """The names of the devices in its scope, or None for everything."""
        if self.reason is not PassReason.EVENT:
            return None
        return tuple(dict.fromkeys(event.name for event in self.events))

    @property
    def unmarked(self) -> frozenset[str]:
        """The names of the disks whose events are all unmarked (``DeviceEvent``)."""
        marked = {event.name for event in self.events if not event.unmarked}
        return frozenset(event.name for event in self.events) - marked


class Handled(StrEnum):
    """How a setting that differed from the profile value was handled."""

    WRITTEN = "written"
    FAILED = "failed"  # see ``outcome``; ``retry`` is the time of the next try
    WAITING = "waiting"  # it could not be set, and is tried again later
    RAMPING = "ramping"  # the kernel lowered it after a full queue, and is raising it
    REPORTED = "reported"  # the configuration requires drift to be reported, not repaired
    LEFT = "left"  # others keep changing it, so it is skipped
    HELD = "held"  # a run is switching it for measurements


class ChangeOrigin(StrEnum):
    """The origin of a value that differs from the profile value."""

    NEW = "new"  # its device is new and was never tuned
    RESET = "reset"  # the kernel or the driver has reset it
    UNSET = "unset"  # an earlier pass could not set it
    SHARE = "share"  # hbatune set it, but its share of an array's limit has changed
    DRIFT = "drift"  # an administrator or another tool has changed it


class Retry(Struct, frozen=True, gc=False):
    """The time of the first failure to set a setting, the number of tries, and the next try.

    Times are in seconds since the epoch.
    """

    since: float
    tries: int
    next: float


class SettingChange(Struct, frozen=True, gc=False):
    """One setting that differed from the profile value, and how it was handled.

    ``step_seconds`` is the time in which the kernel raises a lowered queue depth by one.
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
        """Whether it needs attention. A ramp ends without intervention."""
        return self.handled not in (Handled.WRITTEN, Handled.RAMPING)


class UnwrittenFile(Struct, frozen=True):
    """A file that the daemon could not write, and the reason."""

    path: str
    reason: str


class DelayedScan(Struct, frozen=True):
    """A scan of the devices of some events, to be started after ``seconds``."""

    seconds: float
    events: tuple[DeviceEvent, ...]


class PassReport(Struct, frozen=True):
    """The result of a pass on a machine with ``endpoints`` endpoints.

    ``unreadable`` is the number of unread settings. ``looked`` are the ids of endpoints that events
    named, ``new`` the new ones among them. ``levels`` are the levels of queue depths that a full
    queue lowers. ``resettable`` are by target the driver's queue depths that differ from the
    profile value and that the driver restores without an event.

    ``locked`` is whether another hbatune process held the lock, so nothing was scanned. ``error``
    and ``hint`` describe a failure that ended the pass early or accompanied it. ``subjects`` are
    the scanned devices to watch, or None if nothing was scanned. ``places`` are the locations of
    their counters. ``whole`` is whether the pass covered everything, not only a part.

    ``unmatched`` are the names in [site] that match nothing on the machine. ``later`` are the scans
    after this pass. ``unwritten`` are hbatune's files that could not be written.
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
    unmatched: tuple[UnmatchedName, ...] = ()
    later: tuple[DelayedScan, ...] = ()
    unwritten: tuple[UnwrittenFile, ...] = ()

    @property
    def written(self) -> list[SettingChange]:
        """The settings that were repaired."""
        return [change for change in self.changes if change.handled is Handled.WRITTEN]

    @property
    def open(self) -> tuple[SettingChange, ...]:
        """The settings that were not repaired."""
        return tuple(change for change in self.changes if change.handled is not Handled.WRITTEN)


PIECE_SIZE = 64
"""The maximum number of disks and of changes in a piece."""


class _Piece(Struct, frozen=True, array_like=True):
    """A piece of a report: the fields of ``PassReport`` that grow with the number of disks."""

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
    """Return a report as lines of JSON: a head without per-disk fields, and a line per piece."""
    subjects = report.subjects
    head = replace(
        report,
        changes=(),
        subjects=None if subjects is None else replace(subjects, disks=()),
        places=SampledPlaces(ways=report.places.ways),
        levels={},
        resettable={},
    )
    return b"\n".join((_encode(head), *map(_encode, _split_report(report))))


def decode_report(sent: bytes, known_disks: Iterable[WatchedDisk] = ()) -> PassReport:
    """Return the report. To save memory, it shares equal texts and disks of ``known_disks``."""
    disks_by_id = {disk.id: disk for disk in known_disks}
    texts = _Texts()
    for disk in disks_by_id.values():
        texts.share_disk(disk)
    lines = _split_lines(sent)
    head = _decode_head(next(lines))
    changes, disks, scsi = list[SettingChange](), list[WatchedDisk](), list[str]()
    names, levels, resettable = dict[str, str](), dict[str, DepthLevel](), dict[str, int]()
    for line in lines:
        piece = _decode_piece(line)
        for disk in piece.disks:
            known_disk = disks_by_id.get(disk.id)
            disks.append(known_disk if known_disk == disk else texts.share_disk(disk))
        changes += map(texts.share_change, piece.changes)
        scsi += map(texts.share, piece.scsi)
        names.update((texts.share(name), texts.share(id)) for name, id in piece.names.items())
        levels.update((texts.share(id), level) for id, level in piece.levels.items())
        resettable.update((texts.share(name), depth) for name, depth in piece.resettable.items())
    return replace(
        head,
        changes=tuple(changes),
        subjects=None if head.subjects is None else replace(head.subjects, disks=tuple(disks)),
        places=replace(head.places, disks=names, scsi=tuple(scsi)),
        levels=levels,
        resettable=resettable,
    )


class _Texts:
    """A pool of texts, each stored once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def share(self, text: str) -> str:
        """Return the pool's copy of a text."""
        return self._texts.setdefault(text, text)

    def share_disk(self, disk: WatchedDisk) -> WatchedDisk:
        """Return a disk with shared texts."""
        adapter = None if disk.adapter is None else self.share(disk.adapter)
        return replace(
            disk,
            id=self.share(disk.id),
            target=self.share(disk.target),
            adapter=adapter,
            paths=tuple(map(self.share, disk.paths)),
        )

    def share_change(self, change: SettingChange) -> SettingChange:
        """Return a change with shared texts."""
        before, value = change.before, change.value
        return replace(
            change,
            target=self.share(change.target),
            id=self.share(change.id),
            setting=self.share(change.setting),
            before=self.share(before) if isinstance(before, str) else before,
            value=self.share(value) if isinstance(value, str) else value,
            rule=self.share(change.rule),
        )


def _split_report(report: PassReport) -> Iterator[_Piece]:
    disks = () if report.subjects is None else report.subjects.disks
    names, scsi = iter(report.places.disks.items()), report.places.scsi
    levels, resettable = iter(report.levels.items()), iter(report.resettable.items())
    longest = max(
        map(len, (report.changes, disks, report.places.disks, report.levels, report.resettable))
    )
    for start in range(0, longest, PIECE_SIZE):
        piece = slice(start, start + PIECE_SIZE)
        yield _Piece(
            changes=report.changes[piece],
            disks=disks[piece],
            names=dict(islice(names, PIECE_SIZE)),
            scsi=scsi[piece],
            levels=dict(islice(levels, PIECE_SIZE)),
            resettable=dict(islice(resettable, PIECE_SIZE)),
        )


def _split_lines(sent: bytes) -> Iterator[memoryview]:
    """Yield the lines. JSON from msgspec contains no line breaks."""
    view, start = memoryview(sent), 0
    while start <= len(sent):
        end = sent.find(b"\n", start)
        end = len(sent) if end < 0 else end
        yield view[start:end]
        start = end + 1


HOUR = 3600.0


class ProbeTime(Struct, frozen=True):
    """The times of probes on a monotonic clock, each with its number of seconds."""

    probes: tuple[tuple[float, float], ...] = ()

    def left(self, budget: float, current_time: float) -> float:
        """Return the remaining seconds of the hourly budget."""
        return budget - sum(seconds for time, seconds in self.probes if current_time - time < HOUR)

    def plus(self, seconds: float, current_time: float) -> "ProbeTime":
        """Return a copy with a further probe of this duration at ``current_time``."""
        recent = tuple(probe for probe in self.probes if current_time - probe[0] < HOUR)
        return ProbeTime((*recent, (current_time, seconds)))


class NewEndpointProbe(Struct, frozen=True):
    """The result of a probe: the number of measured endpoints, and the error, if any.

    ``unwritten`` contains the history file if it could not be written.
    """

    measured: int = 0
    seconds: float = 0.0
    error: str | None = None
    unwritten: tuple[UnwrittenFile, ...] = ()


decode_probe = msgspec.json.Decoder(NewEndpointProbe).decode
