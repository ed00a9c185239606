"""Orders for passes, and their reports.

Each message between the daemon and its processes is one value of msgpack. A report on thousands of
disks repeats their names and ids, which the daemon stores once.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from msgspec import Raw, Struct, msgpack
from msgspec.structs import replace

from hbatune.agent.events import DeviceEvent
from hbatune.facts.sampler import SampledPlaces
from hbatune.loader import ErrorNumber, LongText, Moment, ShortText
from hbatune.plan.rows import Outcome, RowKey, ServingAdapter
from hbatune.policy.config import UnmatchedName
from hbatune.settings.table import Value
from hbatune.watch.readings import Subjects, WatchedDisk


class PassReason(StrEnum):
    """The reason for a pass."""

    START = "start"
    EVENT = "event"
    AUDIT = "audit"
    OVERRUN = "overrun"  # udev events arrived faster than they were read, and some are lost
    CONFIGURED = "configured"  # a file of the configuration has changed
    RELOAD = "reload"  # requested: also restores settings that the profile no longer requires


class DepthLevel(Struct, frozen=True, gc=False):
    """A queue depth, and the errors of its target's LUNs at this pass and at the previous pass."""

    depth: int
    errors: int
    earlier: int
    ramping: bool = False  # whether the kernel has lowered it


class Order(Struct, frozen=True):
    """The scope of a pass: the devices of the ``events``, or everything for any other reason.

    ``left`` are settings that are skipped permanently because others keep changing them. ``fought``
    are settings with the maximum number of repairs. ``due`` are settings that an earlier pass could
    not set and that are tried again now, ``waiting`` later. ``levels`` are by endpoint id the
    latest levels of queue depths that a full queue lowers. ``checks`` is whether to run the checks.
    """

    reason: PassReason
    events: tuple[DeviceEvent, ...] = ()
    left: frozenset[RowKey] = frozenset()
    fought: frozenset[RowKey] = frozenset()
    due: frozenset[RowKey] = frozenset()
    waiting: frozenset[RowKey] = frozenset()
    levels: dict[str, DepthLevel] = {}
    checks: bool = False

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


class WriterKind(StrEnum):
    """The type of a writer of a setting."""

    PROCESS = "process"
    ENDED = "ended"  # a process that had ended before it could be identified
    HBATUNE = "hbatune"  # another command of hbatune
    KERNEL = "kernel"  # the driver or the kernel: no process has written
    UNKNOWN = "unknown"  # the daemon did not see all writes


class Writer(Struct, frozen=True, gc=False):
    """The last writer of a setting, and the ``attribute`` that it wrote to.

    ``time`` is in seconds since the epoch. ``unit`` is the unit of the system that the process
    belongs to. ``comm`` is the process's name, which any process can choose. ``rules`` are udev
    rules that set the attribute, if udev is the writer.
    """

    kind: WriterKind
    time: Moment | None = None
    attribute: ShortText | None = None
    pid: int | None = None
    uid: int | None = None
    unit: ShortText | None = None
    cgroup: ShortText | None = None
    comm: ShortText | None = None
    rules: tuple[ShortText, ...] = ()


class SettingChange(Struct, frozen=True, gc=False):
    """One setting that differed from the profile value, and how it was handled.

    ``step_seconds`` is the time in which the kernel raises a lowered queue depth by one. ``reason``
    explains a write that was not tried, or has not returned. ``writer`` is missing if writes are
    not watched, or if another cause is known.
    """

    target: ShortText
    id: ShortText
    setting: ShortText
    before: Value | None
    value: Value
    rule: ShortText
    handled: Handled
    outcome: Outcome | None = None
    errno: ErrorNumber | None = None
    origin: ChangeOrigin = ChangeOrigin.DRIFT
    retry: Retry | None = None
    step_seconds: float | None = None
    reason: LongText | None = None
    writer: Writer | None = None

    @property
    def key(self) -> RowKey:
        """The target's id and the setting."""
        return self.id, self.setting

    @property
    def amiss(self) -> bool:
        """Whether it needs attention. A ramp ends without intervention."""
        return self.handled not in (Handled.WRITTEN, Handled.RAMPING)


class UnwrittenFile(Struct, frozen=True):
    """A file that the daemon could not write, and the reason."""

    path: ShortText
    reason: LongText


class DelayedScan(Struct, frozen=True):
    """A scan of the devices of some events, to be started after ``seconds``."""

    seconds: float
    events: tuple[DeviceEvent, ...]


class PassReport(Struct, frozen=True):
    """The result of a pass on a machine with ``endpoints`` endpoints.

    ``unreadable`` is the number of unread settings. ``counts`` are all settings of a full pass by
    state, ``skipped`` describes the first excluded ones, ``adapters`` are those with disks.
    ``findings`` of the checks are counted by severity, or None if they did not run. ``lost_rules``
    are udev rules of others without effect. ``looked`` are the ids of endpoints that events named.
    ``levels`` are the levels of queue depths that a full queue lowers. ``resettable`` are by target
    the wrong queue depths that show that the driver has restored its own, without an event.

    ``locked`` is whether another hbatune process held the lock, so nothing was scanned. ``error``
    and ``hint`` describe a failure that ended the pass early or accompanied it. ``subjects`` are
    the scanned devices to watch, or None if nothing was scanned. ``places`` are the locations of
    their counters. ``whole`` is whether the pass covered everything, not only a part.

    ``unmatched`` are the names in [site] that match nothing on the machine. ``later`` are the scans
    after this pass. ``unwritten`` files could not be written. ``workers`` are the workers' pids.
    """

    profile: str | None = None
    endpoints: int = 0
    changes: tuple[SettingChange, ...] = ()
    unreadable: int = 0
    counts: dict[str, int] = {}
    skipped: tuple[str, ...] = ()
    adapters: tuple[ServingAdapter, ...] = ()
    looked: tuple[str, ...] = ()
    locked: bool = False
    error: str | None = None
    hint: str | None = None
    subjects: Subjects | None = None
    places: SampledPlaces = SampledPlaces()
    findings: dict[str, int] | None = None
    lost_rules: tuple[str, ...] = ()
    whole: bool = True
    levels: dict[str, DepthLevel] = {}
    resettable: dict[str, tuple[Value, ...]] = {}
    unmatched: tuple[UnmatchedName, ...] = ()
    workers: tuple[int, ...] = ()
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

encode = msgpack.Encoder().encode
"""Encodes an order or an error."""
decode_error = msgpack.Decoder(str | None).decode
decode_findings = msgpack.Decoder(tuple[dict[str, int], tuple[str, ...]]).decode
decode_files = msgpack.Decoder(tuple[str, ...]).decode
decode_order = msgpack.Decoder(Order).decode
_decode_pieces = msgpack.Decoder(tuple[Raw, ...]).decode
_decode_piece = msgpack.Decoder(PassReport).decode


def encode_report(report: PassReport) -> bytes:
    """Return a report as one value of msgpack: pieces, the first without what grows with the disks.

    The daemon decodes them one by one. Decoded together, they would require memory that the daemon
    never needs again but that the allocator keeps.
    """
    subjects, places = report.subjects, report.places
    head = replace(
        report,
        changes=(),
        subjects=None if subjects is None else replace(subjects, disks=()),
        places=SampledPlaces(ways=places.ways),
        levels={},
        resettable={},
    )
    disks = () if subjects is None else subjects.disks
    names, levels = list(places.disks.items()), list(report.levels.items())
    resettable, pieces = list(report.resettable.items()), [head]
    lists = (report.changes, disks, names, places.counter_disks, levels, resettable)
    for start in range(0, max(map(len, lists)), PIECE_SIZE):
        part = slice(start, start + PIECE_SIZE)
        piece = PassReport(
            changes=report.changes[part],
            subjects=Subjects(disks[part]),
            places=SampledPlaces(dict(names[part]), places.counter_disks[part]),
            levels=dict(levels[part]),
            resettable=dict(resettable[part]),
        )
        pieces.append(piece)
    return encode(pieces)


def decode_report(sent: bytes, known_disks: Iterable[WatchedDisk] = ()) -> PassReport:
    """Return the report. To save memory, it shares equal values and disks of ``known_disks``."""
    disks_by_id = {disk.id: disk for disk in known_disks}
    pool: dict[str | int, str | int] = {}
    for disk in disks_by_id.values():
        _share_values(disk, pool)

    def share(text: str) -> str:
        return str(pool.setdefault(text, text))

    changes, disks, counter_disks = list[SettingChange](), list[WatchedDisk](), list[str]()
    names, levels = dict[str, str](), dict[str, DepthLevel]()
    resettable = dict[str, tuple[Value, ...]]()
    first, *encoded_pieces = _decode_pieces(sent)
    head = _decode_piece(first)
    for encoded in encoded_pieces:
        piece = _decode_piece(encoded)
        for disk in piece.subjects.disks if piece.subjects else ():
            known_disk = disks_by_id.get(disk.id)
            disks.append(known_disk if known_disk == disk else _share_values(disk, pool))
        changes += [_share_values(change, pool) for change in piece.changes]
        counter_disks += map(share, piece.places.counter_disks)
        names.update((share(name), share(id)) for name, id in piece.places.disks.items())
        levels.update((share(id), level) for id, level in piece.levels.items())
        resettable.update((share(name), depths) for name, depths in piece.resettable.items())
    return replace(
        head,
        changes=tuple(changes),
        subjects=None if head.subjects is None else replace(head.subjects, disks=tuple(disks)),
        places=replace(head.places, disks=names, counter_disks=tuple(counter_disks)),
        levels=levels,
        resettable=resettable,
    )


_SharedStruct = TypeVar("_SharedStruct", WatchedDisk, SettingChange)


def _share_values(value: _SharedStruct, pool: dict[str | int, str | int]) -> _SharedStruct:
    """Return the value with the pool's copies of its texts and numbers. New ones are added."""
    shared: dict[str, object] = {}
    for name in value.__struct_fields__:
        content = getattr(value, name)
        if type(content) in (str, int):  # and no StrEnum or bool
            shared[name] = pool.setdefault(content, content)
        elif type(content) is tuple:
            shared[name] = tuple(pool.setdefault(text, text) for text in content)
    return replace(value, **shared)
