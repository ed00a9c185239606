"""The reports of passes on their way to the daemon: in pieces, so that it stays small.

A report on thousands of disks repeats their names and ids. Decoded at once, it would take the
daemon's memory to a size that it never needs again, and that the allocator keeps.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune.agent.orders import DepthLevel, PassReport, SettingChange
from hbatune.facts.sampler import SampledPlaces
from hbatune.watch.watched import WatchedDisk

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
